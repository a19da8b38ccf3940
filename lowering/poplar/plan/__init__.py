"""Planners: the number of parts of each axis of a library call, by exhaustive search under the cost model."""

"""The planners: how many parts each axis of a library call is cut into, by searching all candidates under the cost model."""

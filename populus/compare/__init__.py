"""Comparisons of levels, passes and engines on the same inputs."""

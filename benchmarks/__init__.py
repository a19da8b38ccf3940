"""Benchmarks: the models they run (`models`) and how they are timed (`speed`)."""

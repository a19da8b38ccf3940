"""The driver: pipelines, the list of passes, loaded files, the program cache, and what a model needs."""

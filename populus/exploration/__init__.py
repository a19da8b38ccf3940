"""A machine for a model: points of a space of machines and options, each compiled to a program for tiles and weighed."""

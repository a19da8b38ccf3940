"""A model as a program: compiled, run, kept, with states, open sizes and replicas."""

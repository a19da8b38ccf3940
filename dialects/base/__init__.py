"""Bases of ops that several dialects share: tensor ops, branches and loops, and dialects made of modules."""

"""Proofs that a compile kept the meaning of a program, by integer sets: all elements at once, no sampling. Needs `islpy`."""

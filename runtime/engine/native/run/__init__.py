"""Execution of machine code: the program, its table of steps, the loop that walks it, the threads."""

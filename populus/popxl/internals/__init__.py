"""The inside of PopXL's graphs as programs and tests of the original reach for it: ops, tensors, graphs and options.

Every answer is read from the graph that the program built; `popart._internal.ir` gives these names.
"""

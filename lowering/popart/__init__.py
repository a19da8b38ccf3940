"""Model level (`popart`): rewrites, gradients, optimizers, outlining, in-place marks, and the lowering to library
calls.
"""

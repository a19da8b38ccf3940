"""The `popart` level: rewrites, gradients, optimizers, outlining, in-place, and the lowering to library calls."""

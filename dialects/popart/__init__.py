"""The `popart` dialect."""

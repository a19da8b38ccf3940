"""Passes and rules of the `stablehlo` level: reading texts of other producers, and the conversion to `popart`."""

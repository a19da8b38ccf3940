"""The `onnx` level: import, shape inference, constant folding, host ops, and the conversion to `popart`."""

"""Producer x layout op x consumer, one by one from a table, on the native engine against onnxruntime."""

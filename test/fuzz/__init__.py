"""Random graphs compared with onnxruntime and between levels."""

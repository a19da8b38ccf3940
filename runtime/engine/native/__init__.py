"""The `native` engine: families as machine code, made by LLVM for the CPU it runs on and kept on disk."""

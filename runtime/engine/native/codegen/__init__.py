"""Code generation: LLVM text, its compilation, the cache of objects on disk, and the target CPU."""

"""Machine code: LLVM text, its compilation, the objects on disk, the CPU it is made for."""

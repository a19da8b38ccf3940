"""Engine `native`: families as machine code, which LLVM makes for the CPU at hand and a cache stores on disk."""

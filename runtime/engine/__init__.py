"""The engines: one walk over a program and the boxes of its families, told apart by how they cut parallel axes."""

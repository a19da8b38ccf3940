"""Library level (`popops`): fusion of element-wise maps, and narrowing of element types."""

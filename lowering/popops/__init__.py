"""The library level: fused element-wise maps and narrowed element types."""

"""Shared by all dialects: diagnostics, element types, shapes, constraints, the base of ops."""

"""Models and ops as people write them: builders, pages, formulas, nets by name."""

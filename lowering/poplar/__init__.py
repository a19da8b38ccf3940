"""Tile level (`poplar`): rules from library calls to families, planners, layouts, merged steps, addresses and code."""

"""The engines: they share one walk over a program and the boxes of its families, and differ in how they split parallel
axes.
"""

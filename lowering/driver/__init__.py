"""Driver of the lowering: pipelines, the pass table, file input and output, extensions, the program cache and
model inventory.
"""

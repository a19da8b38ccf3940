"""The tile level: rules from library calls to families, planners, layouts, compute sets, addresses."""

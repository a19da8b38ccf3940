"""Programs that were built: their file, and what runs them with NumPy alone."""

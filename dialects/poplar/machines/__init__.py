"""The machines that are here: files of numbers."""

"""Helpers of the tests, imported as `helpers.NAME`."""

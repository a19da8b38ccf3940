"""The module that PopXL's programs and tests import as `popart._internal`."""

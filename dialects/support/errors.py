"""The root of all errors of this package, which needs no other package."""


class ProgramError(Exception):
    """A mistake in the use of a model or program, in one line. `PopulusError` is one too."""

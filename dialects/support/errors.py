"""The root of all errors of this package, which needs no other package."""


class ProgramError(Exception):
    """A mistake in the use of a model or program, in one line. `PopulusError` is one too."""


class PopulusWarning(UserWarning):
    """A condition that a user should know about but that stops nothing, in one line."""

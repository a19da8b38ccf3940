"""The root of all errors of this package, which needs no other package."""


class ProgramError(Exception):
    """A mistake in the use of a model or program, in one line. `PopulusError` is one too."""

    def __str__(self) -> str:
        """Gives the message in one line, also where a name in a model's file has several."""
        return " ".join(super().__str__().splitlines())


class PopulusWarning(UserWarning):
    """A condition that a user should know about but that stops nothing, in one line."""

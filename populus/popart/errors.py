"""PopART's exceptions, by its names; each is a PopulusError."""

from __future__ import annotations

from populus.dialects.support.diagnostics import PopulusError


class popart_internal_exception(PopulusError):
    """A mistake of the compiler."""


class popart_runtime_error(PopulusError):
    """An error of a session that runs."""


class poplibs_exception(PopulusError):
    """An error of a library of tiles."""


class poplar_exception(PopulusError):
    """An error of a tile program."""


class poplar_runtime_error(poplar_exception):
    """An error of a program that runs."""


class poplar_application_runtime_error(poplar_runtime_error):
    """An error that a program's own data bring about while it runs."""


class poplar_system_runtime_error(poplar_runtime_error):
    """An error of the machine."""


class poplar_recoverable_runtime_error(poplar_system_runtime_error):
    """An error of the machine after which a program can run again; a virtual machine has none."""


class poplar_unrecoverable_runtime_error(poplar_system_runtime_error):
    """An error of the machine for good; a virtual machine has none."""


class poplar_unknown_runtime_error(poplar_system_runtime_error):
    """An error of the machine of no known kind; a virtual machine has none."""


class OutOfMemoryException(PopulusError):
    """A program that does not fit the machine's memory. `e`: the error that says so."""

    def __init__(self, e: PopulusError):
        super().__init__(str(e))
        self.error = e

    def getSummaryReport(self) -> str:
        """Gives what the memory of the program is, where it is known."""
        return str(self.error)

    def getProfilePath(self) -> str:
        """Gives the file of the profile; none is written."""
        return ""


class OutOfMemoryError:
    """Tells whether compiling ran out of memory. `prepareDevice` takes one, and sets it."""

    def __init__(self) -> None:
        self.text = ""

    def __str__(self) -> str:
        return self.text

    def isSuccessful(self) -> bool:
        """Tells whether the program fits."""
        return not self.text

    def getSummaryReport(self) -> str:
        """Gives what the memory of the program is, where it is known."""
        return self.text

    def getProfilePath(self) -> str:
        """Gives the file of the profile; none is written."""
        return ""


EXCEPTIONS = {kind.__name__: kind for kind in (
    popart_internal_exception, popart_runtime_error, poplibs_exception, poplar_exception, poplar_runtime_error,
    poplar_application_runtime_error, poplar_system_runtime_error, poplar_recoverable_runtime_error, poplar_unrecoverable_runtime_error,
    poplar_unknown_runtime_error,
)}  # fmt: skip

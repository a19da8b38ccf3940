"""Makes a program of PopART, PopXL or PopTorch run as it is: `import populus.compat` at its top.

    import populus.compat
    import popart, popxl, poptorch, popdist

A refusal of populus ends the program with one line, at the line of the program. `populus run-program FILE` needs no such import.
"""

from __future__ import annotations

import sys
from types import TracebackType

from populus.aliases import install, refusal


def report(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Prints a refusal in one line, and any other error as Python does."""
    line = refusal(error.with_traceback(trace))
    if line is None:
        sys.__excepthook__(kind, error, trace)
    else:
        print(f"populus: {line}", file=sys.stderr)


install()
if sys.excepthook is sys.__excepthook__:
    sys.excepthook = report

"""`python -m populus`: the command `populus`."""

from __future__ import annotations

import sys

from populus.tools.main import main

if __name__ == "__main__":
    sys.exit(main())

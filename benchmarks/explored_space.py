"""Weighs 2,000 machines for squeezenet, and stores their cycles and joules: the space on which test_exploration.py judges the search.

python -m benchmarks.explored_space [PROCESSES]
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from populus.exploration.explore import explore
from populus.write.nets import net

FILE = Path(__file__).parents[1] / "test/helpers/explored_space.json"
VARY = {"tiles": "64:1432:72", "tile_bytes": "64K:516K:x1.259", "exchange_bytes": "1,2,4,8,16", "conv_units": "8,16"}


def main(arguments: list[str]) -> int:
    """Writes the file; prints how many points there are, and how many can be."""
    processes = int(arguments[0]) if arguments else None
    found = explore(net("squeezenet"), vary=VARY, minimise=("cycles", "energy"), points=2000, search="all", processes=processes)
    costs = [[p["measures"]["cycles"], float(f"{p['measures']['energy']:.6g}")] if "measures" in p else None for p in found.points]
    FILE.write_text(json.dumps({"model": "squeezenet", "vary": VARY, "costs": costs}, separators=(",", ":")) + "\n")
    print(f"{len(costs)} points, {sum(c is not None for c in costs)} can be, {len(found.front)} on the front")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The edges where real desks live, each as a table of figures: what happens without a remedy, and with it.

    python benchmarks/edges.py            # names the tables
    python benchmarks/edges.py leaks      # prints one; its options follow

Every table is a module `edges_<name>.py` beside this one with a function `main(arguments)`.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

HERE = Path(__file__).parent


def tables() -> dict[str, str]:
    """The tables by name, with the module of each."""
    return {path.stem.removeprefix("edges_"): path.stem for path in sorted(HERE.glob("edges_*.py"))}


def main() -> int:
    """Print the table that is asked for."""
    known = tables()
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    if wanted not in known:
        for name, module in known.items():
            print(f"{name:16}{(importlib.import_module(module).__doc__ or '').splitlines()[0]}")
        return 0 if not wanted else 2
    return importlib.import_module(known[wanted]).main(sys.argv[2:]) or 0


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    sys.exit(main())

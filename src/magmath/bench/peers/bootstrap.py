"""Starts a contestant in an environment that has no magmath: `python bootstrap.py FACTORY …`.

Empty packages with the right search paths replace `magmath` and `magmath.bench`, so that a peer's
process installs, imports and configures nothing of magmath.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

if __name__ == "__main__":
    bench = Path(__file__).resolve().parents[1]
    for name, folder in (("magmath", bench.parent), ("magmath.bench", bench)):
        package = ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package

    from magmath.bench.peers.service import main

    main(sys.argv[1:])

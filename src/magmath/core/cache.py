"""Where magmath keeps what it has measured and compiled: `$MAGMATH_CACHE`, or the user's cache."""

from __future__ import annotations

import os
from pathlib import Path

VARIABLE = "MAGMATH_CACHE"


def cache_directory(name: str) -> Path:
    """The directory of one kind of cache, made if it is missing; readable by the user alone."""
    root = os.environ.get(VARIABLE)
    if not root:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        root = os.path.join(home, "magmath")
    path = Path(root) / name
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    return path

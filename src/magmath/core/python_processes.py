"""Python processes that this process starts, such as workers and compilers.

They import the same magmath, and, as this process does, nothing from the current folder, which may
be a folder that everybody can write to.
"""

from __future__ import annotations

import os
import site
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

_PACKAGE_ROOT: Final = str(Path(__file__).resolve().parents[2])


def module_command(module: str) -> tuple[str, ...]:
    """Return the command that runs a module of this package as a process's main program."""
    return sys.executable, "-P", "-m", module


def search_path(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variable PYTHONPATH with which a process of this environment finds this magmath.

    The folder of magmath is added only if Python does not search it anyway: PYTHONPATH precedes the
    standard library, and an installation folder may hold other modules of the same names.
    """
    given = environment.get("PYTHONPATH", "")
    folders = list(filter(None, given.split(os.pathsep)))
    searched = [*folders, *site.getsitepackages(), site.getusersitepackages()]
    if _PACKAGE_ROOT not in map(os.path.realpath, searched):
        folders.insert(0, _PACKAGE_ROOT)
    return {"PYTHONPATH": os.pathsep.join(folders)}

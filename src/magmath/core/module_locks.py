"""Locks of modules: a process that `os.fork` has created gets new ones.

A thread of the parent that holds a lock does not exist in the child, which would wait for ever. The
child replaces the locks, not their states: the thread that forks may hold one itself, and release
it in both processes.
"""

from __future__ import annotations

import os
from sys import modules
from threading import RLock
from typing import Final

_places: Final[list[tuple[str, str]]] = []


def module_lock(module: str, name: str) -> RLock:
    """Return a reentrant lock for the global variable `name` of a module, which a forked process
    sets to another one: it must be read there each time."""
    _places.append((module, name))
    return RLock()


def _renew_locks() -> None:
    for module, name in _places:
        if module in modules:  # a user may have removed it to import it again
            setattr(modules[module], name, RLock())


os.register_at_fork(after_in_child=_renew_locks)

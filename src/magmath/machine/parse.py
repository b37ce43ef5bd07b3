"""Python's parser for one thread at a time: that of Python 3.11 fails where two use it at once."""

from __future__ import annotations

import ast
from threading import Lock

_PARSING = Lock()


def parsed(source: str) -> ast.Module:
    """The syntax tree of a source."""
    with _PARSING:
        return ast.parse(source)

"""Python's parser for one thread at a time: that of Python 3.11 fails where two use it at once."""

from __future__ import annotations

import ast
from threading import Lock

_PARSER_LOCK = Lock()


def parse_source(source: str) -> ast.Module:
    """The syntax tree of a source."""
    with _PARSER_LOCK:
        return ast.parse(source)

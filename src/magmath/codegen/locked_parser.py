"""Python's parser under a lock: the parser of Python 3.11 is not thread-safe."""

from __future__ import annotations

import ast
from threading import Lock

_PARSER_LOCK = Lock()


def parse_source(source: str) -> ast.Module:
    """Return the syntax tree of a source."""
    with _PARSER_LOCK:
        return ast.parse(source)

"""Python's parser under a lock: the parser of Python 3.11 is not thread-safe."""

from __future__ import annotations

import ast

from magmath.core.module_locks import module_lock

_PARSER_LOCK = module_lock(__name__, "_PARSER_LOCK")


def parse_source(source: str) -> ast.Module:
    """Return the syntax tree of a source."""
    with _PARSER_LOCK:
        return ast.parse(source)

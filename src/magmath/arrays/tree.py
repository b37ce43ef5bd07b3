"""Flattening of nested lists, tuples and dictionaries into leaves and a structure, and back.

None has no leaves, as in JAX. Named tuples and ordered dictionaries keep their classes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from typing import Any

NOTHING: Hashable = ("nothing",)
"""The structure of None."""


def flatten(value: Any) -> tuple[list[Any], Hashable]:
    """Return the leaves of nested lists, tuples and dictionaries, and their structure."""
    leaves: list[Any] = []
    return leaves, _structure(value, leaves)


def _structure(value: Any, leaves: list[Any]) -> Hashable:
    """Return the structure of a value and append its leaves to `leaves`."""
    if not isinstance(value, (dict, list, tuple)):
        if value is None:
            return NOTHING
        leaves.append(value)
        return None
    trees: list[Hashable] = []
    for part in value.values() if isinstance(value, dict) else value:
        if isinstance(part, (dict, list, tuple)):
            trees.append(_structure(part, leaves))
        elif part is None:
            trees.append(NOTHING)
        else:
            leaves.append(part)
            trees.append(None)
    if isinstance(value, dict):
        return OrderedDict if isinstance(value, OrderedDict) else dict, tuple(value), tuple(trees)
    if isinstance(value, list):
        return list, tuple(trees)
    return type(value) if hasattr(value, "_fields") else tuple, tuple(trees)


def unflatten(tree: Any, leaves: Sequence[Any]) -> Any:
    """Return the value with this structure and these leaves."""
    if tree is None:
        (value,) = leaves
        return value
    value, rest = _built(tree, list(leaves))
    assert not rest
    return value


def _built(tree: Any, leaves: list[Any]) -> tuple[Any, list[Any]]:
    """Return the value with this structure and the first leaves, and the leaves that remain."""
    if tree is None:
        return leaves[0], leaves[1:]
    kind, *parts = tree
    if kind == "nothing":
        return None, leaves
    values = []
    for part in parts[-1]:
        value, leaves = _built(part, leaves)
        values.append(value)
    if len(parts) == 2:
        return kind(zip(parts[0], values, strict=True)), leaves
    return kind(*values) if hasattr(kind, "_fields") else kind(values), leaves

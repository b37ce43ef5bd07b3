"""Nested lists, tuples and dictionaries, taken apart into leaves and put together again."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any


def flatten(value: Any) -> tuple[list[Any], Hashable]:
    """The leaves of nested lists, tuples and dictionaries, and their structure."""
    if isinstance(value, dict):
        leaves, trees = flatten_all(value.values())
        return leaves, ("dict", tuple(value), trees)
    if isinstance(value, (list, tuple)):
        leaves, trees = flatten_all(value)
        return leaves, ("list" if isinstance(value, list) else "tuple", trees)
    return [value], None


def flatten_all(values: Iterable[Any]) -> tuple[list[Any], tuple[Hashable, ...]]:
    parts = [flatten(value) for value in values]
    return [leaf for leaves, _ in parts for leaf in leaves], tuple(tree for _, tree in parts)


def unflatten(tree: Any, leaves: Sequence[Any]) -> Any:
    value, rest = _built(tree, list(leaves))
    assert not rest
    return value


def _built(tree: Any, leaves: list[Any]) -> tuple[Any, list[Any]]:
    if tree is None:
        return leaves[0], leaves[1:]
    kind, *parts = tree
    values = []
    for part in parts[-1]:
        value, leaves = _built(part, leaves)
        values.append(value)
    if kind == "dict":
        return dict(zip(parts[0], values, strict=True)), leaves
    return (values if kind == "list" else tuple(values)), leaves

"""Flattening of nested lists, tuples and dictionaries into leaves and a tree, and back.

The tree of a leaf is None, that of a list, a tuple or a dictionary is a `Container`. The object
None has no leaves, as in JAX. Named tuples, ordered dictionaries and gradients by variable keep
their classes.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias, final

from magmath.arrays.variables.gradient_map import GradientMap


@final
class Container(NamedTuple):
    """The tree of a list, a tuple or a dictionary.

    kind   the class of the container
    keys   the keys of a dictionary; None for other containers
    parts  the trees of the items
    """

    kind: type
    keys: tuple[Hashable, ...] | None
    parts: tuple[Tree, ...]


Tree: TypeAlias = "Container | None"
_NONE = Container(type(None), None, ())
"""The tree of the object None."""


def flatten(value: Any) -> tuple[list[Any], Tree]:
    """Return the leaves of nested lists, tuples and dictionaries, and their tree."""
    leaves: list[Any] = []
    return leaves, _tree(value, leaves)


def tuple_tree(*parts: Tree) -> Tree:
    """Return the tree of a tuple whose items have these trees."""
    return Container(tuple, None, parts)


def _tree(value: Any, leaves: list[Any]) -> Tree:
    """Return the tree of a value and append its leaves to `leaves`."""
    if not isinstance(value, (dict, list, tuple)):
        if value is None:
            return _NONE
        leaves.append(value)
        return None
    if isinstance(value, dict):
        return Container(
            _class_of_dictionary(value), (*value.keys(),), _trees(value.values(), leaves)
        )
    return Container(_class_of(value), None, _trees(value, leaves))


def _class_of_dictionary(value: dict[Any, Any]) -> type[dict[Any, Any]]:
    if type(value) is dict:
        return dict
    return next((kind for kind in (OrderedDict, GradientMap) if isinstance(value, kind)), dict)


def _class_of(items: list[Any] | tuple[Any, ...]) -> type:
    if isinstance(items, list):
        return list
    return type(items) if hasattr(items, "_fields") else tuple


def _trees(items: Iterable[Any], leaves: list[Any]) -> tuple[Tree, ...]:
    return tuple([_tree(item, leaves) for item in items])


def unflatten(tree: Tree, leaves: Sequence[Any]) -> Any:
    """Return the value with this tree and these leaves."""
    if tree is None:
        (value,) = leaves
        return value
    remaining = iter(leaves)
    value = _built(tree, remaining)
    assert next(remaining, _END) is _END, "there are more leaves than in the tree"
    return value


_END = object()


def _built(tree: Tree, leaves: Iterator[Any]) -> Any:
    """Return the value with this tree; its leaves are the next ones of the iterator."""
    if tree is None:
        return next(leaves)
    if tree.kind is type(None):
        return None
    items = [_built(part, leaves) for part in tree.parts]
    if tree.keys is not None:
        return tree.kind(zip(tree.keys, items, strict=True))
    return tree.kind(*items) if hasattr(tree.kind, "_fields") else tree.kind(items)

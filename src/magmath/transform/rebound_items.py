"""Items of lists and dictionaries among the arguments of a compiled function that it binds to other
objects, such as `cache["h"] = h`.

A trace works on copies of these containers. The new items are among the results of its program, and
each call changes the containers of the caller as the trace has changed its copies.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from magmath.arrays.array import Array
from magmath.arrays.indexing.masked_elements import MaskedElements
from magmath.arrays.traced_scalar import TracedScalar, TypedScalar
from magmath.arrays.tree import Tree, flatten, unflatten
from magmath.arrays.variables.variable import Variable

Path = tuple[Any, ...]
"""The keys and positions that lead from the arguments to a container."""
NEW: Any = object()
"""Stands for an item that was in none of the container's places."""
COMPUTED: Any = object()
"""Stands for a leaf that is a result of the program."""


@final
class ArgumentPosition(NamedTuple):
    """A leaf that is an argument, by its position among the leaves of the arguments."""

    position: int


@final
class ReboundItems(NamedTuple):
    """The changes of one list or dictionary.

    path    where it is among the arguments
    places  its keys or positions, each with the place that its item had before, or NEW
    tree    the nesting of the new items
    leaves  their leaves: COMPUTED, `ArgumentPosition`, or an object that is the same in each call
    """

    path: Path
    places: Sequence[tuple[Hashable, Any]]
    tree: Tree
    leaves: Sequence[Any]

    def write(self, arguments: Any, given: Sequence[Any], results: Iterator[Any]) -> None:
        """Change the container among these arguments.

        given    the leaves of the arguments
        results  those of the program that remain, of which it takes its own
        """
        container = arguments
        for step in self.path:
            container = container[step]
        leaves = [
            next(results)
            if x is COMPUTED
            else given[x.position]
            if type(x) is ArgumentPosition
            else x
            for x in self.leaves
        ]
        new, former = iter(unflatten(self.tree, leaves)), container.copy()
        items = {key: next(new) if old is NEW else former[old] for key, old in self.places}
        if isinstance(container, dict):
            container.clear()  # its keys may be in another order
            container.update(items)
        else:
            container[:] = items.values()


def write_items(
    rebound: Sequence[ReboundItems], arguments: Any, given: Sequence[Any], results: Sequence[Any]
) -> None:
    """Change the containers among these arguments; see `ReboundItems.write`."""
    remaining = iter(results)
    for items in rebound:
        items.write(arguments, given, remaining)


def has_repeated_containers(arguments: Any) -> bool:
    """Return True if a list or dictionary occurs twice among the arguments, whose copies in a trace
    would be two."""
    identities = [id(container) for _, container in _containers(arguments, ())]
    return len(set(identities)) < len(identities)


@final
class ArgumentContainers:
    """The lists and dictionaries among the arguments of a trace, with their present items."""

    def __init__(self, arguments: Any) -> None:
        containers = _containers(arguments, ())
        self._former = [(path, container, container.copy()) for path, container in containers]
        leaves, _ = flatten(arguments)
        self._positions = {id(x): i for i, x in enumerate(leaves) if isinstance(x, Array)}
        self._leaves = leaves  # so that no identity is used again

    def rebound(self) -> tuple[list[ReboundItems], list[Any]]:
        """Return the changes since, and the leaves of new items that the program computes."""
        changes, results = [], list[Any]()
        for path, container, former in self._former:
            if _identities(container) == _identities(former):
                continue
            now, before = _places(container), _places(former)
            origins = {id(item): key for key, item in before.items()}
            places = [(key, origins.get(id(item), NEW)) for key, item in now.items()]
            leaves, tree = flatten([now[key] for key, origin in places if origin is NEW])
            described = [*map(self._description, leaves)]
            changes.append(ReboundItems(path, places, tree, described))
            results += [leaf for leaf, x in zip(leaves, described, strict=True) if x is COMPUTED]
        return changes, results

    def _description(self, leaf: Any) -> Any:
        """Return the position of an argument, COMPUTED for another array or traced number, and
        variables and other objects unchanged."""
        position = self._positions.get(id(leaf))
        if position is not None:
            return ArgumentPosition(position)
        is_computed = isinstance(leaf, _COMPUTED_TYPES) and not isinstance(leaf, Variable)
        return COMPUTED if is_computed else leaf


_COMPUTED_TYPES = (Array, TracedScalar, TypedScalar, MaskedElements, np.ndarray)


def _containers(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    """Yield the lists and dictionaries in nested containers and where they are, inner ones first,
    since their containers may lose them."""
    if isinstance(value, dict | list | tuple):
        for key, part in _places(value).items():
            yield from _containers(part, (*path, key))
    if isinstance(value, dict | list):
        yield path, value


def _places(container: Any) -> dict[Hashable, Any]:
    """Return the items by their keys or positions."""
    return dict(container.items() if isinstance(container, dict) else enumerate(container))


def _identities(container: Any) -> list[int]:
    """Return the identities of the items, and of the keys of a dictionary."""
    keys = container.keys() if isinstance(container, dict) else ()
    items = container.values() if isinstance(container, dict) else container
    return [*map(id, keys), *map(id, items)]

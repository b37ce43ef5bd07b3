"""Items of lists and dictionaries among the arguments of a compiled function that it binds to other
objects, such as `cache["h"] = h`.

A trace works on copies of these containers. The new items are among the results of its program, and
each call changes the containers of the caller as the trace has changed its copies.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, NamedTuple, final

from magmath.arrays.array import Array
from magmath.arrays.traced_scalar import TracedScalar, TypedScalar
from magmath.arrays.tree import Tree, flatten, unflatten

Path = tuple[Any, ...]
"""The keys and positions that lead from the arguments to a container."""
NEW: Any = object()
"""Stands for an item that was in none of the container's places, or for a result of a program."""


@final
class ReboundItems(NamedTuple):
    """The changes of one list or dictionary.

    path    where it is among the arguments
    places  its keys or positions, each with the place that its item had before; NEW for a new item
    tree    the nesting of the new items
    leaves  their leaves: NEW for results of the program, other objects are the same in each call
    """

    path: Path
    places: Sequence[tuple[Hashable, Any]]
    tree: Tree
    leaves: Sequence[Any]

    def write(self, arguments: Any, results: Iterator[Any]) -> None:
        """Change the container among these arguments; `results` are those of the program that
        remain, of which it takes its own."""
        container = arguments
        for step in self.path:
            container = container[step]
        leaves = [next(results) if leaf is NEW else leaf for leaf in self.leaves]
        new, former = iter(unflatten(self.tree, leaves)), container.copy()
        items = {key: next(new) if old is NEW else former[old] for key, old in self.places}
        if isinstance(container, dict):
            container.clear()  # its keys may be in another order
            container.update(items)
        else:
            container[:] = items.values()


@final
class ArgumentContainers:
    """The lists and dictionaries among the arguments of a trace, with their present items."""

    def __init__(self, arguments: Any) -> None:
        self._found = [(path, one, one.copy()) for path, one in _containers(arguments, ())]

    def rebound(self) -> tuple[list[ReboundItems], list[Any]]:
        """Return the changes since, and the arrays and traced numbers among the new items."""
        changes, results = [], list[Any]()
        for path, container, former in self._found:
            if _identities(container) == _identities(former):
                continue
            now, before = _places(container), _places(former)
            origins = {id(item): key for key, item in before.items()}
            places = [(key, origins.get(id(item), NEW)) for key, item in now.items()]
            leaves, tree = flatten([now[key] for key, origin in places if origin is NEW])
            constants = [*map(_constant, leaves)]
            changes.append(ReboundItems(path, places, tree, constants))
            results += [leaf for leaf, x in zip(leaves, constants, strict=True) if x is NEW]
        return changes, results


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
    return dict(container if isinstance(container, dict) else enumerate(container))


def _identities(container: Any) -> list[int]:
    """Return the identities of the items, and of the keys of a dictionary."""
    keys = container if isinstance(container, dict) else ()
    items = container.values() if isinstance(container, dict) else container
    return [*map(id, keys), *map(id, items)]


def _constant(leaf: Any) -> Any:
    """Return NEW for an array or a traced number, other objects unchanged."""
    return NEW if isinstance(leaf, Array | TracedScalar | TypedScalar) else leaf

"""The roles of the dimensions of values, and how divisions pass through operations.

They follow from the index notation of the operations, so a user's own layers need no rules here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from magmath.graph import Node
from magmath.parallel.planner.layer_graph import BATCH, CHANNEL, SPACE

Roles = tuple[str | None, ...]
"""The role of each dimension of a value, or None."""


@final
@dataclass(frozen=True)
class Divisions:
    """How divisions of the operands pass through a node.

    roles            the roles of the result's dimensions
    summed           roles over which it sums
    needs_own_layer  True if it needs a divided dimension whole, mixes its parts, or has channels
                     that are none of its operands
    excluded         roles by which it cannot be divided
    """

    roles: Roles
    summed: tuple[str, ...]
    needs_own_layer: bool
    excluded: frozenset[str]


def divisions_of(
    node: Node, sources: Sequence[Node], weights: Collection[Node], roles: Mapping[Node, Roles]
) -> Divisions:
    """Return how divisions of the operands pass through a node, by its index notation.

    sources  the operands that depend on the network's input
    weights  those that are parameters, or computed from parameters
    """
    notation = node.index_notation
    by_letter: dict[str, str] = {}
    excluded: set[str] = set()
    for letters, x in zip(notation.inputs, node.inputs, strict=True):
        if x not in roles:
            continue
        for letter, role, extent in zip(letters, roles[x], x.shape, strict=True):
            if role is None or extent == 1:
                continue
            several = letter.isupper() and len(sources) > 1
            if letter == "." or several:
                excluded.add(role)
            if letter != ".":
                by_letter.setdefault(letter.lower(), role)
    result_roles = [by_letter.get(letter.lower()) for letter in notation.output]
    present = {letter.lower() for letter in notation.output}
    summed = tuple(role for letter, role in by_letter.items() if letter not in present)
    needs_own_layer = bool(excluded)
    if weights and not node.operation.is_elementwise:
        former, result_roles = result_roles, _of_weights(node, weights, result_roles, by_letter)
        needs_own_layer |= former != result_roles
    return Divisions(tuple(result_roles), summed, needs_own_layer, frozenset(excluded))


def _of_weights(
    node: Node,
    weights: Collection[Node],
    result_roles: Sequence[str | None],
    by_letter: Mapping[str, str],
) -> list[str | None]:
    """Return the roles of a result of data and weights: its channels are a dimension of the
    weights, if possible one that no data have."""
    notation = node.index_notation
    of_weights = {
        c.lower()
        for x, letters in zip(node.inputs, notation.inputs, strict=True)
        if x in weights
        for c in letters
    } - {"."}
    letters = [letter.lower() for letter in notation.output]
    own = [c for c in letters if c in of_weights and c not in _letters_of_data(node, weights)]
    shared = [c for c in letters if c in of_weights and by_letter.get(c) == CHANNEL]
    channel = next(iter([*own, *shared]), None)
    return [
        CHANNEL if letter == channel else None if role == CHANNEL else role
        for letter, role in zip(letters, result_roles, strict=True)
    ]


def _letters_of_data(node: Node, weights: Collection[Node]) -> set[str]:
    pairs = zip(node.inputs, node.index_notation.inputs, strict=True)
    return {c.lower() for x, letters in pairs if x not in weights for c in letters}


def input_roles(network_input: Node, nodes: Iterable[Node]) -> Roles:
    """Return the roles of an input: samples, then channels and space; of three dimensions, steps
    and features, unless a window passes over the last one, as in a convolution of signals.

    `nodes` are those of the network, in topological order.
    """
    if network_input.ndim == 3 and not _has_signals(network_input, nodes):
        return (BATCH, SPACE, CHANNEL)
    return (BATCH, CHANNEL, SPACE, *[None] * network_input.ndim)[: network_input.ndim]


def _has_signals(network_input: Node, nodes: Iterable[Node]) -> bool:
    """Return True if a window passes over the last dimension of an input, or of a value that is
    computed from it element by element."""
    same = {network_input}
    for node in nodes:
        if not any(x in same for x in node.inputs):
            continue
        if node.operation.is_elementwise and node.shape == network_input.shape:
            same.add(node)
        elif "stride" in node.attributes:
            pairs = zip(node.index_notation.inputs, node.inputs, strict=True)
            if any(x in same and letters[-1].isupper() for letters, x in pairs):
                return True
    return False

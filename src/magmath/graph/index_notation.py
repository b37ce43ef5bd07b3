"""Index notation: parsed strings such as `"mk,kn->mn"`, and the parts that deterministic mode
uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from magmath.graph.node import Node
from magmath.layout import Layout

LOGICAL_PARTS = 24  # divisible by 1, 2, 3, 4, 6, 8: equal shares for the usual worker counts


@dataclass(frozen=True)
class IndexNotation:
    """A parsed index notation: the letters of every operand and of the result."""

    inputs: tuple[str, ...]
    output: str

    @cached_property
    def letters(self) -> str:
        """The letters whose splits divide the result, in the order of its dimensions: its own
        letters, and those that its dimensions follow."""
        return self.output.replace(".", "").lower()

    def is_followed(self, letter: str) -> bool:
        """Return True if some dimension follows this letter."""
        return letter.upper() in self._followers

    @cached_property
    def _followers(self) -> frozenset[str]:
        return frozenset("".join((*self.inputs, self.output)))

    def extents(self, node: Node) -> dict[str, int]:
        """Return the extent of every letter."""
        found: dict[str, int] = {}
        shapes = [(letters, x.shape) for letters, x in zip(self.inputs, node.inputs, strict=True)]
        for letters, shape in (*shapes, (self.output, node.shape)):
            found.update(zip(letters, shape, strict=True))
        found.pop(".", None)
        return found


def index_notation_of(node: Node) -> IndexNotation:
    """Return the index notation of a node's operation on its operands."""
    form = node.signature
    if form is None:
        return _parsed(node)
    if form.index_notation is None:
        form.index_notation = _parsed(node)
    return form.index_notation


def _parsed(node: Node) -> IndexNotation:
    left, output = node.operation.axes(node).split("->")
    return IndexNotation(tuple(left.split(",")) if node.inputs else (), output)


def is_distributed(node: Node, inputs: Sequence[Layout], output: Layout) -> bool:
    """Return True if all workers compute a node in these layouts collectively.

    This is so if the layouts divide dimensions that the index notation keeps whole, or several
    letters along one axis.
    """
    if node.operation.distributed is None:
        return False
    structure = index_notation_of(node)
    divided: dict[int, set[str]] = {}
    for letters, layout in zip(
        (*structure.inputs, structure.output), (*inputs, output), strict=True
    ):
        for letter, split in zip(letters, layout.splits, strict=True):
            if split is not None and layout.mesh.shape[split.axis] > 1:
                divided.setdefault(split.axis, set()).add(letter.lower())
    return any("." in letters or len(letters) > 1 for letters in divided.values())


def logical_letter(structure: IndexNotation, node: Node) -> str | None:
    """Return the first letter of the result that deterministic mode can compute in parts, or
    None."""
    for letter, extent in zip(structure.output, node.shape, strict=True):
        if letter.islower() and extent > 1 and not structure.is_followed(letter):
            return letter
    return None

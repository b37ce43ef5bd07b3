"""Index structures: `"mk,kn->mn"` taken apart, and the parts that deterministic mode uses."""

from __future__ import annotations

from dataclasses import dataclass

from magmath.graph.node import Node

LOGICAL_PARTS = 24  # divisible by 1, 2, 3, 4, 6, 8: equal shares for the usual worker counts


@dataclass(frozen=True)
class Structure:
    """A parsed index structure: the letters of every operand and of the result."""

    inputs: tuple[str, ...]
    output: str

    def extents(self, node: Node) -> dict[str, int]:
        """The extent of every letter."""
        found: dict[str, int] = {}
        shapes = [(letters, x.shape) for letters, x in zip(self.inputs, node.inputs, strict=True)]
        for letters, shape in (*shapes, (self.output, node.shape)):
            found.update(zip(letters, shape, strict=True))
        found.pop(".", None)
        return found


def structure_of(node: Node) -> Structure:
    """The index structure of a node's operation on its operands."""
    left, output = node.operation.axes(node).split("->")
    return Structure(tuple(left.split(",")) if node.inputs else (), output)


def logical_letter(structure: Structure, node: Node) -> str | None:
    """The letter of the result that deterministic mode computes in parts: the first it can."""
    for letter, extent in zip(structure.output, node.shape, strict=True):
        if letter != "." and extent > 1:
            return letter
    return None

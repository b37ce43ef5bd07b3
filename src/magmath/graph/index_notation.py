"""Index notation: parsed strings such as `"mk,kn->mn"`, and the parts that deterministic mode
uses.

Each operand and the result has a character for each dimension, as in `einsum`. A lower-case letter
names an index by which the operation may be divided over workers: dimensions with the same letter
are split equally, and a letter that the result lacks is combined by the operation's `reduction`.
The upper-case form of a letter is a dimension that follows the letter without being indexed by it:
the operation's `derived_split` gives its split for a split of the letter. `.` is a dimension that
every worker needs whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

from magmath.core.shapes import Shape

LOGICAL_PARTS = 24  # divisible by 1, 2, 3, 4, 6, 8: equal shares for the usual worker counts


@final
@dataclass(frozen=True)
class IndexNotation:
    """A parsed index notation: the letters of every operand and of the result."""

    inputs: tuple[str, ...]
    output: str

    @staticmethod
    def parse(notation: str, operands: int) -> IndexNotation:
        """Return the parsed form of a notation for this number of operands."""
        inputs, output = notation.split("->")
        return IndexNotation(tuple(inputs.split(",")) if operands else (), output)

    @cached_property
    def result_letters(self) -> str:
        """The letters whose splits divide the result, in the order of its dimensions: its own
        letters, and those that its dimensions follow."""
        return self.output.replace(".", "").lower()

    def is_followed(self, letter: str) -> bool:
        """Return True if some dimension follows this letter."""
        return letter.upper() in self._followers

    @cached_property
    def _followers(self) -> frozenset[str]:
        return frozenset("".join((*self.inputs, self.output)))

    def extents(self, inputs: Sequence[Shape], output: Shape) -> dict[str, int]:
        """Return the extent of every letter for operands and a result of these shapes."""
        extents: dict[str, int] = {}
        for letters, shape in zip((*self.inputs, self.output), (*inputs, output), strict=True):
            extents.update(zip(letters, shape, strict=True))
        extents.pop(".", None)
        return extents

    def logical_letter(self, output: Shape) -> str | None:
        """Return the first letter of the result that deterministic mode can compute in parts, or
        None."""
        for letter, extent in zip(self.output, output, strict=True):
            if letter.islower() and extent > 1 and not self.is_followed(letter):
                return letter
        return None

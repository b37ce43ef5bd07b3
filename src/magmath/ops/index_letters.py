"""Letters of index notation (`graph/index_notation.py`), from which records build their `axes`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from string import ascii_letters

from magmath.graph import Node, Shape

LETTERS = "abcdefghijklmnopqrstuvwxyzαβγδεζηθικλμνξοπρτυφχψω"
"""One letter for each dimension. The upper-case form stands for a derived split."""


_ASCII = str.maketrans(dict(zip(LETTERS, ascii_letters, strict=False)))


def einsum_text(subscripts: str) -> str:
    """Return subscripts in the letters that NumPy's `einsum` takes."""
    return subscripts.translate(_ASCII)


def whole_letters(ndim: int) -> str:
    """Return the letters of an operand of `ndim` dimensions that every worker needs whole."""
    return "." * ndim


def letters_except(ndim: int, axes: Sequence[int]) -> str:
    """Return a letter for each dimension, and `.` for the dimensions in `axes`."""
    return "".join("." if d in axes else LETTERS[d] for d in range(ndim))


def with_changed_letter(letters: str, axis: int, change: Callable[[str], str]) -> str:
    """Return an operand's letters with the letter of one axis changed."""
    return letters[:axis] + change(letters[axis]) + letters[axis + 1 :]


def aligned_letters(letters: str, shape: Shape, operand: Shape) -> str:
    """Return the letters of an operand that broadcasts to `shape`: `.` for stretched dimensions.

    `letters` are the letters of the dimensions of `shape`.
    """
    offset = len(shape) - len(operand)
    return "".join(
        letters[offset + d] if extent == shape[offset + d] else "."
        for d, extent in enumerate(operand)
    )


def pointwise_axes(node: Node) -> str:
    """Return index notation aligned from the right, with `.` for broadcast dimensions."""
    letters = LETTERS[: node.ndim]
    operands = [aligned_letters(letters, node.shape, x.shape) for x in node.inputs]
    return f"{','.join(operands)}->{letters}"


def one_axis_whole(node: Node) -> str:
    """Return index notation of an operand and a result that both have the axis `axis` whole."""
    letters = letters_except(node.ndim, (node.attributes["axis"],))
    return f"{letters}->{letters}"

"""`einsum`: parses and checks subscripts, then contracts two operands at a time.

The order of the contractions is NumPy's (`numpy.einsum_path`, greedy, as in opt_einsum: Smith and
Gray, 2018). Each is one `contraction`, distributed over workers by its letters like any product.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from string import ascii_lowercase, ascii_uppercase
from typing import Any, final

import numpy as np

from magmath.api.creation import asarray
from magmath.arrays.array import Array, rearranged
from magmath.arrays.inputs.number_list import is_number
from magmath.arrays.inputs.operands import promoted_nodes as common_operands
from magmath.arrays.protocols.cached_functions import dispatch_cached
from magmath.arrays.ufuncs.output import stored
from magmath.arrays.views import Diagonal, Permuted
from magmath.engine.user_line import user_line
from magmath.errors import ShapeError
from magmath.graph import Node, Shape
from magmath.ops import elementwise as e
from magmath.ops.creation import iota
from magmath.ops.index_letters import LETTERS, einsum_text
from magmath.ops.leaves import constant
from magmath.ops.manipulation import permute, reshape
from magmath.ops.product.contraction import contraction
from magmath.ops.sums import sum_

_NUMBERED = ascii_uppercase + ascii_lowercase
"""The letters of the numbers in lists of subscripts, in alphabetical order."""


@final
@dataclass(frozen=True)
class _Term:
    """An operand and the letters of its dimensions, which are all different."""

    node: Node
    letters: str


@dispatch_cached
def einsum(subscripts: Any, /, *operands: Any, out: Any = None, optimize: Any = True) -> Array:
    """Return the sum of products that `subscripts` define, in Einstein's notation, as NumPy's
    einsum.

    `"ij,jk->ik"` names each dimension of the operands and of the result; letters that the result
    lacks are summed over. Without `->` the result has, in alphabetical order, the letters that
    occur once. A letter twice in an operand takes its diagonal, `...` denotes any number of
    dimensions, which broadcast, and a dimension of length 1 stretches. Operands are converted to
    their common type. The order of the products is always planned; `optimize` has no effect. Raises
    ShapeError if subscripts and operands do not fit.

    NumPy's other form has lists of numbers, and `...`, in place of letters, each behind its
    operand, and that of the result last: `mm.einsum(x, [0, 1], y, [1, 2])`.

    Of a single operand with all of its letters in the result, as in `"ii->i"` and `"ij->ji"`, the
    result is a view, which can be written.
    """
    if not isinstance(subscripts, str):
        subscripts, operands = _in_letters([subscripts, *operands])
    return stored("einsum", _einsum(subscripts, *operands), out)


def _in_letters(arguments: list[Any]) -> tuple[str, tuple[Any, ...]]:
    """Return subscripts and operands of a call with lists of numbers."""
    classes = ", ".join([type(x).__name__ for x in arguments])
    result = arguments.pop() if len(arguments) % 2 else None
    lists = [*arguments[1::2], *([] if result is None else [result])]
    for numbers in lists:
        if not isinstance(numbers, (list, tuple)) or not all(map(_is_subscript, numbers)):
            raise TypeError(
                f'einsum: the subscripts come first, as a text such as "ij,jk->ik", or as a list '
                f"of numbers from 0 to {len(_NUMBERED) - 1} behind each operand, was given "
                f"{classes}"
            )
    parts = ["".join(["..." if n is ... else _NUMBERED[n] for n in x]) for x in lists]
    count = len(arguments) // 2
    subscripts = ",".join(parts[:count]) + "".join([f"->{x}" for x in parts[count:]])
    return subscripts, tuple(arguments[::2])


def _is_subscript(number: Any) -> bool:
    return number is ... or (isinstance(number, int) and 0 <= number < len(_NUMBERED))


def _einsum(subscripts: str, *operands: Any) -> Array:
    if not operands:
        raise ShapeError(
            "einsum: needs at least one operand"
            '; pass it after the subscripts, as in mm.einsum("ii->i", x)'
        )
    if all(map(is_number, operands)):
        operands = tuple(map(asarray, operands))
    nodes = common_operands("einsum", *operands)
    inputs, output = _parsed(subscripts, tuple([x.shape for x in nodes]))
    if len(inputs) == 1 and set(inputs[0]) == set(output):
        (x,) = operands
        return _view(x if isinstance(x, Array) else Array(nodes[0]), inputs[0], output)
    line = user_line()
    terms = [_once(x, letters) for x, letters in zip(nodes, inputs, strict=True)]
    for chosen in _path(terms, output):
        step_terms = [terms.pop(i) for i in sorted(chosen, reverse=True)][::-1]
        while len(step_terms) > 1:
            a, b = step_terms.pop(0), step_terms.pop(0)
            needed = output + "".join(t.letters for t in (*step_terms, *terms))
            kept_letters = "".join(dict.fromkeys([c for c in a.letters + b.letters if c in needed]))
            last = not step_terms and not terms
            out = output if last else kept_letters
            step_terms.append(
                _Term(contraction(a.node, a.letters, b.node, b.letters, out, line), out)
            )
        terms += step_terms
    return Array(_result_of_term(terms[0], output))


def _view(x: Array, letters: str, output: str) -> Array:
    """Return the view of an operand that is indexed by all of its letters."""
    for c in [c for c, n in Counter(letters).items() for _ in range(n - 1)]:
        first, second = letters.index(c), letters.rindex(c)
        other_dims = [d for d in range(x.ndim) if d not in (first, second)]
        x = rearranged(rearranged(x, Permuted((*other_dims, first, second))), Diagonal(0, True))
        letters = "".join([letters[d] for d in other_dims]) + c
    return rearranged(x, Permuted(tuple([letters.index(c) for c in output])))


def _parsed(subscripts: str, shapes: tuple[Shape, ...]) -> tuple[list[str], str]:
    """Return the index letters (`LETTERS`) of each operand and of the result, with ellipses
    expanded."""
    text = subscripts.replace(" ", "")
    left, arrow, right = text.partition("->")
    parts = left.split(",")
    if len(parts) != len(shapes):
        raise ShapeError(
            f"einsum: {subscripts!r} is for {len(parts)} operands, not {len(shapes)}"
            "; write one group of letters for each operand, separated by commas"
        )
    unused_letters = [c for c in LETTERS if c not in text]
    widest = 0
    inputs = []
    for part, shape in zip(parts, shapes, strict=True):
        count = _ellipsis_length(part, shape, subscripts)
        widest = max(widest, count)
        inputs.append(part.replace("...", "".join(unused_letters[-count:] if count else "")))
    stretched = "".join(unused_letters[-widest:] if widest else "")
    if arrow:
        if stretched and "..." not in right:
            raise ShapeError(
                f"einsum: {subscripts!r}: the result needs '...' too, since it stands "
                f"for {widest} broadcast dimensions"
                "; write it among the letters after '->'"
            )
        output = right.replace("...", stretched)
    else:
        counts = Counter(left.replace(".", "").replace(",", ""))
        output = stretched + "".join(sorted([c for c, n in counts.items() if n == 1]))
    known = set("".join(inputs))
    if set(output) - known or len(set(output)) != len(output) or (not output.isalpha() and output):
        raise ShapeError(
            f"einsum: {subscripts!r}: the result needs letters of the operands, each once"
        )
    _check_lengths(subscripts, inputs, shapes)
    plain = str.maketrans(dict(zip(sorted(known), LETTERS, strict=False)))
    return [letters.translate(plain) for letters in inputs], output.translate(plain)


def _ellipsis_length(part: str, shape: Shape, subscripts: str) -> int:
    """Return the number of dimensions of an operand that the ellipsis stands for."""
    named = part.replace("...", "", 1)
    count = len(shape) - len(named)
    fits = count >= 0 if "..." in part else count == 0
    if not fits or (named and not (named.isascii() and named.isalpha())):
        raise ShapeError(
            f"einsum: {subscripts!r}: {part!r} does not name the dimensions of shape {shape}; "
            f"letters name one each, '...' the others"
        )
    return count


def _check_lengths(subscripts: str, inputs: Sequence[str], shapes: Sequence[Shape]) -> None:
    """Check that each letter stands for one length; between operands, 1 may stretch."""
    known: dict[str, int] = {}
    for letters, shape in zip(inputs, shapes, strict=True):
        extents = dict(zip(letters, shape, strict=True))
        for c, extent in zip(letters, shape, strict=True):
            before = known.setdefault(c, extent)
            if extents[c] != extent or (before != extent and 1 not in (before, extent)):
                raise ShapeError(
                    f"einsum: {subscripts!r}: {c!r} stands for lengths "
                    f"{extents[c] if extents[c] != extent else before} and {extent}"
                    "; give different lengths different letters"
                )
            known[c] = max(before, extent) if extent else 0


def _once(x: Node, letters: str) -> _Term:
    """Return the operand with different letters: the diagonal for a repeated letter."""
    for c in [c for c, n in Counter(letters).items() if n > 1]:
        while letters.count(c) > 1:
            first, second = letters.index(c), letters.rindex(c)
            x = _diagonal(x, first, second)
            letters = letters[:second] + letters[second + 1 :]
    return _Term(x, letters)


def _diagonal(x: Node, first: int, second: int) -> Node:
    """Return the elements whose indices along two dimensions are equal.

    Every worker selects its own ones, so nothing is gathered.
    """
    extent = x.shape[first]
    rows, columns = (
        reshape(iota((extent,), 0), tuple([extent if d == dim else 1 for d in range(x.ndim)]))
        for dim in (first, second)
    )
    picked = e.where(e.call("equal", rows, columns), x, constant(0, x.dtype))
    return e.astype(sum_(picked, second), x.dtype)


def _path(terms: Sequence[_Term], output: str) -> Sequence[tuple[int, ...]]:
    return _greedy_path(tuple([(t.letters, t.node.shape) for t in terms]), output)


@lru_cache(maxsize=4096)
def _greedy_path(
    operands: tuple[tuple[str, Shape], ...], output: str
) -> tuple[tuple[int, ...], ...]:
    """Return the operands to contract in each step, whose result is appended to the others."""
    if len(operands) < 3:
        return (tuple(range(len(operands))),)
    subscripts = ",".join([letters for letters, _ in operands]) + "->" + output
    dummies = [np.broadcast_to(np.float32(0), shape) for _, shape in operands]
    path, _ = np.einsum_path(einsum_text(subscripts), *dummies, optimize="greedy")
    return tuple(path[1:])


def _result_of_term(term: _Term, output: str) -> Node:
    """Return the last term, summed over the remaining letters and in the order of the result."""
    summed_axes = tuple([d for d, c in enumerate(term.letters) if c not in output])
    x = e.astype(sum_(term.node, summed_axes), term.node.dtype) if summed_axes else term.node
    letters = [c for c in term.letters if c in output]
    return permute(x, tuple([letters.index(c) for c in output]))

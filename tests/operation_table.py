"""The operation table: one row for each operation, saying how it is tried.

A row draws operands and attributes for an element type, names the element types that the operation
takes, and the operands by which it has a gradient. Everything that must hold of every operation
(`operation_bodies.py`) is tested from these rows, so a new operation needs one row here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from magmath.core.dtypes import DTYPES, DType
from magmath.memory.tensors import to_torch

Shape = tuple[int, ...]

BOOL = ("bool",)
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
INTEGERS = (*SIGNED, *UNSIGNED)
REAL_FLOATS = ("float16", "bfloat16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
FLOATS = (*REAL_FLOATS, *COMPLEX)
REAL = (*INTEGERS, *REAL_FLOATS)
NUMERIC = (*REAL, *COMPLEX)
ANY = (*BOOL, *NUMERIC)

# The numbers that an operand is drawn from: low and high, and whether 0 is left out.
DOMAINS: dict[str, tuple[float, float, bool]] = {
    "any": (-4, 4, False),
    "nonzero": (-4, 4, True),
    "positive": (0.5, 4, True),
    "unit": (-0.875, 0.875, False),
    "above one": (1.125, 4, True),
    "factor": (-1.25, 1.25, True),
    "exponent": (0, 3, False),
    "count": (-2, 2, False),  # sums and products of these are exact in every type
}
EXACT = ("count",)
HALVES = (torch.float16, torch.bfloat16)


@dataclass(frozen=True)
class Case:
    """An operation's operands, as whole tensors, and its attributes."""

    operands: tuple[torch.Tensor, ...]
    attributes: Mapping[str, Any]

    def __repr__(self) -> str:
        operands = ", ".join(f"{list(x.shape)}:{x.dtype}" for x in self.operands)
        return f"Case({operands}; {dict(self.attributes)})"


@dataclass(frozen=True)
class Dice:
    """What rows draw with: hypothesis for structure, a seeded generator for the numbers.

    With `smooth`, numbers are float64 and stay away from each other, from 0 and from integers, so
    that nothing jumps within a finite difference.
    """

    draw: st.DrawFn
    dtype: DType
    random: np.random.Generator
    smooth: bool = False
    made: Iterator[int] = field(default_factory=count)  # numbers the smooth operands

    def shape(self, least: int = 0, most: int = 3, extents: tuple[int, int] = (0, 6)) -> Shape:
        """A random shape of `least` to `most` dimensions."""
        low, high = (1, 3) if self.smooth else extents
        return tuple(self.draw(st.lists(st.integers(low, high), min_size=least, max_size=most)))

    def numbers(self, shape: Shape, domain: str = "any") -> torch.Tensor:
        """Numbers of the case's type from a domain."""
        if self.smooth:
            return torch.from_numpy(np.asarray(self._lattice(shape, domain)))
        if self.dtype.kind == "complex" and domain not in EXACT:
            values = self._real(shape, domain) + 1j * self._real(shape, "nonzero")
        else:
            values = self._real(shape, domain)
        return torch.from_numpy(np.asarray(values)).to(to_torch(self.dtype))

    def _real(self, shape: Shape, domain: str) -> Any:
        low, high, nonzero = DOMAINS[domain]
        if self.dtype.kind == "bool":
            return np.asarray(self.random.integers(0, 2, shape) > 0)
        whole = self.dtype.is_integer or domain in EXACT
        if self.dtype.kind == "uint":
            low = max(low, 0)
        scale = 1 if whole else 8
        values = self.random.integers(int(np.ceil(low * scale)), int(high * scale) + 1, shape)
        if nonzero:
            values = np.where(values == 0, scale, values)
        return np.asarray(values) if whole else np.asarray(values / scale, dtype=np.float64)

    def _lattice(self, shape: Shape, domain: str) -> Any:
        low, high, nonzero = DOMAINS[domain]
        low, high = max(low, -2.0), min(high, 2.0)
        points = np.arange(int(np.ceil(low * 100)), int(high * 100))
        if nonzero:
            points = points[np.abs(points) >= 30]
        size = int(np.prod(shape, dtype=np.int64))
        offset = 0.0023 * (next(self.made) % 4) + 0.00037
        return self.random.choice(points, size, replace=False).reshape(shape) * 0.01 + offset

    def positions(self, extent: int, count: int, dtype: torch.dtype = torch.int64) -> torch.Tensor:
        """`count` positions along an axis of this extent."""
        return torch.from_numpy(self.random.integers(0, max(extent, 1), count)).to(dtype)

    def stretched(self, shape: Shape) -> Shape:
        """A shape that broadcasts to `shape`."""
        start = self.draw(st.integers(0, len(shape)))
        return tuple(1 if self.draw(st.integers(0, 3)) == 0 else n for n in shape[start:])

    def axes(self, ndim: int) -> tuple[int, ...]:
        """Any of the axes, in order."""
        if not ndim:
            return ()
        return tuple(sorted(self.draw(st.sets(st.integers(0, ndim - 1)))))

    def bounds(self, shape: Shape) -> tuple[tuple[int, int, int], ...]:
        """A slice of each dimension, in full half of the time."""
        return tuple(self._bound(extent) for extent in shape)

    def _bound(self, extent: int) -> tuple[int, int, int]:
        if self.draw(st.booleans()):
            return 0, extent, 1
        ends = st.none() | st.integers(-extent - 1, extent + 1)
        steps = st.sampled_from([1, 1, 2, 3, -1, -2])
        return slice(self.draw(ends), self.draw(ends), self.draw(steps)).indices(extent)


Draw = Callable[[Dice], Case]


@dataclass(frozen=True, repr=False)
class Row:
    """How one operation is tried: cases, element types, and the operands with a gradient."""

    draw: Draw
    dtypes: tuple[str, ...]
    slopes: tuple[int, ...] = ()


# How cases are drawn ------------------------------------------------------------------------------


def _pointwise(*domains: str) -> Draw:
    def draw(dice: Dice) -> Case:
        shape = dice.shape()
        shapes = [dice.stretched(shape) for _ in domains] if len(domains) > 1 else [shape]
        operands = [dice.numbers(s, domain) for s, domain in zip(shapes, domains, strict=True)]
        return Case(tuple(operands), {})

    return draw


def _where(dice: Dice) -> Case:
    shape = dice.shape()
    condition = torch.from_numpy(np.asarray(dice.random.integers(0, 2, dice.stretched(shape)) > 0))
    operands = (dice.numbers(dice.stretched(shape)), dice.numbers(dice.stretched(shape)))
    return Case((condition, *operands), {})


def _astype(dice: Dice) -> Case:
    targets = ["float64"] if dice.smooth else list(DTYPES)
    if dice.dtype.kind == "complex":
        targets = ["bool", *COMPLEX]
    dtype = DTYPES[dice.draw(st.sampled_from(targets))]
    return Case((dice.numbers(dice.shape(), "exponent"),), {"dtype": dtype})


def _reduction(domain: str, *, empty: bool = True, extents: tuple[int, int] = (0, 6)) -> Draw:
    def draw(dice: Dice) -> Case:
        low, high = extents
        shape = dice.shape(extents=(low if empty else max(low, 1), high))
        attributes = {"axis": dice.axes(len(shape)), "keepdims": dice.draw(st.booleans())}
        return Case((dice.numbers(shape, domain),), attributes)

    return draw


def _position_of(dice: Dice) -> Case:
    shape = dice.shape(1, extents=(1, 6))
    axis = dice.draw(st.integers(0, len(shape) - 1))
    attributes = {"axis": axis, "keepdims": dice.draw(st.booleans())}
    return Case((dice.numbers(shape),), attributes)


def _running(dice: Dice) -> Case:
    shape = dice.shape(1)
    axis = dice.draw(st.integers(0, len(shape) - 1))
    return Case((dice.numbers(shape, "count"),), {"axis": axis})


def _reshape(dice: Dice) -> Case:
    """Some dimensions joined, then some parted, as far as the extents have divisors."""
    shape = dice.shape()
    new = list(shape)
    if len(new) > 1 and dice.draw(st.booleans()):
        place = dice.draw(st.integers(0, len(new) - 2))
        new[place : place + 2] = [new[place] * new[place + 1]]
    if new and dice.draw(st.booleans()):
        place = dice.draw(st.integers(0, len(new) - 1))
        extent = new[place]
        part = dice.draw(st.sampled_from([n for n in (1, 2, 3, 5) if extent % n == 0]))
        new[place : place + 1] = [part, extent // part]
    return Case((dice.numbers(shape),), {"shape": tuple(new)})


def _permute(dice: Dice) -> Case:
    shape = dice.shape()
    axes = tuple(dice.draw(st.permutations(range(len(shape)))))
    return Case((dice.numbers(shape),), {"axes": axes})


def _broadcast(dice: Dice) -> Case:
    shape = dice.shape()
    return Case((dice.numbers(dice.stretched(shape)),), {"shape": shape})


def _concat(dice: Dice) -> Case:
    shape = dice.shape(1)
    axis = dice.draw(st.integers(0, len(shape) - 1))
    extents = dice.draw(st.lists(st.integers(0, 3), min_size=1, max_size=3))
    parts = [dice.numbers((*shape[:axis], n, *shape[axis + 1 :])) for n in extents]
    return Case(tuple(parts), {"axis": axis})


def _slice(dice: Dice) -> Case:
    shape = dice.shape()
    return Case((dice.numbers(shape),), {"bounds": dice.bounds(shape)})


def _unslice(dice: Dice) -> Case:
    shape = dice.shape()
    bounds = dice.bounds(shape)
    part = tuple(len(range(*bound)) for bound in bounds)
    return Case((dice.numbers(part),), {"bounds": bounds, "shape": shape})


INDEX_TYPES = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)


def _take(dice: Dice) -> Case:
    shape = dice.shape(1, extents=(1, 6))
    axis = dice.draw(st.integers(0, len(shape) - 1))
    index_type = dice.draw(st.sampled_from(INDEX_TYPES))
    positions = dice.positions(shape[axis], dice.draw(st.integers(0, 6)), index_type)
    return Case((dice.numbers(shape), positions), {"axis": axis})


def _scatter_add(dice: Dice) -> Case:
    shape = dice.shape(1)
    axis = dice.draw(st.integers(0, len(shape) - 1))
    extent = dice.draw(st.integers(1, 6))
    index_type = dice.draw(st.sampled_from(INDEX_TYPES))
    positions = dice.positions(extent, shape[axis], index_type)
    return Case((dice.numbers(shape, "count"), positions), {"axis": axis, "extent": extent})


def _batch(dice: Dice) -> Case:
    whole = dice.draw(st.integers(1, 9))
    extent = dice.draw(st.integers(0, whole))
    position = torch.tensor(dice.draw(st.integers(0, whole - extent)))
    return Case((dice.numbers((whole,)), position), {"extent": extent})


def _matmul(dice: Dice) -> Case:
    batch = dice.shape(0, 2, (0, 3))
    m, k, n = (dice.draw(st.integers(1 if dice.smooth else 0, 6)) for _ in range(3))
    left, right = dice.stretched(batch), dice.stretched(batch)
    a = dice.numbers((*left, m, k), "count")
    b = dice.numbers((*right, k, n), "count")
    return Case((a, b), {})


def _gemm(dice: Dice) -> Case:
    m, k, n = (dice.draw(st.integers(0, 6)) for _ in range(3))
    flip_a, flip_b = dice.draw(st.booleans()), dice.draw(st.booleans())
    operands = [
        dice.numbers((k, m) if flip_a else (m, k), "count"),
        dice.numbers((n, k) if flip_b else (k, n), "count"),
    ]
    forms = ["plain", "bias", "accumulate", "relu", "both"]
    form = dice.draw(st.sampled_from(forms[:3] if dice.dtype.kind == "complex" else forms))
    if form in ("bias", "both"):
        operands.append(dice.numbers((n,), "count"))
    if form == "accumulate":
        operands += [dice.numbers((m, n), "count"), dice.numbers((), "count")]
    attributes = {
        "transpose_a": flip_a,
        "transpose_b": flip_b,
        "bias": form in ("bias", "both"),
        "activation": "relu" if form in ("relu", "both") else "none",
        "accumulate": form == "accumulate",
    }
    return Case(tuple(operands), attributes)


def _full(dice: Dice) -> Case:
    return Case((dice.numbers(()),), {"shape": dice.shape(), "dtype": dice.dtype})


def _iota(dice: Dice) -> Case:
    shape = dice.shape(1)
    axis = dice.draw(st.integers(0, len(shape) - 1))
    return Case((), {"shape": shape, "dtype": dice.dtype, "axis": axis})


def _random(dice: Dice) -> Case:
    seed, stream = (torch.tensor(int(n)) for n in dice.random.integers(0, 1 << 40, 2))
    return Case((seed, stream), {"shape": dice.shape(), "dtype": dice.dtype})


def _permutation(dice: Dice) -> Case:
    seed, stream = (torch.tensor(int(n)) for n in dice.random.integers(0, 1 << 40, 2))
    return Case((seed, stream), {"shape": dice.shape(1, 1), "dtype": dice.dtype})


# The table ----------------------------------------------------------------------------------------


def _unary(dtypes: tuple[str, ...], domain: str = "any", slope: bool = True) -> Row:
    return Row(_pointwise(domain), dtypes, (0,) if slope else ())


def _binary(
    dtypes: tuple[str, ...],
    domains: tuple[str, str] = ("any", "any"),
    slopes: tuple[int, ...] = (0, 1),
) -> Row:
    return Row(_pointwise(*domains), dtypes, slopes)


ROWS: dict[str, Row] = {
    "negative": _unary(NUMERIC),
    "abs": _unary(NUMERIC),
    "sign": _unary(NUMERIC, slope=False),
    "square": _unary(NUMERIC),
    "reciprocal": _unary(FLOATS, "nonzero"),
    "sqrt": _unary(FLOATS, "positive"),
    "exp": _unary(FLOATS),
    "expm1": _unary(FLOATS),
    "log": _unary(FLOATS, "positive"),
    "log1p": _unary(FLOATS, "positive"),
    "log2": _unary(FLOATS, "positive"),
    "log10": _unary(FLOATS, "positive"),
    "sin": _unary(FLOATS),
    "cos": _unary(FLOATS),
    "tan": _unary(FLOATS, "unit"),
    "asin": _unary(FLOATS, "unit"),
    "acos": _unary(FLOATS, "unit"),
    "atan": _unary(FLOATS),
    "sinh": _unary(FLOATS),
    "cosh": _unary(FLOATS),
    "tanh": _unary(FLOATS),
    "asinh": _unary(FLOATS),
    "acosh": _unary(FLOATS, "above one"),
    "atanh": _unary(FLOATS, "unit"),
    "floor": _unary(REAL, slope=False),
    "ceil": _unary(REAL, slope=False),
    "round": _unary(REAL, slope=False),
    "trunc": _unary(REAL, slope=False),
    "isnan": _unary(NUMERIC, slope=False),
    "isinf": _unary(NUMERIC, slope=False),
    "isfinite": _unary(NUMERIC, slope=False),
    "logical_not": _unary(BOOL, slope=False),
    "bitwise_invert": _unary((*BOOL, *INTEGERS), slope=False),
    "add": _binary(NUMERIC),
    "subtract": _binary(NUMERIC),
    "multiply": _binary(NUMERIC),
    "divide": _binary(FLOATS, ("any", "nonzero")),
    "floor_divide": _binary(REAL, ("any", "nonzero"), ()),
    "remainder": _binary(REAL, ("any", "nonzero")),
    "power": _binary(NUMERIC, ("positive", "exponent")),
    "maximum": _binary(REAL),
    "minimum": _binary(REAL),
    "atan2": _binary(REAL_FLOATS),
    "hypot": _binary(REAL_FLOATS, ("nonzero", "nonzero")),
    "logaddexp": _binary(REAL_FLOATS),
    "copysign": _binary(REAL_FLOATS, slopes=(0,)),
    "equal": _binary(ANY, ("count", "count"), ()),
    "not_equal": _binary(ANY, ("count", "count"), ()),
    "less": _binary((*BOOL, *REAL), ("count", "count"), ()),
    "less_equal": _binary((*BOOL, *REAL), ("count", "count"), ()),
    "greater": _binary((*BOOL, *REAL), ("count", "count"), ()),
    "greater_equal": _binary((*BOOL, *REAL), ("count", "count"), ()),
    "logical_and": _binary(BOOL, slopes=()),
    "logical_or": _binary(BOOL, slopes=()),
    "logical_xor": _binary(BOOL, slopes=()),
    "bitwise_and": _binary((*BOOL, *INTEGERS), slopes=()),
    "bitwise_or": _binary((*BOOL, *INTEGERS), slopes=()),
    "bitwise_xor": _binary((*BOOL, *INTEGERS), slopes=()),
    "bitwise_left_shift": _binary(INTEGERS, ("any", "exponent"), ()),
    "bitwise_right_shift": _binary(INTEGERS, ("any", "exponent"), ()),
    "where": Row(_where, ANY, (1, 2)),
    "astype": Row(_astype, ANY, (0,)),
    "stop_gradient": _unary(ANY, slope=False),
    "sum": Row(_reduction("count"), NUMERIC, (0,)),
    "prod": Row(_reduction("factor", extents=(0, 3)), NUMERIC, (0,)),
    "max": Row(_reduction("any", empty=False), REAL, (0,)),
    "min": Row(_reduction("any", empty=False), REAL, (0,)),
    "any": Row(_reduction("any"), BOOL),
    "all": Row(_reduction("any"), BOOL),
    "argmax": Row(_position_of, REAL),
    "argmin": Row(_position_of, REAL),
    "cumulative_sum": Row(_running, NUMERIC, (0,)),
    "reshape": Row(_reshape, ANY, (0,)),
    "permute_dims": Row(_permute, ANY, (0,)),
    "broadcast_to": Row(_broadcast, ANY, (0,)),
    "concat": Row(_concat, ANY, (0,)),
    "slice": Row(_slice, ANY, (0,)),
    "unslice": Row(_unslice, ANY, (0,)),
    "take": Row(_take, ANY, (0,)),
    "scatter_add": Row(_scatter_add, NUMERIC, (0,)),
    "batch": Row(_batch, ANY),
    "matmul": Row(_matmul, NUMERIC, (0, 1)),
    "full": Row(_full, ANY, (0,)),
    "iota": Row(_iota, REAL),
    "random_uniform": Row(_random, REAL_FLOATS),
    "random_normal": Row(_random, REAL_FLOATS),
    "random_bits": Row(_random, ("int64",)),
    "random_permutation": Row(_permutation, ("int64",)),
}

# Made by the passes, not by users: tried like the rest, but it has no gradient.
FOLDED = {"gemm": Row(_gemm, NUMERIC)}


@st.composite
def cases(draw: st.DrawFn, row: Row, dtype: str | None = None, smooth: bool = False) -> Case:
    """A case of a row, for one of its element types."""
    name = dtype or draw(st.sampled_from(row.dtypes))
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    element = DTYPES["float64" if smooth else name]
    return row.draw(Dice(draw, element, random, smooth))

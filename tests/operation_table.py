"""The operation table: one row for each operation, saying how it is tried.

A row draws operands and attributes for an element type, names the element types that the operation
takes, and the operands by which it has a gradient. Everything that must hold of every operation
(`operation_bodies.py`) is tested from these rows, so a new operation needs one row here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import count, pairwise
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from magmath.core.dtypes import DTYPES, DType
from magmath.memory.tensors import to_torch
from magmath.ops import OPERATIONS, scans
from magmath.ops.windows import window_shape

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
LAPACK = ("float32", "float64", *COMPLEX)

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
        """A slice of each dimension."""
        return tuple(self.bound(extent) for extent in shape)

    def bound(self, extent: int) -> tuple[int, int, int]:
        """A slice, in full half of the time."""
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


def _running(domain: str) -> Draw:
    def draw(dice: Dice) -> Case:
        shape = dice.shape(1)
        axis = dice.draw(st.integers(0, len(shape) - 1))
        return Case((dice.numbers(shape, domain),), {"axis": axis})

    return draw


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


def _set_slice(dice: Dice) -> Case:
    shape = dice.shape()
    bounds = dice.bounds(shape)
    part = tuple(len(range(*bound)) for bound in bounds)
    return Case((dice.numbers(shape), dice.numbers(dice.stretched(part))), {"bounds": bounds})


def _windows(dice: Dice, shape: Shape) -> tuple[list[torch.Tensor], dict[str, Any]]:
    """First positions of a window of some dimensions, and its attributes."""
    axes = tuple(d for d in dice.axes(len(shape)) if shape[d])
    starts, extents, steps = [], [], []
    for axis in axes:
        first, last, step = dice.bound(shape[axis])
        count = len(range(first, last, step))
        single = count > 0 and dice.draw(st.booleans())
        starts.append(torch.tensor(first - shape[axis] * (single and dice.draw(st.booleans()))))
        extents.append(None if single else count)
        steps.append(1 if single else step)
    return starts, {"axes": axes, "extents": tuple(extents), "steps": tuple(steps)}


def _window(dice: Dice) -> Case:
    shape = dice.shape()
    starts, attributes = _windows(dice, shape)
    return Case((dice.numbers(shape), *starts), attributes)


def _set_window(dice: Dice) -> Case:
    shape = dice.shape()
    starts, attributes = _windows(dice, shape)
    part = window_shape(shape, attributes["axes"], attributes["extents"])
    values = dice.numbers(dice.stretched(part))
    return Case((dice.numbers(shape), values, *starts), attributes)


INDEX_TYPES = (
    torch.int8, torch.int16, torch.int32, torch.int64,
    torch.uint8, torch.uint16, torch.uint32, torch.uint64,
)  # fmt: skip


def _indices(dice: Dice, shape: Shape) -> tuple[list[torch.Tensor], dict[str, Any]]:
    """Index arrays for some axes, negative ones too, and where what they pick goes."""
    order = dice.draw(st.permutations(range(len(shape))))
    axes = tuple(order[: dice.draw(st.integers(1, min(3, len(shape))))])
    common = dice.shape(0, 2, (0, 4))
    indices = []
    for axis in axes:
        index_type = dice.draw(st.sampled_from(INDEX_TYPES))
        low = -shape[axis] if index_type.is_signed else 0
        values = dice.random.integers(low, shape[axis], dice.stretched(common))
        indices.append(torch.from_numpy(np.asarray(values)).to(index_type))
    return indices, {"axes": axes, "at": dice.draw(st.integers(0, len(shape) - len(axes)))}


def _picked(shape: Shape, indices: list[torch.Tensor], attributes: dict[str, Any]) -> Shape:
    common = np.broadcast_shapes(*(tuple(index.shape) for index in indices))
    rest = tuple(n for d, n in enumerate(shape) if d not in attributes["axes"])
    return (*rest[: attributes["at"]], *common, *rest[attributes["at"] :])


def _take(dice: Dice) -> Case:
    shape = dice.shape(1, extents=(1, 6))
    indices, attributes = _indices(dice, shape)
    return Case((dice.numbers(shape), *indices), attributes)


def _put(dice: Dice) -> Case:
    shape = dice.shape(1, extents=(1, 6))
    indices, attributes = _indices(dice, shape)
    values = dice.numbers(dice.stretched(_picked(shape, indices, attributes)))
    return Case((dice.numbers(shape), values, *indices), attributes)


def _scatter_add(dice: Dice) -> Case:
    shape = dice.shape(1, extents=(1, 6))
    indices, attributes = _indices(dice, shape)
    extents = tuple(shape[axis] for axis in attributes["axes"])
    x = dice.numbers(_picked(shape, indices, attributes), "count")
    return Case((x, *indices), {**attributes, "extents": extents})


def _mask(dice: Dice) -> tuple[Shape, torch.Tensor, dict[str, Any]]:
    """The shape of an array, a mask of some of its dimensions, and what is counted of it."""
    shape = dice.shape(1)
    axis = dice.draw(st.integers(0, len(shape) - 1))
    dims = dice.draw(st.integers(1, len(shape) - axis))
    mask = dice.random.random(shape[axis : axis + dims]) < dice.draw(st.sampled_from([0, 0.5, 1]))
    inner = dice.draw(st.lists(st.integers(0, shape[axis]), max_size=4))
    cuts = (0, *sorted(inner), shape[axis])
    counts = tuple(int(np.count_nonzero(mask[a:b])) for a, b in pairwise(cuts))
    return shape, torch.from_numpy(mask), {"axis": axis, "cuts": cuts, "counts": counts}


def _pieces(dice: Dice) -> tuple[Shape, dict[str, Any]]:
    """A shape, and pieces of one of its axes."""
    shape = dice.shape(1, extents=(1, 6))
    axis = dice.draw(st.integers(0, len(shape) - 1))
    inner = dice.draw(st.sets(st.integers(0, shape[axis]), max_size=4))
    return shape, {"axis": axis, "cuts": tuple(sorted({0, shape[axis], *inner}))}


def _piece_positions(dice: Dice) -> Case:
    shape, attributes = _pieces(dice)
    name = dice.draw(st.sampled_from(["argmax", "argmin"]))
    return Case((dice.numbers(shape),), {**attributes, "name": name})


def _piece_elements(dice: Dice) -> Case:
    shape, attributes = _pieces(dice)
    axis = attributes["axis"]
    ends = [dice.random.integers(a, b) for a, b in pairwise(attributes["cuts"])]
    places = torch.tensor(ends).reshape([-1 if d == axis else 1 for d in range(len(shape))])
    indices = places.expand(*shape[:axis], len(ends), *shape[axis + 1 :]).contiguous()
    return Case((dice.numbers(shape), indices), attributes)


def _piece_totals(dice: Dice) -> Case:
    shape, attributes = _pieces(dice)
    name = dice.draw(st.sampled_from(["sum", "prod"]))
    return Case((dice.numbers(shape, "count"),), {**attributes, "name": name})


def _piece_scan(dice: Dice) -> Case:
    (x,), attributes = (case := _piece_totals(dice)).operands, case.attributes
    axis, count = attributes["axis"], len(attributes["cuts"]) - 1
    wide = replace(dice, dtype=scans.wide(dice.dtype))
    totals = wide.numbers((*x.shape[:axis], count, *x.shape[axis + 1 :]), "count")
    return Case((x, totals), attributes)


def _count_pieces(dice: Dice) -> Case:
    _, mask, attributes = _mask(dice)
    return Case((mask.to(to_torch(dice.dtype)),), {"cuts": attributes["cuts"]})


def _compress(dice: Dice) -> Case:
    shape, mask, attributes = _mask(dice)
    return Case((dice.numbers(shape), mask), attributes)


def _expand(dice: Dice) -> Case:
    shape, mask, attributes = _mask(dice)
    axis, count = attributes["axis"], sum(attributes["counts"])
    x = dice.numbers((*shape[:axis], count, *shape[axis + mask.ndim :]))
    return Case((x, mask), attributes)


def _sort(dice: Dice) -> Case:
    shape = dice.shape(1)
    axis = dice.draw(st.integers(0, len(shape) - 1))
    return Case((dice.numbers(shape),), {"axis": axis, "descending": dice.draw(st.booleans())})


def _searchsorted(dice: Dice) -> Case:
    x = dice.numbers(dice.shape(1, 1))
    half = x.dtype == torch.bfloat16
    ordered = torch.sort(x)[0] if half else torch.from_numpy(np.sort(x.numpy()))
    side = dice.draw(st.sampled_from(["left", "right"]))
    return Case((ordered, dice.numbers(dice.shape())), {"side": side})


def _along(dice: Dice) -> tuple[Shape, torch.Tensor, int]:
    """The shape of an array, and indices along an axis of it."""
    shape = dice.shape(1, extents=(1, 6))
    axis = dice.draw(st.integers(0, len(shape) - 1))
    index_type = dice.draw(st.sampled_from(INDEX_TYPES))
    count = dice.draw(st.integers(0, 4))
    low = -shape[axis] if index_type.is_signed else 0
    values = dice.random.integers(low, shape[axis], (*shape[:axis], count, *shape[axis + 1 :]))
    return shape, torch.from_numpy(values).to(index_type), axis


def _take_along(dice: Dice) -> Case:
    shape, indices, axis = _along(dice)
    return Case((dice.numbers(shape), indices), {"axis": axis})


def _scatter_along(dice: Dice) -> Case:
    shape, indices, axis = _along(dice)
    x = dice.numbers(tuple(indices.shape), "count")
    return Case((x, indices), {"axis": axis, "extent": shape[axis]})


SUBSCRIPTS = ("ab,bc->ac", "abc,acd->abd", "abc,cdb->da", "ab,ab->", "ab,b->a", "a,ab->b",
              "ab,abc->c", "abc,bcd->dab", "bca,acd->dba")  # fmt: skip


def _contract(dice: Dice) -> Case:
    """A dimension in both operands and the result may be stretched in one."""
    subscripts = dice.draw(st.sampled_from(SUBSCRIPTS))
    operands, out = subscripts.split("->")
    a, b = operands.split(",")
    extents = {c: dice.draw(st.integers(1 if dice.smooth else 0, 6)) for c in {*a, *b}}
    shapes = [[extents[c] for c in letters] for letters in (a, b)]
    for d, c in enumerate(a):
        if c in b and c in out and dice.draw(st.integers(0, 2)) == 0:
            shapes[0][d] = 1
    pair = [dice.numbers(tuple(shape), "count") for shape in shapes]
    halves = ("float16", "bfloat16")
    widened = dice.dtype.name in halves and dice.draw(st.booleans())
    dtype = DTYPES["float32"] if widened else dice.dtype
    return Case(tuple(pair), {"subscripts": subscripts, "dtype": dtype})


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
        "dtype": dice.dtype,
    }
    return Case(tuple(operands), attributes)


def _norm(dice: Dice) -> dict[str, Any]:
    norm = dice.draw(st.sampled_from(["backward", "ortho", "forward"]))
    return {"inverse": dice.draw(st.booleans()), "norm": norm}


def _fft(dice: Dice) -> Case:
    shape = dice.shape(1, extents=(1, 7))
    axes = tuple(sorted(dice.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    return Case((dice.numbers(shape, "count"),), {"axes": axes, **_norm(dice)})


def _fft_twiddle(dice: Dice) -> Case:
    shape = dice.shape(2, extents=(1, 6))
    attributes = {
        "axis": dice.draw(st.integers(0, len(shape) - 2)),
        "n": dice.draw(st.integers(1, 40)),
        "inverse": dice.draw(st.booleans()),
    }
    return Case((dice.numbers(shape, "count"),), attributes)


def _fft_of_real(dice: Dice) -> Case:
    shape = dice.shape(1, extents=(1, 7))
    axis = dice.draw(st.integers(0, len(shape) - 1))
    return Case((dice.numbers(shape, "count"),), {"axis": axis, **_norm(dice)})


def _fft_to_real(dice: Dice) -> Case:
    shape = dice.shape(1, extents=(1, 5))
    axis = dice.draw(st.integers(0, len(shape) - 1))
    signals = [n for n in (2 * shape[axis] - 2, 2 * shape[axis] - 1) if n]
    attributes = {"axis": axis, "n": dice.draw(st.sampled_from(signals)), **_norm(dice)}
    return Case((dice.numbers(shape, "count"),), attributes)


def _normal(dice: Dice, shape: Shape) -> torch.Tensor:
    """Normally distributed numbers."""
    values = dice.random.standard_normal(shape)
    if dice.dtype.kind == "complex":
        values = values + 1j * dice.random.standard_normal(shape)
    return torch.from_numpy(np.asarray(values)).to(to_torch(dice.dtype))


def _stack(dice: Dice) -> Shape:
    return dice.shape(0, 2, (0, 3))


def _square(dice: Dice, stack: Shape) -> torch.Tensor:
    """Square matrices that are far from singular."""
    n = dice.draw(st.integers(1 if dice.smooth else 0, 5))
    twice = 2 * torch.eye(n).to(to_torch(dice.dtype))
    return _normal(dice, (*stack, n, n)) / max(n, 1) ** 0.5 + twice


def _square_matrix(dice: Dice) -> Case:
    return Case((_square(dice, _stack(dice)).to(to_torch(dice.dtype)),), {})


def _definite(dice: Dice) -> Case:
    """The lower triangle counts; what is above it does not."""
    a = _square(dice, _stack(dice))
    definite = torch.tril(a @ a.mH) + torch.triu(torch.rand_like(a.real), 1)
    return Case((definite.to(to_torch(dice.dtype)),), {})


def _matrix(dice: Dice, stack: Shape) -> torch.Tensor:
    m, n = (dice.draw(st.integers(1 if dice.smooth else 0, 5)) for _ in range(2))
    return _normal(dice, (*stack, m, n))


def _any_matrix(dice: Dice) -> Case:
    return Case((_matrix(dice, _stack(dice)),), {})


def _qr(dice: Dice) -> Case:
    a = _matrix(dice, _stack(dice))
    differentiable = not dice.smooth or a.shape[-2] <= a.shape[-1]
    return Case((a,), {"full": differentiable and dice.draw(st.booleans())})


def _system(dice: Dice) -> tuple[torch.Tensor, torch.Tensor]:
    a = _square(dice, _stack(dice)).to(to_torch(dice.dtype))
    return a, _normal(dice, (*a.shape[:-1], dice.draw(st.integers(0, 3))))


def _triangular_system(dice: Dice) -> Case:
    keys = ("lower", "transpose", "unit")
    return Case(_system(dice), {key: dice.draw(st.booleans()) for key in keys})


def _linear_system(dice: Dice) -> Case:
    return Case(_system(dice), {"transpose": dice.draw(st.booleans())})


def _factored_system(dice: Dice) -> Case:
    a, b = _system(dice)
    factors = OPERATIONS["lu"].reference(a.numpy())
    return Case((torch.from_numpy(factors), b), {"transpose": dice.draw(st.booleans())})


def _diagonal(dice: Dice) -> Case:
    n = dice.draw(st.integers(0, 4))
    return Case((dice.numbers((*_stack(dice), n, n)),), {})


def _orders(dice: Dice) -> Case:
    stack, n = _stack(dice), dice.draw(st.integers(0, 6))
    orders = dice.random.permuted(np.broadcast_to(np.arange(n), (*stack, n)), axis=-1)
    return Case((torch.from_numpy(orders).to(to_torch(dice.dtype)),), {})


def _tolerance(a: torch.Tensor) -> torch.Tensor:
    return torch.full(a.shape[:-2], 1e-4, dtype=a.real.dtype)


def _pinv(dice: Dice) -> Case:
    a = _matrix(dice, _stack(dice))
    return Case((a, _tolerance(a)), {})


def _lstsq(dice: Dice) -> Case:
    a = _matrix(dice, _stack(dice))
    b = _normal(dice, (*a.shape[:-1], dice.draw(st.integers(0, 3))))
    return Case((a, b, _tolerance(a)), {})


def _related_by_correlation(dice: Dice) -> tuple[Shape, Shape, Shape, dict[str, Any]]:
    """Shapes of x, w and y, and how they go together."""
    space = dice.draw(st.integers(1, 2 if dice.smooth else 4))
    few = 2 if dice.smooth else 3
    groups, outputs, channels, batch = (dice.draw(st.integers(1, few)) for _ in range(4))
    channels = dice.draw(st.sampled_from([1, channels]))
    kernel = [dice.draw(st.integers(1, 3)) for _ in range(space)]
    stride, dilation = ([dice.draw(st.integers(1, 2)) for _ in kernel] for _ in range(2))
    padding = [(dice.draw(st.integers(0, 2)), dice.draw(st.integers(0, 2))) for _ in kernel]
    y = [dice.draw(st.integers(1, 3 if dice.smooth or space > 2 else 7)) for _ in kernel]
    x = []
    for d, n in enumerate(y):
        least = (n - 1) * stride[d] + dilation[d] * (kernel[d] - 1) + 1 - sum(padding[d])
        x.append(max(0, least) + (dice.draw(st.integers(0, stride[d] - 1)) if least > 0 else 0))
        y[d] = (
            n
            if least >= 0
            else (sum(padding[d]) - dilation[d] * (kernel[d] - 1) - 1) // stride[d] + 1
        )
    attributes = {
        "stride": tuple(stride),
        "padding": tuple(padding),
        "dilation": tuple(dilation),
        "groups": groups,
    }
    shapes = (batch, channels * groups, *x), (outputs * groups, channels, *kernel)
    return *shapes, (batch, outputs * groups, *y), attributes


def _correlation(dice: Dice) -> Case:
    x, w, _, attributes = _related_by_correlation(dice)
    operands = dice.numbers(x, "count"), dice.numbers(w, "count")
    return Case(operands, {**attributes, "direct": dice.draw(st.booleans())})


def _correlation_input(dice: Dice) -> Case:
    x, w, y, attributes = _related_by_correlation(dice)
    operands = dice.numbers(y, "count"), dice.numbers(w, "count")
    return Case(operands, {**attributes, "space": x[2:]})


def _correlation_kernel(dice: Dice) -> Case:
    x, w, y, attributes = _related_by_correlation(dice)
    operands = dice.numbers(x, "count"), dice.numbers(y, "count")
    return Case(operands, {**attributes, "kernel": w[2:]})


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
    "conj": _unary(NUMERIC),
    "real": _unary(NUMERIC),
    "imag": _unary(NUMERIC),
    "sign": _unary(NUMERIC, slope=False),
    "signbit": _unary(REAL_FLOATS, slope=False),
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
    "round": _unary(NUMERIC, slope=False),
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
    "nextafter": _binary(REAL_FLOATS, slopes=()),
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
    "sum": Row(_reduction("count"), ANY, (0,)),
    "prod": Row(_reduction("factor", extents=(0, 3)), NUMERIC, (0,)),
    "max": Row(_reduction("any", empty=False), REAL, (0,)),
    "min": Row(_reduction("any", empty=False), REAL, (0,)),
    "any": Row(_reduction("any"), BOOL),
    "all": Row(_reduction("any"), BOOL),
    "argmax": Row(_position_of, REAL),
    "argmin": Row(_position_of, REAL),
    "piece_positions": Row(_piece_positions, REAL),
    "piece_elements": Row(_piece_elements, REAL),
    "piece_totals": Row(_piece_totals, NUMERIC),
    "piece_scan": Row(_piece_scan, NUMERIC),
    "cumulative_sum": Row(_running("count"), NUMERIC, (0,)),
    "cumulative_prod": Row(_running("factor"), NUMERIC, (0,)),
    "reshape": Row(_reshape, ANY, (0,)),
    "permute_dims": Row(_permute, ANY, (0,)),
    "broadcast_to": Row(_broadcast, ANY, (0,)),
    "concat": Row(_concat, ANY, (0,)),
    "slice": Row(_slice, ANY, (0,)),
    "set_slice": Row(_set_slice, ANY, (0, 1)),
    "window": Row(_window, ANY, (0,)),
    "set_window": Row(_set_window, ANY, (0, 1)),
    "take": Row(_take, ANY, (0,)),
    "scatter_add": Row(_scatter_add, NUMERIC, (0,)),
    "count_pieces": Row(_count_pieces, BOOL),
    "compress": Row(_compress, ANY, (0,)),
    "expand": Row(_expand, ANY, (0,)),
    "sort": Row(_sort, (*BOOL, *REAL), (0,)),
    "argsort": Row(_sort, (*BOOL, *REAL)),
    "searchsorted": Row(_searchsorted, (*BOOL, *REAL)),
    "put": Row(_put, ANY, (0, 1)),
    "take_along": Row(_take_along, ANY, (0,)),
    "scatter_along": Row(_scatter_along, NUMERIC, (0,)),
    "contract": Row(_contract, NUMERIC, (0, 1)),
    "correlation": Row(_correlation, NUMERIC, (0, 1)),
    "correlation_input": Row(_correlation_input, NUMERIC, (0, 1)),
    "correlation_kernel": Row(_correlation_kernel, NUMERIC, (0, 1)),
    "fft_c2c": Row(_fft, COMPLEX),
    "fft_twiddle": Row(_fft_twiddle, COMPLEX),
    "fft_r2c": Row(_fft_of_real, ("float32", "float64")),
    "fft_c2r": Row(_fft_to_real, COMPLEX),
    "cholesky": Row(_definite, LAPACK, (0,)),
    "solve_triangular": Row(_triangular_system, LAPACK, (0, 1)),
    "lu": Row(_any_matrix, LAPACK, (0,)),
    "qr": Row(_qr, LAPACK, (0,)),
    "solve": Row(_linear_system, LAPACK, (0, 1)),
    "inv": Row(_square_matrix, LAPACK, (0,)),
    "diagonal": Row(_diagonal, ANY, (0,)),
    "parity": Row(_orders, REAL_FLOATS[2:]),
    "det": Row(_square_matrix, LAPACK, (0,)),
    "logabsdet": Row(_square_matrix, LAPACK, (0,)),
    "det_sign": Row(_square_matrix, LAPACK),
    "eigvalsh": Row(_definite, LAPACK, (0,)),
    "svdvals": Row(_any_matrix, LAPACK, (0,)),
    "pinv": Row(_pinv, LAPACK, (0,)),
    "lstsq": Row(_lstsq, LAPACK, (0, 1)),
    "full": Row(_full, ANY, (0,)),
    "iota": Row(_iota, REAL),
    "random_uniform": Row(_random, REAL_FLOATS),
    "random_normal": Row(_random, REAL_FLOATS),
    "random_bits": Row(_random, ("int64",)),
    "random_permutation": Row(_permutation, ("int64",)),
}

# Made by the passes, not by users: tried like the rest, but it has no gradient.
FOLDED = {"gemm": Row(_gemm, NUMERIC), "lu_solve": Row(_factored_system, LAPACK)}


@st.composite
def cases(draw: st.DrawFn, row: Row, dtype: str | None = None, smooth: bool = False) -> Case:
    """A case of a row, for one of its element types."""
    name = dtype or draw(st.sampled_from(row.dtypes))
    random = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    element = DTYPES["float64" if smooth else name]
    return row.draw(Dice(draw, element, random, smooth))

"""Random arrays: Philox by global element index, the same for every layout and worker count.

Each call draws from the next stream of a generator, the pool's by default, which `seed()` restarts.
A stream is never reused within a seed, so calls are independent. Compiled functions and loops draw
the same sequence as uncompiled code.
"""

from __future__ import annotations

import numbers
import secrets
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol, final

import numpy as np

from magmath.api.creation import DTypeLike, asarray, normal_shape
from magmath.api.elementwise import log
from magmath.api.indexing import take
from magmath.api.manipulation import reshape
from magmath.api.searching import searchsorted
from magmath.api.sorting import argsort
from magmath.api.statistics import cumulative_sum
from magmath.arrays.array import Array, Operand
from magmath.arrays.conversion import LayoutLike, bind_layout
from magmath.arrays.output import stored
from magmath.core.dtypes import as_dtype, int64
from magmath.core.integers import require_integer
from magmath.core.promotion import get_default_dtype
from magmath.core.shapes import size_of
from magmath.engine import session
from magmath.engine.rng_state import RngState
from magmath.engine.user_line import user_line
from magmath.errors import DTypeError, ShapeError
from magmath.graph import Node, Operation, Shape, apply
from magmath.ops import creation
from magmath.ops import elementwise as e
from magmath.ops.leaves import parameter
from magmath.ops.redistribute import redistribute

Size = int | tuple[int, ...] | None
"""A shape by NumPy's name."""

OWN_STREAMS = 1 << 44
"""The first stream of user generators, which differ from the pool's generator of the same seed."""


class State(Protocol):
    """The state of a generator, from which random arrays are drawn."""

    def draw(self) -> tuple[Node, Node]:
        """Return the seed and the number of the next stream as operands of a random operation."""


class Distributions(ABC):
    """The distributions as methods, for classes with a generator state."""

    __slots__ = ()

    @property
    @abstractmethod
    def _state(self) -> State:
        """The generator state."""

    def uniform(
        self,
        low: float = 0.0,
        high: float = 1.0,
        shape: int | tuple[int, ...] = (),
        *,
        size: Size = None,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return numbers drawn evenly from [low, high)."""
        return _uniform(self._state, low, high, _shape(shape, size), dtype, layout)

    def normal(
        self,
        mean: float = 0.0,
        std: float = 1.0,
        shape: int | tuple[int, ...] = (),
        *,
        loc: float | None = None,
        scale: float | None = None,
        size: Size = None,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return numbers from the normal distribution (Box–Muller). NumPy names the mean and the
        standard deviation loc and scale."""
        return _normal(
            self._state, *_moments(mean, std, loc, scale), _shape(shape, size), dtype, layout
        )

    def integers(
        self,
        low: int,
        high: int | None = None,
        shape: int | tuple[int, ...] = (),
        *,
        size: Size = None,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> Array:
        """Return integers from low up to but not including high (or from 0 up to low)."""
        return _integers(self._state, low, high, _shape(shape, size), dtype, layout)

    def permutation(self, x: int | Operand, *, axis: int = 0) -> Array:
        """Return 0 … x-1, or the entries of an array along `axis`, in random order."""
        return _permutation(self._state, x, axis)

    def random(self, size: Size = None, *, dtype: DTypeLike = None) -> Array:
        """Return numbers drawn evenly from [0, 1)."""
        return _uniform(self._state, 0.0, 1.0, _shape((), size), dtype, None)

    def standard_normal(self, size: Size = None, *, dtype: DTypeLike = None) -> Array:
        """Return numbers from the normal distribution with mean 0 and standard deviation 1."""
        return _normal(self._state, 0.0, 1.0, _shape((), size), dtype, None)

    def choice(
        self,
        a: int | Operand,
        size: Size = None,
        replace: bool = True,
        p: Any = None,
        axis: int = 0,
    ) -> Array:
        """Return entries of an array along `axis`, or integers below `a`, with probabilities p."""
        return _choice(self._state, a, size, replace, p, axis)

    def shuffle(self, x: Array, axis: int = 0) -> None:
        """Bring the entries of an array along `axis` into random order, in place."""
        stored("random.shuffle", _permutation(self._state, x, axis), x)


@final
class Generator(Distributions):
    """A random number generator with its own seed and sequence.

        rng = mm.random.Generator(1)
        noise = rng.normal(shape=(1000,))

    Generators with the same seed draw the same sequence, in any pool.
    """

    def __init__(self, seed: int) -> None:
        self._own = RngState(require_integer("random.Generator: seed", seed, 0), OWN_STREAMS)

    @property
    def _state(self) -> RngState:
        return self._own

    def __repr__(self) -> str:
        return f"Generator(seed={self._state.seed}, drawn={self._state.next - OWN_STREAMS})"


def default_rng(seed: int | None = None) -> Generator:
    """Return a generator with this seed, by default one from the system's entropy.

    The name is NumPy's.
    """
    return Generator(secrets.randbits(62) if seed is None else seed)


def seed(value: int) -> None:
    """Restart the generator of the current pool with another seed."""
    engine, number = session.engine(), require_integer("random.seed", value, 0)
    engine.rng_state.restart(number)
    engine.initial_rng_state.restart(number)


@contextmanager
def drawing_from(state: RngState) -> Iterator[None]:
    """Make the functions of this module draw from `state` instead of the pool's generator."""
    engine = session.engine()
    former, engine.rng_state = engine.rng_state, state
    try:
        yield
    finally:
        engine.rng_state = former


@contextmanager
def initial_values_from(state: RngState) -> Iterator[None]:
    """Draw initial values of parameters from `state` instead of the pool's generator."""
    engine = session.engine()
    former, engine.initial_rng_state = engine.initial_rng_state, state
    try:
        yield
    finally:
        engine.initial_rng_state = former


def uniform(
    low: float = 0.0,
    high: float = 1.0,
    shape: int | tuple[int, ...] = (),
    *,
    size: Size = None,
    dtype: DTypeLike = None,
    layout: LayoutLike = None,
) -> Array:
    """Return numbers drawn evenly from [low, high)."""
    return _uniform(session.engine().rng_state, low, high, _shape(shape, size), dtype, layout)


def normal(
    mean: float = 0.0,
    std: float = 1.0,
    shape: int | tuple[int, ...] = (),
    *,
    loc: float | None = None,
    scale: float | None = None,
    size: Size = None,
    dtype: DTypeLike = None,
    layout: LayoutLike = None,
) -> Array:
    """Return numbers from the normal distribution (Box–Muller). NumPy names the mean and the
    standard deviation loc and scale."""
    return _normal(
        session.engine().rng_state,
        *_moments(mean, std, loc, scale),
        _shape(shape, size),
        dtype,
        layout,
    )


def integers(
    low: int,
    high: int | None = None,
    shape: int | tuple[int, ...] = (),
    *,
    size: Size = None,
    dtype: DTypeLike = None,
    layout: LayoutLike = None,
) -> Array:
    """Return integers from low up to but not including high (or from 0 up to low)."""
    return _integers(session.engine().rng_state, low, high, _shape(shape, size), dtype, layout)


def permutation(x: int | Operand, *, axis: int = 0) -> Array:
    """Return 0 … x-1, or the entries of an array along `axis`, in random order."""
    return _permutation(session.engine().rng_state, x, axis)


def random(size: Size = None) -> Array:
    """Return numbers drawn evenly from [0, 1)."""
    return uniform(size=size)


def standard_normal(size: Size = None) -> Array:
    """Return numbers from the normal distribution with mean 0 and standard deviation 1."""
    return normal(size=size)


def rand(*shape: int) -> Array:
    """Return `random` with the extents as arguments."""
    return uniform(shape=shape)


def randn(*shape: int) -> Array:
    """Return `standard_normal` with the extents as arguments."""
    return normal(shape=shape)


def randint(low: int, high: int | None = None, size: Size = None, dtype: DTypeLike = None) -> Array:
    """Return `integers` by NumPy's older name."""
    return integers(low, high, size=size, dtype=dtype)


def choice(
    a: int | Operand, size: Size = None, replace: bool = True, p: Any = None, axis: int = 0
) -> Array:
    """Return entries of an array along `axis`, or integers below `a`, with probabilities p."""
    return _choice(session.engine().rng_state, a, size, replace, p, axis)


def shuffle(x: Array, axis: int = 0) -> None:
    """Bring the entries of an array along `axis` into random order, in place."""
    stored("random.shuffle", permutation(x, axis=axis), x)


def _shape(shape: int | tuple[int, ...], size: Size) -> int | tuple[int, ...]:
    return shape if size is None else size


def _moments(
    mean: float, std: float, loc: float | None, scale: float | None
) -> tuple[float, float]:
    return mean if loc is None else loc, std if scale is None else scale


def _choice(state: State, a: Any, size: Size, replace: bool, p: Any, axis: int) -> Array:
    """Return positions drawn from those of an axis, and the entries there."""
    values = None if isinstance(a, (int, np.integer)) else asarray(a)
    extent = int(a) if values is None else values.shape[axis]
    shape = normal_shape("random.choice", _shape((), size))
    count = size_of(shape)
    if not replace and count > extent:
        raise ShapeError(f"random.choice: cannot draw {count} of {extent} without replacement")
    if replace and p is None:
        positions = _integers(state, 0, extent, shape, None, None)
    elif replace:
        limits = cumulative_sum(asarray(p))
        drawn = _uniform(state, 0.0, 1.0, shape, limits.dtype, None)
        positions = searchsorted(limits / limits[-1], drawn, "right")
    elif p is None:
        positions = reshape(_permutation(state, extent, 0)[:count], shape)
    else:  # the largest of log p plus noise of Gumbel's distribution
        noise = -log(-log(_uniform(state, 0.0, 1.0, (extent,), None, None)))
        order = argsort(log(asarray(p)) + noise, descending=True)
        positions = reshape(order[:count], shape)
    return positions if values is None else take(values, positions, axis=axis)


def _drawn(state: State, record: Operation, shape: Shape, dtype: DTypeLike) -> Node:
    element = as_dtype(dtype) if dtype is not None else get_default_dtype()
    if not element.is_floating:
        raise DTypeError(f"random: draws floating point numbers, was given dtype {element}")
    return apply(record, *state.draw(), shape=shape, dtype=element, line=user_line())


def _check_numbers(name: str, **given: object) -> None:
    for what, value in given.items():
        if not isinstance(value, numbers.Real | np.number):
            raise ShapeError(
                f"random.{name}: {what} must be a number, was given {value!r}; a shape is the "
                f"third argument, or random.{name}(shape=…)"
            )


def _placed(node: Node, layout: LayoutLike) -> Array:
    if layout is None:
        return Array(node)
    return Array(redistribute(node, bind_layout("random", layout, node.shape)))


def _uniform(
    state: State,
    low: float,
    high: float,
    shape: int | tuple[int, ...],
    dtype: DTypeLike,
    layout: LayoutLike,
) -> Array:
    _check_numbers("uniform", low=low, high=high)
    if low > high:
        raise ShapeError(f"random.uniform: needs low ≤ high, was given {low} and {high}")
    node = _drawn(state, creation.UNIFORM, normal_shape("random.uniform", shape), dtype)
    scaled = e.multiply(node, parameter(high - low, node.dtype))
    return _placed(e.add(scaled, parameter(low, node.dtype)), layout)


def _normal(
    state: State,
    mean: float,
    std: float,
    shape: int | tuple[int, ...],
    dtype: DTypeLike,
    layout: LayoutLike,
) -> Array:
    _check_numbers("normal", mean=mean, std=std)
    if std < 0:
        raise ShapeError(f"random.normal: std must not be negative, was given {std}")
    node = _drawn(state, creation.NORMAL, normal_shape("random.normal", shape), dtype)
    scaled = e.multiply(node, parameter(std, node.dtype))
    return _placed(e.add(scaled, parameter(mean, node.dtype)), layout)


def _integers(
    state: State,
    low: int,
    high: int | None,
    shape: int | tuple[int, ...],
    dtype: DTypeLike,
    layout: LayoutLike,
) -> Array:
    for bound in (low, high):
        if bound is not None and not hasattr(bound, "__index__"):
            raise ShapeError(
                f"random.integers: bounds are integers, was given {bound!r}; a shape is the third "
                f"argument, or random.integers(n, shape=…)"
            )
    first, last = (0, low) if high is None else (low, high)
    if last <= first:
        raise ShapeError(f"integers: needs low < high, was given {first} and {last}")
    bits = apply(
        creation.BITS,
        *state.draw(),
        shape=normal_shape("random.integers", shape),
        dtype=int64,
        line=user_line(),
    )
    span = parameter(last - first, int64)
    drawn = e.add(e.call("remainder", bits, span), parameter(first, int64))
    return _placed(e.astype(drawn, as_dtype(dtype or int64)), layout)


def _permutation(state: State, x: Any, axis: int) -> Array:
    x = x if isinstance(x, (int, Array)) else asarray(x)
    extent = x if isinstance(x, int) else x.shape[axis]
    order = apply(
        creation.PERMUTATION, *state.draw(), shape=(extent,), dtype=int64, line=user_line()
    )
    return Array(order) if isinstance(x, int) else take(x, Array(order), axis=axis)

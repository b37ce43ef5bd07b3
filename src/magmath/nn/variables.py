"""The kinds of variables that modules have: parameters, buffers and random states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from magmath.api import creation
from magmath.api.creation import DTypeLike, variable
from magmath.api.random import Distributions, drawing_from
from magmath.arrays.array import Array
from magmath.arrays.inputs.conversion import LayoutLike
from magmath.arrays.inputs.number_list import is_number
from magmath.arrays.variables.variable import Variable
from magmath.arrays.variables.variable_list import TRAINABLE_FLAGS
from magmath.core.dtypes import DType, as_dtype, float32, int64
from magmath.core.integers import require_seed
from magmath.core.precision_state import PRECISION
from magmath.core.promotion import get_default_dtype
from magmath.engine import session
from magmath.engine.remote_array import RemoteArray
from magmath.engine.traces import tracing
from magmath.engine.traces.captured_arrays import invalidate_captures
from magmath.engine.traces.stream_ranges import (
    GENERATOR_STREAMS,
    MODULE_STREAMS,
    STREAMS_OF_MODULE,
)
from magmath.errors import DTypeError, MagmathError, ShapeError, StateError
from magmath.graph import Node, Shape
from magmath.nn.mixed_precision import wrong_parameter
from magmath.ops import elementwise as e
from magmath.ops.creation import iota

Initial = Callable[..., Any]
"""A function `f(shape, dtype=…)` that returns the initial value of a parameter."""

_made = 0


def variables_made() -> int:
    """Return the number of parameters, buffers and random states that were made so far."""
    return _made


def _count_variable() -> None:
    global _made
    _made += 1


@final
class Parameter(Variable):
    """A variable that training updates.

    value      an array, a number, or a function f(shape, dtype=…) that returns the initial value
    shape      the shape, if `value` is a number or a function

    Its attribute `trainable` is True if `Module.trainable` lists it; `Module.freeze` sets it. A
    module with a parameter as an attribute names it by its path, such as "blocks.3.conv.weight".
    In a traced function the initial value is computed immediately.
    """

    __slots__ = ("_trainable",)

    @property
    def _node(self) -> Node:  # type: ignore[override]
        """The node that an expression reads: in mixed precision, modules read the half type."""
        node, read = super()._node, PRECISION.value.read
        if read is None or not node.dtype.is_floating:
            return node
        if node.dtype is not float32:
            raise wrong_parameter("call", f"mixed-{read}", self.name, node.dtype)
        return e.astype(node, read)

    @property
    def _leaf(self) -> Node | None:  # type: ignore[override]
        return super()._leaf if PRECISION.value.read is None else None

    def __init__(
        self,
        value: Any,
        shape: int | Sequence[int] | None = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> None:
        if shape is None and dtype is None and _is_shape(value):
            raise DTypeError(
                f"Parameter: the tuple of integers {value} may be a shape; zeros of this shape are "
                f"Parameter(0.0, {value}), and a list [{', '.join(map(str, value))}] is a value"
            )
        data = _first_value("Parameter", value, shape, dtype, layout)
        if not (data.dtype.is_floating or data.dtype.kind == "complex"):
            raise DTypeError(
                f"Parameter: training needs floating point numbers, was given {data.dtype}; pass "
                f"dtype=mm.float32, or make it a Buffer"
            )
        super().__init__("parameter", data)
        _count_variable()
        self._trainable = True

    @property
    def trainable(self) -> bool:
        """True if training updates it; compiled functions that have read it are traced again."""
        return self._trainable

    @trainable.setter
    def trainable(self, trainable: bool) -> None:
        former, self._trainable = getattr(self, "_trainable", trainable), trainable
        if former != trainable:
            invalidate_captures(TRAINABLE_FLAGS)

    @property
    def settings(self) -> dict[str, Any]:
        """The trainable flag, which copies inherit."""
        return {"trainable": self.trainable}


def _is_shape(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(n, int) for n in value)


@final
class Buffer(Variable):
    """A variable that is part of a module's state and is not trained, such as a running mean.

    The arguments are those of `Parameter`.
    """

    __slots__ = ()

    def __init__(
        self,
        value: Any,
        shape: int | Sequence[int] | None = None,
        *,
        dtype: DTypeLike = None,
        layout: LayoutLike = None,
    ) -> None:
        super().__init__("buffer", _first_value("Buffer", value, shape, dtype, layout))
        _count_variable()


@final
class RngState(Variable, Distributions):
    """The generator state of a module: a seed and the next stream number, saved with the module.

    With a seed it draws the sequence of `mm.random.Generator(seed)`, otherwise a separate sequence
    derived from the pool's seed. Compiled functions advance it as they assign variables.
    """

    __slots__ = ()

    def __init__(self, seed: int | None = None) -> None:
        with tracing.suspended():
            super().__init__("rng_state", variable("", _seed_and_stream(seed), dtype=int64).stored)
        _count_variable()

    @property
    def _state(self) -> RngState:
        return self

    def draw(self) -> tuple[Node, Node]:
        """Return the seed and the number of the next stream as operands of a random operation."""
        seed, number = self[0].node, self[1].node
        self.assign(Array(self.node) + Array(iota((2,), 0)))
        if (trace := tracing.current()) is not None:
            trace.add_drawn(number)
        return seed, number


def _seed_and_stream(seed: int | None) -> list[int]:
    if seed is not None:
        return [require_seed("RngState: seed", seed), GENERATOR_STREAMS]
    state = session.engine().initial_stream_state
    return [state.seed, MODULE_STREAMS + (state.skip(1) - state.first) * STREAMS_OF_MODULE]


def _first_value(
    kind: str,
    value: Any,
    shape: int | Sequence[int] | None,
    dtype: DTypeLike,
    layout: LayoutLike,
) -> RemoteArray:
    """Return the data of an initial value, which is computed outside of the current trace."""
    if value is None:
        raise TypeError(
            f"{kind}: needs an array, a number, or a function f(shape, dtype=…) and a shape, was "
            f"given None; if the shape follows from the input, write "
            f"mm.nn.deferred(function{'' if kind == 'Parameter' else ', mm.nn.' + kind})"
        )
    extents = None if shape is None else creation.normal_shape(kind, shape)
    with tracing.suspended():
        if callable(value):
            if extents is None:
                raise ShapeError(
                    f"{kind}: a function that returns the initial value needs a shape: "
                    f"mm.nn.{kind}(function, shape)"
                )
            element = get_default_dtype() if dtype is None else as_dtype(dtype)
            with drawing_from(session.engine().initial_stream_state):
                value = value(extents, dtype=element)
                data = variable("", value, dtype=element, layout=layout)
        else:
            if extents is not None and is_number(value):
                value = creation.full(extents, value, dtype=dtype or get_default_dtype())
            data = variable("", value, dtype=dtype, layout=layout)
    if extents is not None and data.shape != extents:
        raise ShapeError(f"{kind}: needs a value of shape {extents}, was given {data.shape}")
    return data.stored


def is_layer(kind: type) -> bool:
    """Return True for a module class of magmath, False for one of a user."""
    return kind.__module__.startswith("magmath.nn.")


def _refused(operation: str) -> Callable[..., Any]:
    """Return a method that raises MagmathError for an operator or conversion of this name."""

    def refuse(self: Deferred, *_: Any, **__: Any) -> Any:
        raise self.refuse(operation)

    return refuse


@final
class Deferred:
    """A placeholder for a variable that a module makes at its first call, when its shape is known.

    See `Module.materialize`. `kind` is `Parameter` or `Buffer`.
    """

    def __init__(self, initial: Initial, kind: type[Parameter] | type[Buffer] = Parameter) -> None:
        self.initial = initial
        self.kind = kind
        self._owner: type | None = None
        self._attribute = ""
        self._made: Parameter | Buffer | None = None

    def __repr__(self) -> str:
        return f"Deferred({self.kind.__name__})"

    def set_owner(self, owner: type, attribute: str) -> None:
        """Set the class of the module that has it as an attribute, for messages."""
        self._owner, self._attribute = owner, attribute

    def describe_missing(self) -> str:
        """Return the reason why the variable cannot be used, and the remedy."""
        subject, instruction = "the variable", ""
        if self._owner is not None:
            subject = f"{self._attribute} of {self._owner.__name__}"
            if not is_layer(self._owner):
                instruction = f"in {self._owner.__name__}.__call__ first call "
                instruction += f"self.materialize({self._attribute}=shape); elsewhere "
        return (
            f"{subject} does not exist yet, because its shape follows from the input; "
            f"{instruction}first call module.build(shape) with the shape of an input, or call the "
            f"module"
        )

    def refuse(self, operation: str) -> MagmathError:
        """Return the error of an operation on the variable."""
        return StateError(f"{operation}: {self.describe_missing()}")

    def __getattr__(self, name: str) -> Any:
        """Raise AttributeError; the message says how the variable is made."""
        if name.startswith("__"):  # protocols, such as those of copy and NumPy
            raise AttributeError(name)
        raise AttributeError(f"{name}: {self.describe_missing()}")

    __add__ = __radd__ = _refused("add")
    __sub__ = __rsub__ = _refused("subtract")
    __mul__ = __rmul__ = _refused("multiply")
    __truediv__ = __rtruediv__ = _refused("divide")
    __matmul__ = __rmatmul__ = _refused("matmul")
    __pow__ = __rpow__ = _refused("pow")
    __neg__ = _refused("negative")
    __getitem__ = __setitem__ = _refused("indexing")
    __lt__ = __le__ = __gt__ = __ge__ = _refused("comparison")
    __float__ = __array__ = _refused("conversion")
    __len__ = _refused("length")

    def make(self, shape: Shape, dtype: DTypeLike = None) -> Parameter | Buffer:
        """Return the variable with this shape: one for all attributes that share this object."""
        if self._made is None:
            self._made = self.kind(self.initial, shape, dtype=dtype)
        elif self._made.shape != tuple(shape):
            raise ShapeError(
                f"module: {self._attribute or 'a variable'} is shared by layers that need the "
                f"shapes {self._made.shape} and {tuple(shape)}; share layers of equal sizes"
            )
        return self._made

    @property
    def is_made(self) -> bool:
        """True if the variable exists."""
        return self._made is not None

    def forget(self) -> None:
        """Make another variable at the next call, perhaps with another shape."""
        self._made = None


def deferred(initial: Initial, kind: type[Parameter] | type[Buffer] = Parameter) -> Any:
    """Return a `Deferred`; for type checkers it has the type of the variable that replaces it."""
    return Deferred(initial, kind)


def zeros(shape: Shape, dtype: DType) -> Array:
    """Return an array of zeros, as initial values."""
    return creation.zeros(shape, dtype=dtype)


def ones(shape: Shape, dtype: DType) -> Array:
    """Return an array of ones, as initial values."""
    return creation.ones(shape, dtype=dtype)

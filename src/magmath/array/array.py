"""The array: a handle on a node, with Python's operators.

Building an expression checks shapes and types at once and computes nothing. A value is computed
when it is needed: by printing, conversion, a truth test, or `evaluate`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from magmath.array import printing, session, tracing
from magmath.array.captured import note_update
from magmath.array.data import data_of
from magmath.array.handle import Handle, evaluate
from magmath.array.lines import user_line
from magmath.array.number_list import NumberList, number_list
from magmath.array.operators import Operators
from magmath.array.reuse import UNNAMED, UNNAMED_TARGET
from magmath.core.dtypes import PYTHON_NUMBERS, DType, bool_, float64
from magmath.core.numpy_aliases import alias_hint
from magmath.core.promotion import DEFAULT, common_dtype, floating_dtype
from magmath.errors import DTypeError, LayoutError, MagmathError, ShapeError, WorkerLost
from magmath.graph import Node, Shape, applied, apply
from magmath.graph.node import NO_ATTRIBUTES
from magmath.layout import Layout, Rule
from magmath.ops import elementwise as e
from magmath.ops import leaves
from magmath.ops.creation import full
from magmath.ops.movement import REDISTRIBUTE, redistribute
from magmath.ops.repairs import negative_power
from magmath.ops.rules import check_kind

if TYPE_CHECKING:
    import torch

    from magmath.array.explanation import Explanation

Number = bool | int | float | complex
Operand: TypeAlias = (
    "Array | Number | np.ndarray[Any, Any] | np.generic | list[Any] | tuple[Any, ...]"
)


class Array(Handle, Operators):
    """An n-dimensional array, divided over the workers as its layout says.

    Attributes: `shape`, `dtype`, `ndim`, `size`, `layout` (evaluates), `T`, `mT`, `device`.
    Values are immutable; `a += b` makes `a` a handle on another value, of the same shape and type.
    """

    __slots__ = ()
    __array_priority__ = 1000

    if not TYPE_CHECKING:  # to type checkers any name would pass

        def __getattr__(self, name: str) -> Any:
            """Functions are functions here, as in the standard: say so who looks for a method."""
            import magmath

            known = name in dir(magmath) and callable(getattr(magmath, name))
            where = f"; write mm.{name}(x)" if known else alias_hint(name)
            raise AttributeError(f"'Array' object has no attribute {name!r}{where}")

    @property
    def layout(self) -> Layout:
        """How the array is divided over the workers; evaluates it first."""
        return data_of(self.evaluated()).layout

    @property
    def device(self) -> str:
        """The kind of device that the workers compute on."""
        return session.engine().pool.topology.device

    # values ---------------------------------------------------------------------------------

    def numpy(self) -> np.ndarray[Any, Any]:
        """A NumPy copy of the whole array (bfloat16 becomes float32)."""
        tensor = self.fetched()
        return (tensor.float() if self.dtype.name == "bfloat16" else tensor).numpy()

    def fetched(self) -> torch.Tensor:
        """The whole array as a new CPU tensor of torch."""
        asked = self._node
        leaf = self.evaluated()
        data = data_of(leaf)
        if data.pool.any_failed:
            session.engine().restore([data])
        try:
            return data.pool.get(data.handle)
        except WorkerLost:
            raise
        except Exception:
            if asked is not leaf and self._formers:  # an update until now
                asked.value = None
                self._node = asked
                self.undo()
            raise

    def __array__(
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("an array lies with the workers: NumPy cannot have it without a copy")
        values = self.numpy()
        return values if dtype is None else values.astype(dtype, copy=False)

    def _scalar(self, kind: str) -> Any:
        if self.size != 1 or self.ndim != 0:
            reduced = "mm.any(x) or mm.all(x)" if kind == "bool" else "mm.sum(x)"
            raise TypeError(
                f"{kind}(): needs a 0-d array, this one has shape {self.shape}; take one element, "
                f"or reduce them, as {reduced} does"
            )
        return self.numpy().item()

    def __float__(self) -> float:
        return float(self._scalar("float"))

    def __int__(self) -> int:
        return int(self._scalar("int"))

    def __complex__(self) -> complex:
        return complex(self._scalar("complex"))

    def __bool__(self) -> bool:
        return bool(self._scalar("bool"))

    def __index__(self) -> int:
        if not self.dtype.is_integer:
            raise TypeError(f"only integer arrays can be an index, this one is {self.dtype}")
        return int(self._scalar("index"))

    def __format__(self, specification: str) -> str:
        return format(self.item(), specification) if specification else str(self)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        from magmath.array.namespace import array_namespace

        return array_namespace(api_version)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        from magmath.array.interchange import to_dlpack

        return to_dlpack(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        from magmath.array.interchange import CPU

        return CPU

    def to_device(self, device: object, /, *, stream: Any = None) -> Array:
        """This array, which lies on the pool's device already; DeviceError for another one."""
        from magmath.array.devices import check_device

        check_device("to_device", device)
        if stream is not None:
            raise ValueError(f"to_device: takes no stream, was given {stream!r}")
        return self

    def item(self) -> Number:
        """The value of a 0-d array as a Python number."""
        value: Number = self._scalar("item")
        return value

    def tolist(self) -> Any:
        """The values as nested Python lists."""
        return self.numpy().tolist()

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("a 0-d array has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        return (self[i] for i in range(len(self)))

    def __reduce__(self) -> tuple[Callable[..., Array], tuple[Any, ...]]:
        """For pickle: values, element type and the rule of the layout."""
        from magmath.array.pickling import reduced

        return reduced(self)

    def __copy__(self) -> Array:
        return self.__deepcopy__({})

    def __deepcopy__(self, memo: dict[int, object]) -> Array:
        """A copy with memory of its own, made by the workers."""
        from magmath.array.pickling import copied

        return copied(self)

    def __repr__(self) -> str:
        return printing.representation(self)

    def __str__(self) -> str:
        return printing.text(self)

    def _repr_html_(self) -> str:
        """A picture for notebooks: the shape, who holds what, and the values."""
        return printing.html(self)

    # layouts --------------------------------------------------------------------------------

    def redistribute(self, layout: Layout | Rule, dtype: DType | str | None = None) -> Array:
        """This array in another layout, and element type if given.

        Raises LayoutError for a layout of another shape or another pool's mesh.
        """
        from magmath.array.types import astype

        bound = bind_layout("redistribute", layout, self.shape)
        source = self if dtype is None else astype(self, dtype)
        node = Node(
            REDISTRIBUTE,
            (source.node,),
            NO_ATTRIBUTES,
            self.shape,
            source.dtype,
            layout=bound,
            line=user_line(),
        )
        return Array(node)

    def replicate(self, wait: bool = True) -> Array:
        """A copy on every worker (one per host where workers share memory).

        With `wait=False` it returns at once: the workers bring the copy while they compute what you
        ask for next, and wait for it where it is first used.
        """
        engine = session.engine()
        source = self if wait else Array(self.evaluated())
        result = source.redistribute(engine.environment.whole(self.shape, shared=True))
        if wait:
            evaluate(result)
            engine.wait()
        else:
            result.set_known(engine.redistributed(result.node, asynchronous=True))
        return result

    def explain(self) -> Explanation:
        """How this array is, was or would be computed: instructions, seconds, bytes, messages and
        memory, by operation and by line. Prints as a listing; its fields are the figures."""
        from magmath.array.explain import explain_array

        return explain_array(self)

    # operators ------------------------------------------------------------------------------

    @property
    def T(self) -> Array:
        """The transpose of a matrix."""
        if self.ndim != 2:
            raise ShapeError(f"T: needs 2 dimensions, this array has {self.ndim}; use permute_dims")
        return self.mT

    @property
    def mT(self) -> Array:
        """The last two axes exchanged."""
        from magmath.array.products import matrix_transpose

        return matrix_transpose(self)

    def __getitem__(self, key: Any) -> Array:
        from magmath.array.indexing import getitem

        return getitem(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        from magmath.array.indexing import setitem

        if sys.getrefcount(self) <= UNNAMED_TARGET:
            raise MagmathError(
                "x[i][j] = v: x[i] is another array, not a part of x, so nothing would be written; "
                "write x[i, j] = v"
            )
        unnamed = isinstance(value, Array) and sys.getrefcount(value) <= UNNAMED
        written = self._updated(setitem(self, key, value))
        self._formers = None  # what is written may take its memory
        if session.engine().settles([written.node, *([value.node] if unnamed else [])]):
            try:
                written.evaluated()
            except BaseException:
                if written.node.operation.updates and written.node.value is None:  # nothing written
                    former = Array(written.node.inputs[0])
                    self._node, self._leaf = former._node, former._leaf
                raise

    def __pos__(self) -> Array:
        check_kind("positive", "numeric", self.dtype)
        return Array(self._node)

    def __matmul__(self, other: Any) -> Array:
        from magmath.array.products import matmul

        return matmul(self, other) if isinstance(other, _MATRICES) else NotImplemented

    def __rmatmul__(self, other: Any) -> Array:
        from magmath.array.products import matmul

        return matmul(other, self) if isinstance(other, _MATRICES) else NotImplemented

    def _kind(self) -> DType | type:
        """What counts for the type of a result: an element type, or a class of Python's numbers."""
        return self.dtype

    def _unary(self, operation: str) -> Array:
        return unary(operation, self)

    def _binary(self, operation: str, other: Any) -> Array:
        if not isinstance(other, OPERANDS):
            if operation in _OF_STRANGERS and (other is None or isinstance(other, (str, bytes))):
                return self._compared_to_stranger(operation == "not_equal")
            return NotImplemented  # type: ignore[no-any-return]
        inputs = operands(operation, self, other)
        return Array(applied(e.OPERATIONS[operation], inputs, user_line(3)))

    def _reflected(self, operation: str, other: Any) -> Array:
        if not isinstance(other, OPERANDS):
            return NotImplemented  # type: ignore[no-any-return]
        inputs = operands(operation, other, self)
        return Array(applied(e.OPERATIONS[operation], inputs, user_line(3)))

    def _compared_to_stranger(self, differs: bool) -> Array:
        """What `==` and `!=` give for None and text, which no number equals: as NumPy, the same
        truth value for every element."""
        return Array(full(self.shape, leaves.constant(differs, bool_)))

    def _updated(self, result: Array) -> Array:
        """This handle on another value of the same shape and type: what `a += b` does."""
        new, old = result._node, self._node
        if new.shape != old.shape or new.dtype is not old.dtype:
            raise (ShapeError if result.shape != self.shape else DTypeError)(
                f"update in place: the array is {self.shape} {self.dtype}, its new value would be "
                f"{result.shape} {result.dtype}; write a = a + b for an array of another kind"
            )
        trace = tracing.current()
        if trace is not None:
            trace.note_update(self, old)
        else:
            note_update(old)
        self._replaced(old, new)
        self._node, self._leaf = new, result._leaf
        return self


# building expressions ---------------------------------------------------------------------------


def copy_of(array: Array, layout: Layout | None = None) -> Array:
    """A new array with the same values, sharing nothing; in `layout` if one is given."""
    return laid(Array(apply(e.ASTYPE, array.node, dtype=array.dtype, line=user_line())), layout)


def laid(array: Array, layout: Layout | None) -> Array:
    """An expression in a layout, if one is given and there is a choice."""
    if layout is None or (layout.is_on_single_worker and session.engine().environment.workers == 1):
        return array
    return Array(redistribute(array.node, layout))


OPERANDS = (Array, bool, int, float, complex, np.ndarray, np.generic, list, tuple)
_MATRICES = (Array, np.ndarray, list, tuple)
_OF_STRANGERS = ("equal", "not_equal")
_NUMBER_CLASSES = frozenset(PYTHON_NUMBERS)
_COMPARING = frozenset(
    ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "isin", "searchsorted")
)  # the operations that only compare their operands


def binary(operation: str, x: Any, y: Any) -> Array:
    """An element-wise operation of two operands, promoted and broadcast; one may be a number."""
    return Array(applied(e.OPERATIONS[operation], operands(operation, x, y), user_line()))


def unary(operation: str, x: Array) -> Array:
    """An element-wise operation of one array."""
    node = x.node
    if operation in e.FLOATING:
        node = e.astype(node, floating_dtype(node.dtype))
    return Array(applied(e.OPERATIONS[operation], (node,), user_line()))


def floating(operation: str, x: Any) -> Array:
    """An array (see `as_array`) with integers converted to floating point, by the one rule there is
    for that: `promotion.floating_dtype`."""
    array = as_array(operation, x)
    node = e.astype(array.node, floating_dtype(array.dtype))
    return array if node is array.node else Array(node)


def operands(operation: str, *values: Any) -> tuple[Node, ...]:
    """Nodes of one element type for arrays, Python numbers and nested lists of these: numbers take
    the arrays' type (`promotion.common_dtype`).

    Raises TypeError for numbers alone, DTypeError where there is no common type, RangeError for
    integers that it does not hold.
    """
    if len(values) == 2:  # nearly always two arrays of floats, or one and a number
        x, y = values
        first, second = type(x), type(y)
        if first is Array:
            node = x._node
            if node.dtype.kind == "float":
                if second is Array and y._node.dtype is node.dtype:
                    return node, y._node
                if second is float or second is int:
                    return node, leaves.parameter(y, node.dtype)
        elif second is Array and (first is float or first is int):
            node = y._node
            if node.dtype.kind == "float":
                return leaves.parameter(x, node.dtype), node
    given, kinds = [], []
    for value in values:
        kind: DType | type = type(value)
        if kind is Array:
            kind = value._node.dtype
        elif kind not in _NUMBER_CLASSES:
            value, kind = operand(operation, value)
        given.append(value)
        kinds.append(kind)
    if _NUMBER_CLASSES.issuperset(kinds) and all(map(is_number, given)):
        numbers = ", ".join(map(repr, values))
        raise TypeError(f"{operation}: needs an array, was given {numbers}")
    dtype = _operand_type(DEFAULT.floating, operation, *kinds)
    if operation == "power" and dtype.is_integer and is_number(given[1]) and given[1] < 0:
        raise negative_power(given[1])
    if operation in _COMPARING and dtype.is_integer:
        from magmath.array.comparable import comparable

        dtype, given = comparable(operation, dtype, given)
    return tuple(
        [
            value._node
            if type(value) is Array and value._node.dtype is dtype
            else node_of(operation, value, dtype)
            for value in given
        ]
    )


def operand(operation: str, value: Any) -> tuple[Any, DType | type]:
    """An operand as a number, a list of numbers or an array, and what counts for the type of a
    result: an element type, or a class of Python's numbers."""
    if is_number(value):
        return value, type(value)
    if isinstance(value, (list, tuple)):
        numbers = number_list(value)
        if numbers is not None:
            return numbers, numbers.kind
    array = as_array(operation, value)
    return array, array._kind()


def node_of(operation: str, value: Any, dtype: DType) -> Node:
    """The node of what `operand` returned, in a type that holds it."""
    if isinstance(value, Array):
        return e.astype(value._node, dtype)
    if isinstance(value, NumberList):
        from magmath.array.creation import asarray

        return asarray(value.values, dtype=dtype)._node
    return leaves.parameter(value, dtype, operation)


@lru_cache(maxsize=4096)
def _operand_type(default: DType, operation: str, *kinds: DType | type) -> DType:
    """The common type of operands of these kinds. It depends on the default floating point type,
    which is only here to be part of the cache's key."""
    arrays = [kind for kind in kinds if isinstance(kind, DType)]
    inexact = any(kind.kind in ("float", "complex") for kind in arrays)
    if operation in e.FLOATING and not inexact:
        kinds = tuple([floating_dtype(k) if isinstance(k, DType) else k for k in kinds])
    try:
        dtype = common_dtype(*kinds)
    except DTypeError as error:
        raise DTypeError(f"{operation}: {error}") from None
    if operation in e.FLOATING and not dtype.is_floating and dtype.kind != "complex":
        return floating_dtype(dtype)  # of numbers alone
    if operation in _COMPARING and dtype.is_floating and not inexact:
        return float64  # integers and a Python float: the result has another type anyway
    return dtype


def is_number(value: Any) -> bool:
    """True for a Python number, which takes the type of the arrays it meets; NumPy's do not."""
    return isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic)


def as_array(operation: str, value: Any) -> Array:
    """`value` itself if it is an Array; NumPy's arrays and scalars, and nested lists and tuples,
    are converted."""
    if isinstance(value, Array):
        return value
    if isinstance(value, (np.ndarray, np.generic, list, tuple)):
        from magmath.array.creation import asarray

        return asarray(value)
    raise TypeError(
        f"{operation}: needs magmath or NumPy arrays, or lists, was given "
        f"{type(value).__name__}; convert it with mm.asarray(x)"
    )


def bind_layout(operation: str, layout: Layout | Rule, shape: Shape) -> Layout:
    """A layout for this shape on the current pool; LayoutError naming what does not fit."""
    pool = session.engine().pool
    if isinstance(layout, Rule):
        layout = layout.bind(shape, pool.mesh)
    if not isinstance(layout, Layout):
        raise LayoutError(
            f"{operation}: needs a layout such as mm.Layout.split(0), was given {layout!r}"
        )
    if layout.shape != shape:
        raise LayoutError(
            f"{operation}: the layout is for shape {layout.shape}, the array has shape {shape}"
        )
    strangers = sorted(set(layout.mesh.workers) - set(pool.mesh.workers))
    if strangers:
        raise LayoutError(
            f"{operation}: the layout is for another mesh: the pool has workers "
            f"0 to {pool.workers - 1}, the layout names {strangers}; bind the rule anew, or start "
            f"more workers with mm.init(workers={max(strangers) + 1})"
        )
    return layout

"""The array: a handle on a node, with Python's operators.

Building an expression checks shapes and types at once and computes nothing. A value is computed
when it is needed: by printing, conversion, a truth test, or `evaluate`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from magmath.array import printing, session, tracing
from magmath.array.captured import note_update
from magmath.array.conversion import as_node, bind_layout
from magmath.array.devices import check_device
from magmath.array.dlpack import CPU, to_dlpack
from magmath.array.explain import explain_array
from magmath.array.handle import Handle, evaluate
from magmath.array.lines import user_line
from magmath.array.methods import Methods
from magmath.array.namespace import array_namespace
from magmath.array.numpy_protocols import call_function, call_ufunc
from magmath.array.operands import OPERANDS, operands, written_operand
from magmath.array.operators import Operators
from magmath.array.pickling import restored_leaf, values_of
from magmath.array.reuse import UNNAMED, UNNAMED_TARGET
from magmath.array.subscripts import getitem, setitem
from magmath.core.dtypes import DType, as_dtype, bool_
from magmath.core.numpy_names import hint
from magmath.core.promotion import floating_dtype
from magmath.errors import DTypeError, MagmathError, ShapeError
from magmath.graph import Node, applied, apply
from magmath.graph.node import NO_ATTRIBUTES
from magmath.layout import Layout, Rule
from magmath.ops import contraction, leaves
from magmath.ops import elementwise as e
from magmath.ops.creation import full
from magmath.ops.manipulation import permute
from magmath.ops.matrices import matrix_transpose
from magmath.ops.movement import REDISTRIBUTE, redistribute
from magmath.ops.rules import check_kind

if TYPE_CHECKING:
    from magmath.array.explanation import Explanation

Number = bool | int | float | complex
Operand: TypeAlias = (
    "Array | Number | np.ndarray[Any, Any] | np.generic | list[Any] | tuple[Any, ...]"
)


class Array(Handle, Operators, Methods["Array"]):
    """An n-dimensional array, divided over the workers as its layout says.

    Attributes: `shape`, `dtype`, `ndim`, `size`, `layout` (evaluates), `T`, `mT`, `device`,
    and of NumPy's `real`, `imag`, `nbytes`, `itemsize`, `flat` and the methods in `methods.py`.
    Values are immutable; `a += b` makes `a` a handle on another value, of the same shape and type.
    """

    __slots__ = ()
    __array_priority__ = 1000

    if not TYPE_CHECKING:  # to type checkers any name would pass

        def __getattr__(self, name: str) -> Any:
            """Say what to write for a name that arrays do not have."""
            namespace = array_namespace()
            known = name in dir(namespace) and callable(getattr(namespace, name))
            where = f"; write mm.{name}(x)" if known else hint(name)
            raise AttributeError(f"'Array' object has no attribute {name!r}{where}")

    @property
    def device(self) -> str:
        """The kind of device that the workers compute on."""
        return session.engine().pool.topology.device

    # values ---------------------------------------------------------------------------------

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

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        return call_ufunc(ufunc, method, inputs, options)

    def __array_function__(
        self,
        function: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any],
        options: Mapping[str, Any],
    ) -> Any:
        if not all(issubclass(one, (Array, np.ndarray)) for one in types):
            return NotImplemented
        return call_function(function, args, options)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        return array_namespace(api_version)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        return to_dlpack(self, stream, max_version, dl_device, copy)

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU

    def to_device(self, device: object, /, *, stream: Any = None) -> Array:
        """This array, which lies on the pool's device already; DeviceError for another one."""
        check_device("to_device", device)
        if stream is not None:
            raise ValueError(f"to_device: takes no stream, was given {stream!r}")
        return self

    def item(self, *index: Any) -> Number:
        """The value of an array of one element, or of the element at an index, as a Python number.

        An index is one number for each dimension, or one for the flattened array.
        """
        if index:
            place = index[0] if len(index) == 1 else index
            whole = isinstance(place, tuple) or self.ndim == 1
            element = self[place] if whole else self.ravel()[place]
        else:
            element = self.reshape(()) if self.size == 1 else self
        value: Number = element._scalar("item")
        return value

    def tobytes(self) -> bytes:
        """The values as bytes, in C order."""
        return self.numpy().tobytes()

    @property
    def itemsize(self) -> int:
        """The size of an element in bytes."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The size of all elements in bytes."""
        return self.size * self.dtype.itemsize

    @property
    def flat(self) -> Array:
        """The elements as an array of one dimension."""
        return self.ravel()

    @property
    def real(self) -> Array:
        """The real parts."""
        return unary("real", self)

    @property
    def imag(self) -> Array:
        """The imaginary parts; 0 for real numbers."""
        return unary("imag", self)

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
        return _restored, values_of(self)

    def __copy__(self) -> Array:
        return self.__deepcopy__({})

    def __deepcopy__(self, memo: dict[int, object]) -> Array:
        """A copy with memory of its own, made by the workers."""
        return Array(copy_of(self, self.layout).evaluated())

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
        bound = bind_layout("redistribute", layout, self.shape)
        line = user_line()
        source = self.node
        if dtype is not None:
            source = apply(e.ASTYPE, source, dtype=as_dtype(dtype), line=line)
        return Array(
            Node(
                REDISTRIBUTE, (source,), NO_ATTRIBUTES, self.shape, source.dtype, layout=bound,
                line=line,
            )
        )  # fmt: skip

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
            result.set_known(engine.redistributed(result.node, beside=True))
        return result

    def explain(self) -> Explanation:
        """How this array is, was or would be computed: instructions, seconds, bytes, messages and
        memory, by operation and by line. Prints as a listing; its fields are the figures."""
        return explain_array(self)

    # operators ------------------------------------------------------------------------------

    @property
    def T(self) -> Array:
        """The axes in reverse order: of a matrix, its transpose."""
        return (
            self.mT if self.ndim == 2 else Array(permute(self.node, tuple(range(self.ndim))[::-1]))
        )

    @property
    def mT(self) -> Array:
        """The last two axes exchanged."""
        return Array(matrix_transpose(self.node))

    def __getitem__(self, key: Any) -> Array:
        return Array(getitem(self.node, key))

    def __setitem__(self, key: Any, value: Any) -> None:
        if sys.getrefcount(self) <= UNNAMED_TARGET:
            raise MagmathError(
                "x[i][j] = v: x[i] is another array, not a part of x, so nothing would be written; "
                "write x[i, j] = v"
            )
        unnamed = isinstance(value, Array) and sys.getrefcount(value) <= UNNAMED
        written = self._updated(Array(setitem(self.node, key, written_operand(self.dtype, value))))
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
        return _product(self, other) if isinstance(other, _MATRICES) else NotImplemented

    def __rmatmul__(self, other: Any) -> Array:
        return _product(other, self) if isinstance(other, _MATRICES) else NotImplemented

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
    if layout is None or (layout.is_alone and session.engine().environment.workers == 1):
        return array
    return Array(redistribute(array.node, layout))


_MATRICES = (Handle, np.ndarray, list, tuple)
_OF_STRANGERS = ("equal", "not_equal")


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


def as_array(operation: str, value: Any) -> Array:
    """`value` itself if it is an Array; NumPy's arrays and scalars, and nested lists and tuples,
    are converted."""
    return value if isinstance(value, Array) else Array(as_node(operation, value))


def _product(x: Any, y: Any) -> Array:
    return Array(contraction.matmul(*operands("matmul", x, y), line=user_line()))


def _restored(*values: Any) -> Array:
    return Array(restored_leaf(*values))

"""The array: a handle on a node, with Python's operators.

Building an expression checks shapes and types at once and computes nothing. A value is computed
when it is needed: by printing, conversion, a truth test, or `evaluate`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from types import FrameType
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import DTypeLike

from magmath.array import session
from magmath.array.engine import Cell, Data, data_of
from magmath.core.dtypes import DType, default_dtype, promote, scalar_dtype
from magmath.core.shapes import size_of
from magmath.errors import LayoutError, ShapeError
from magmath.graph import Node, Shape, apply
from magmath.graph.node import NO_ATTRIBUTES, Line
from magmath.layout import Layout, Rule
from magmath.ops import elementwise as e
from magmath.ops import leaves
from magmath.ops.movement import REDISTRIBUTE, redistribute

Number = bool | int | float | complex
Operand: TypeAlias = "Array | Number | np.ndarray[Any, Any] | np.generic"
_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def user_line() -> Line:
    """The innermost line outside magmath: where the user wrote the operation."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_HERE):
        frame = frame.f_back
    return None if frame is None else (frame.f_code.co_filename, frame.f_lineno)


class Array:
    """An n-dimensional array, divided over the workers as its layout says.

    Attributes: `shape`, `dtype`, `ndim`, `size`, `layout` (evaluates), `T`, `mT`, `device`.
    Arrays are immutable once evaluated; `a += b` gives the name a new array.
    """

    __slots__ = ("_leaf", "_node", "_stamp")
    __array_priority__ = 1000

    def __init__(self, node: Node) -> None:
        self._node = node
        self._leaf: Node | None = node if node.name == "input" else None
        self._stamp: tuple[int, ...] = ()

    @property
    def node(self) -> Node:
        """The node this is a handle on."""
        return self._node

    @property
    def shape(self) -> Shape:
        """The extent of each dimension."""
        return self._node.shape

    @property
    def dtype(self) -> DType:
        """The element type."""
        return self._node.dtype

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self._node.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return size_of(self._node.shape)

    @property
    def layout(self) -> Layout:
        """How the array is divided over the workers; evaluates it first."""
        return data_of(self.evaluated()).layout

    @property
    def device(self) -> str:
        """The kind of device that the workers compute on."""
        return session.engine().pool.topology.device

    # evaluation -----------------------------------------------------------------------------

    def evaluated(self) -> Node:
        """The input leaf that holds this array's value, computed if it is not known."""
        evaluate(self)
        assert self._leaf is not None
        return self._leaf

    def is_known(self) -> bool:
        """True if the value is there and no variable has changed since."""
        return self._leaf is not None and self._stamp == self._versions()

    def _versions(self) -> tuple[int, ...]:
        node = self._node
        variables = (node,) if node.name == "variable" else node.variables
        return tuple(sorted(v.value.version for v in variables)) if variables else ()

    def set_known(self, leaf: Node) -> None:
        """Take `leaf` as this array's value; without variables, forget how it was made."""
        self._leaf = leaf
        if self._node.variables or self._node.name == "variable":
            self._stamp = self._versions()
        else:
            if not self._node.is_leaf:
                self._node.value = leaf  # pending expressions that read this node find it
            self._node = leaf

    def numpy(self) -> np.ndarray[Any, Any]:
        """A NumPy copy of the whole array (bfloat16 becomes float32)."""
        leaf = self.evaluated()
        data = data_of(leaf)
        tensor = data.pool.get(data.handle)
        return (tensor.float() if data.dtype.name == "bfloat16" else tensor).numpy()

    def __array__(
        self, dtype: DTypeLike | None = None, copy: bool | None = None
    ) -> np.ndarray[Any, Any]:
        values = self.numpy()
        return values if dtype is None else values.astype(dtype, copy=False)

    def _scalar(self, kind: str) -> Any:
        if self.size != 1 or self.ndim != 0:
            raise TypeError(f"{kind}(): needs a 0-d array, this one has shape {self.shape}")
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

    def __repr__(self) -> str:
        values = np.array2string(self.numpy(), threshold=60, edgeitems=3, precision=5)
        return (
            f"magmath.Array({values}, shape={self.shape}, dtype={self.dtype}, layout={self.layout})"
        )

    # layouts --------------------------------------------------------------------------------

    def redistribute(self, layout: Layout | Rule, dtype: DType | str | None = None) -> Array:
        """This array in another layout, and element type if given.

        Raises LayoutError for a layout of another shape or another pool's mesh.
        """
        from magmath.array.functions import astype

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

        With `wait=False` it returns at once; the copy is waited for at its first use.
        """
        engine = session.engine()
        result = self.redistribute(engine.environment.whole(self.shape, shared=True))
        evaluate(result)
        if wait:
            engine.wait()
        return result

    def explain(self) -> str:
        """How this array is, or would be, computed: the program, with bytes and messages."""
        from magmath.array.explain import explain

        return explain(self)

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
        from magmath.array.functions import matrix_transpose

        return matrix_transpose(self)

    def __getitem__(self, key: Any) -> Array:
        from magmath.array.indexing import getitem

        return getitem(self, key)

    def __matmul__(self, other: Array) -> Array:
        from magmath.array.functions import matmul

        return matmul(self, other)

    def __neg__(self) -> Array:
        return unary("negative", self)

    def __pos__(self) -> Array:
        return self

    def __abs__(self) -> Array:
        return unary("abs", self)

    def __invert__(self) -> Array:
        return unary("bitwise_invert", self)

    def __add__(self, other: Operand) -> Array:
        return _operator("add", self, other)

    def __radd__(self, other: Operand) -> Array:
        return _operator("add", other, self)

    def __sub__(self, other: Operand) -> Array:
        return _operator("subtract", self, other)

    def __rsub__(self, other: Operand) -> Array:
        return _operator("subtract", other, self)

    def __mul__(self, other: Operand) -> Array:
        return _operator("multiply", self, other)

    def __rmul__(self, other: Operand) -> Array:
        return _operator("multiply", other, self)

    def __truediv__(self, other: Operand) -> Array:
        return _operator("divide", self, other)

    def __rtruediv__(self, other: Operand) -> Array:
        return _operator("divide", other, self)

    def __floordiv__(self, other: Operand) -> Array:
        return _operator("floor_divide", self, other)

    def __rfloordiv__(self, other: Operand) -> Array:
        return _operator("floor_divide", other, self)

    def __mod__(self, other: Operand) -> Array:
        return _operator("remainder", self, other)

    def __rmod__(self, other: Operand) -> Array:
        return _operator("remainder", other, self)

    def __pow__(self, other: Operand) -> Array:
        return _operator("power", self, other)

    def __rpow__(self, other: Operand) -> Array:
        return _operator("power", other, self)

    def __and__(self, other: Operand) -> Array:
        return _operator("bitwise_and", self, other)

    def __rand__(self, other: Operand) -> Array:
        return _operator("bitwise_and", other, self)

    def __or__(self, other: Operand) -> Array:
        return _operator("bitwise_or", self, other)

    def __ror__(self, other: Operand) -> Array:
        return _operator("bitwise_or", other, self)

    def __xor__(self, other: Operand) -> Array:
        return _operator("bitwise_xor", self, other)

    def __rxor__(self, other: Operand) -> Array:
        return _operator("bitwise_xor", other, self)

    def __lshift__(self, other: Operand) -> Array:
        return _operator("bitwise_left_shift", self, other)

    def __rlshift__(self, other: Operand) -> Array:
        return _operator("bitwise_left_shift", other, self)

    def __rshift__(self, other: Operand) -> Array:
        return _operator("bitwise_right_shift", self, other)

    def __rrshift__(self, other: Operand) -> Array:
        return _operator("bitwise_right_shift", other, self)

    def __lt__(self, other: Operand) -> Array:
        return _operator("less", self, other)

    def __le__(self, other: Operand) -> Array:
        return _operator("less_equal", self, other)

    def __gt__(self, other: Operand) -> Array:
        return _operator("greater", self, other)

    def __ge__(self, other: Operand) -> Array:
        return _operator("greater_equal", self, other)

    def __eq__(self, other: Any) -> Array:  # type: ignore[override]
        return _operator("equal", self, other)

    def __ne__(self, other: Any) -> Array:  # type: ignore[override]
        return _operator("not_equal", self, other)

    __hash__ = object.__hash__


class Variable(Array):
    """A named array that optimizers change; expressions of it use its value when they run."""

    __slots__ = ("_cell",)

    def __init__(self, name: str, data: Data) -> None:
        self._cell = Cell(name, data)
        super().__init__(leaves.variable_leaf(data.shape, data.dtype, data.layout, self._cell))

    @property
    def name(self) -> str:
        """The name it was given."""
        return self._cell.name

    @property
    def cell(self) -> Cell:
        """Where the current value is kept."""
        return self._cell

    def set(self, value: Any) -> None:
        """Give it another value, of the same shape; the type is converted."""
        from magmath.array.creation import asarray

        shape = tuple(np.shape(value)) if not hasattr(value, "shape") else tuple(value.shape)
        if shape != self.shape:
            raise ShapeError(f"set: variable {self.name} has shape {self.shape}, not {shape}")
        array = asarray(value, dtype=self.dtype, layout=self.node.layout)
        self._cell.set(data_of(copy_of(array, self.node.layout).evaluated()))


# building expressions ---------------------------------------------------------------------------


def copy_of(array: Array, layout: Layout | None = None) -> Array:
    """A new array with the same values, sharing nothing; in `layout` if one is given."""
    copied = apply(e.ASTYPE, array.node, dtype=array.dtype, line=user_line())
    return Array(copied if layout is None else redistribute(copied, layout))


def _operator(operation: str, x: Operand, y: Operand) -> Array:
    if not (isinstance(x, OPERANDS) and isinstance(y, OPERANDS)):
        return NotImplemented
    return binary(operation, x, y)


OPERANDS = (Array, bool, int, float, complex, np.ndarray, np.generic)


def binary(operation: str, x: Any, y: Any) -> Array:
    """An element-wise operation of two operands, promoted and broadcast; one may be a number."""
    return Array(apply(e.OPERATIONS[operation], *operands(operation, x, y), line=user_line()))


def unary(operation: str, x: Array) -> Array:
    """An element-wise operation of one array."""
    return Array(apply(e.OPERATIONS[operation], x.node, line=user_line()))


def operands(operation: str, *values: Any) -> tuple[Node, ...]:
    """Nodes of one element type for arrays and Python numbers (numbers take the arrays' type)."""
    if not any(isinstance(v, (Array, np.ndarray, np.generic)) for v in values):
        raise TypeError(f"{operation}: needs an array, was given {', '.join(map(repr, values))}")
    arrays = [v if _is_number(v) else as_array(operation, v) for v in values]
    strong = [a.dtype for a in arrays if isinstance(a, Array) and not isinstance(a, WeakNumber)]
    weak = [a.sample if isinstance(a, WeakNumber) else a for a in arrays
            if isinstance(a, WeakNumber) or not isinstance(a, Array)]  # fmt: skip
    dtype = promote(*strong) if strong else default_dtype(max(weak, key=_rank))
    for value in weak:
        dtype = promote(dtype, scalar_dtype(value, dtype))
    return tuple(
        e.astype(a.node, dtype) if isinstance(a, Array) else leaves.parameter(a, dtype)
        for a in arrays
    )


def _rank(value: bool | int | float | complex) -> int:
    return [bool, int, float, complex].index(type(value))


class WeakNumber(Array):
    """A Python number that a compiled function will be given: it takes the type of the arrays it
    meets, as the number itself does. `sample` is any number of its kind."""

    __slots__ = ("sample",)

    def __init__(self, node: Node, sample: bool | int | float | complex) -> None:
        self.sample = sample
        super().__init__(node)


def _is_number(value: Any) -> bool:
    return isinstance(value, (bool, int, float, complex)) and not isinstance(value, np.generic)


def as_array(operation: str, value: Any) -> Array:
    """`value` itself if it is an Array; NumPy's arrays and scalars are taken over."""
    if isinstance(value, Array):
        return value
    if isinstance(value, (np.ndarray, np.generic)):
        from magmath.array.creation import asarray

        return asarray(value)
    raise TypeError(
        f"{operation}: needs magmath or NumPy arrays or numbers, was given "
        f"{type(value).__name__}; convert it with mm.asarray(x)"
    )


def bind_layout(operation: str, layout: Layout | Rule, shape: Shape) -> Layout:
    """A layout for this shape on the current pool; LayoutError naming what does not fit."""
    pool = session.engine().pool
    if isinstance(layout, Rule):
        layout = layout.bind(shape, pool.mesh)
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


def evaluate(*arrays: Array) -> None:
    """Compute the values of arrays together, in one program."""
    missing = list({id(a): a for a in arrays if not a.is_known()}.values())
    if not missing:
        return
    for array, leaf in zip(
        missing, session.engine().evaluate([a.node for a in missing]), strict=True
    ):
        array.set_known(leaf)

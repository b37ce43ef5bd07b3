"""The node: one operation applied to inputs, immutable, with its shape, dtype and user's line.

A node is built when the user writes the operation, so that errors are reported there. Leaves are
nodes without inputs: `input` (an evaluated array), `variable` (a named cell whose current array is
read when a program runs) and `parameter` (a Python number, never part of a program's key). `layout`
is None until the place pass chooses one, except for leaves whose data are stored already.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import TYPE_CHECKING, Any

from magmath.core.dtypes import DType
from magmath.graph.arithmetic import Arithmetic
from magmath.layout import Layout

if TYPE_CHECKING:
    from magmath.graph.index_notation import IndexNotation
    from magmath.graph.operation import Operation
    from magmath.graph.provenance import Provenance, WeakResult

Shape = tuple[int, ...]
Line = tuple[str, int] | None
NO_ATTRIBUTES: Mapping[str, Any] = {}


class Signature:
    """The common properties of all applications of an operation with the same attributes to
    operands of the same shapes and types.

    These are the shape and type of the result, and, once they are computed, the index notation and
    (`ready`) the prepared step that computes such a node eagerly.
    """

    __slots__ = ("dtype", "index_notation", "nbytes", "ready", "shape")

    def __init__(self, shape: Shape, dtype: DType) -> None:
        self.shape = shape
        self.dtype = dtype
        self.nbytes = prod(shape) * dtype.itemsize
        self.ready: Any = None
        self.index_notation: IndexNotation | None = None


class Node(Arithmetic):
    """An immutable application of an operation.

    `value` is the data of an `input`, a weak reference to the variable of a `variable`, and the
    number of a `parameter`; for any other node it is the leaf that holds the node's value, once it
    is computed. `reads_version` is True for expressions of a variable's value: an assignment to the
    variable searches for pending ones. `depth` is the largest number of operations between the node
    and a leaf. `signature` holds the properties that the node shares with equal applications, or
    None. `provenance` records how the value of a leaf was computed; `result` is a weak reference to
    the leaf that will hold the value of a pending node, for objects that do not hold the node
    itself.
    """

    __slots__ = (
        "__weakref__",
        "attributes",
        "depth",
        "dtype",
        "inputs",
        "layout",
        "line",
        "operation",
        "provenance",
        "reads_version",
        "result",
        "shape",
        "signature",
        "value",
    )

    def __init__(
        self,
        operation: Operation,
        inputs: tuple[Node, ...],
        attributes: Mapping[str, Any],
        shape: Shape,
        dtype: DType,
        layout: Layout | None = None,
        line: Line = None,
        value: Any = None,
        form: Signature | None = None,
    ) -> None:
        self.operation = operation
        self.inputs = inputs
        self.attributes = attributes
        self.shape = shape
        self.dtype = dtype
        self.layout = layout
        self.line = line
        self.value = value
        self.signature = form
        self.provenance: Provenance | None = None
        self.result: WeakResult | None = None
        depth: int = 0
        reads_version: bool = operation.version
        for node in inputs:
            deep = node.depth if node.value is None else 0
            if deep >= depth:
                depth = deep + 1
            if node.reads_version:
                reads_version = True
        self.depth: int = depth
        self.reads_version: bool = reads_version

    @property
    def name(self) -> str:
        """The operation's name."""
        return self.operation.name

    @property
    def known(self) -> Node:
        """The leaf that holds the node's value if it is computed, otherwise the node itself."""
        return self.value if isinstance(self.value, Node) else self

    @property
    def is_leaf(self) -> bool:
        """True for inputs, variables and parameters."""
        return self.operation.leaf

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    def replace(self, inputs: tuple[Node, ...], layout: Layout | None = None) -> Node:
        """Return the same operation on other inputs of the same shapes and types, in a layout."""
        return Node(
            self.operation,
            inputs,
            self.attributes,
            self.shape,
            self.dtype,
            layout=layout if layout is not None else self.layout,
            line=self.line,
            value=self.value,
            form=self.signature,
        )

    def __repr__(self) -> str:
        layout = f" {self.layout}" if self.layout is not None else ""
        return f"{self.name}{list(self.shape)}:{self.dtype}{layout}"

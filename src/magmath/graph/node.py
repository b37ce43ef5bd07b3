"""The node: one operation applied to inputs, immutable, with its shape, dtype and user's line.

A node is built the moment the user writes the operation, so a mistake is reported there. Leaves
are nodes without inputs: `input` (an evaluated array), `variable` (a named cell whose current array
is looked up when a program runs) and `parameter` (a Python number, never part of a program's key).
`layout` is None until the place pass has chosen one, except for leaves, whose data lie somewhere.
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
    """What the applications of an operation, with the same attributes, to operands of the same
    shapes and types have in common: the result's shape and type, and once they are known the index
    structure, and under `ready` what computes such a node at once."""

    __slots__ = ("dtype", "index_notation", "nbytes", "ready", "shape")

    def __init__(self, shape: Shape, dtype: DType) -> None:
        self.shape = shape
        self.dtype = dtype
        self.nbytes = prod(shape) * dtype.itemsize
        self.ready: Any = None
        self.index_notation: IndexNotation | None = None


class Node(Arithmetic):
    """An operation's immutable application.

    `value` is the data behind an `input`, a weak reference to the variable of a `variable`, the
    number of a `parameter`; of any other node the leaf that holds its value, once it is computed.
    `reads_version` is True for expressions of a variable's value: a variable that is assigned looks
    for those that are still pending. `depth` is the largest number of operations between the node
    and a leaf. `form` holds what the node has in common with others of its kind, or None.
    `provenance` says how the value of a leaf was computed; `result` is a weak reference to the leaf
    that will hold the value of a pending node, for those that do not hold the node itself.
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
        """The leaf that holds the node's value, once that is known; until then the node itself."""
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
        """The same operation on other inputs of the same shapes and types, in a layout."""
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

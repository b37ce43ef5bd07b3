"""Nodes and definitions of operations: the two types refer to each other, so they share a file.

A node is one operation applied to inputs, with its shape, dtype and user's line. It is built when
the user writes the operation, so that errors are reported there. Leaves get their values from a
run: `input` (an evaluated array), `variable` (a named cell whose current array is read when a
program runs) and `scalar` (a Python number, never part of a program's key). `layout` is None
until the place pass chooses one, except for leaves whose data are stored already.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NoReturn, final
from weakref import ref

from msgspec import Struct, field

from magmath.core.dtypes import DType
from magmath.core.shapes import Shape
from magmath.core.type_aliases import BoundCall
from magmath.graph.arithmetic import Arithmetic
from magmath.graph.index_notation import IndexNotation
from magmath.graph.kernel_call import CollectiveCall, KernelCall, Workspace
from magmath.graph.node_layouts import NodeLayouts
from magmath.graph.numpy_ufunc import NumpyUfunc
from magmath.graph.public_function import NOT_PUBLIC, PublicFunction
from magmath.graph.signature import Signature
from magmath.layout import Layout, Mesh, Split

if TYPE_CHECKING:
    from magmath.codegen.emit import NativeForm


Line = tuple[str, int] | None
NO_ATTRIBUTES: Mapping[str, Any] = MappingProxyType({})

next_sequence_number: Callable[[], int] = count(1).__next__
"""Return a larger number than every one before: the numbers of nodes, and of the records of how
arrays were computed, are in the order of their creation."""


@final
class Node(Arithmetic, Struct, eq=False, weakref=True):
    """An immutable application of an operation.

    `reads_version` is True for expressions of a variable's value: an assignment to the variable
    searches for pending ones. `is_of_numbers` is True for numbers and what is computed from numbers
    alone, without random ones. `signature` holds the properties that the node shares with equal
    applications, or None. `sequence_number` is larger than those of all nodes that it was
    computed from.

    Six slots are the evaluation state of the node. They change while it is evaluated, and only by
    the functions of `graph/evaluation_state.py`, and `operand_references.set_provenance`:

    value       the data of an `input`, a weak reference to the variable of a `variable`, and the
                number of a `scalar`; for any other node the leaf that holds the node's value,
                once it is computed
    result      a weak reference to the leaf that will hold the value of a pending node, for objects
                that do not hold the node itself
    user_array  a weak reference to the latest array of the user's code that refers to the node, or
                to an earlier one once that is gone
    provenance  how the value of a leaf was computed (`provenance.provenance_of` returns it)
    inputs      leaves take the places of inputs whose values are known
    depth       the largest number of operations between the node and what was known when it was
                made, or last counted (`update_depth`)

    In addition, `set_variable_layout` changes the layout of a variable's leaf. Assignments to
    fields raise AttributeError, and `attributes` is read-only.
    """

    operation: Operation
    inputs: tuple[Node, ...]
    attributes: Mapping[str, Any]
    shape: Shape
    dtype: DType
    layout: Layout | None = None
    line: Line = None
    value: Any = None
    signature: Signature | None = None
    depth: int = 0
    reads_version: bool = False
    is_of_numbers: bool = False
    provenance: Any = None
    result: WeakResult | None = None
    user_array: Callable[[], Any] | None = None
    sequence_number: int = field(default_factory=next_sequence_number)

    @property
    def name(self) -> str:
        """The operation's name."""
        return self.operation.name

    @property
    def leaf_or_self(self) -> Node:
        """The leaf that holds the node's value if it is computed, otherwise the node itself."""
        return self.value if isinstance(self.value, Node) else self

    @property
    def is_leaf(self) -> bool:
        """True for inputs, variables and scalars, whose values a run is given."""
        return self.operation.is_leaf

    @property
    def is_leaf_or_constant(self) -> bool:
        """True for leaves and constants, which are computed from nothing."""
        return self.operation.is_leaf or self.operation.name == "constant"

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return prod(self.shape)

    @property
    def index_notation(self) -> IndexNotation:
        """The index notation of the operation on these operands."""
        signature = self.signature
        if signature is None:
            return IndexNotation.parse(self.operation.axes(self), len(self.inputs))
        if signature.index_notation is None:
            notation = IndexNotation.parse(self.operation.axes(self), len(self.inputs))
            signature.index_notation = notation
        return signature.index_notation

    def replace(
        self, inputs: tuple[Node, ...], layout: Layout | None = None, line: Line = None
    ) -> Node:
        """Return the same operation on other inputs of the same shapes and types.

        It has this layout and line, if they are given, otherwise those of the node.
        """
        return make_node(
            self.operation,
            inputs,
            self.attributes,
            self.shape,
            self.dtype,
            self.layout if layout is None else layout,
            self.line if line is None else line,
            self.value,
            self.signature,
        )

    def with_inputs(self, inputs: tuple[Node, ...]) -> Node:
        """Return the same operation on these inputs: the node itself if they are its own."""
        return self if inputs == self.inputs else self.replace(inputs)

    @property
    def nbytes(self) -> int:
        """The bytes of the whole value."""
        if self.signature is not None:
            return self.signature.nbytes
        return self.size * self.dtype.itemsize

    def without_value(self) -> Node:
        """Return the same node, not yet computed."""
        return make_node(
            self.operation, self.inputs, self.attributes, self.shape, self.dtype, self.layout,
            self.line, None, self.signature,
        )  # fmt: skip

    def at_line(self, line: Line) -> Node:
        """Return the same node with this line of the user's code, if one is given.

        A computed node is returned itself: its provenance, by which it has gradients, is its own.
        """
        is_computed = self.value is not None and self.operation.name != "scalar"
        if line is None or line == self.line or is_computed:
            return self
        return self.replace(self.inputs, line=line)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(
            f"node {self.name}: cannot assign {name}; nodes are immutable, so build another one "
            f"with Node.replace, Node.at_line or apply"
        )

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"node {self.name}: cannot delete {name}; nodes are immutable")

    def __repr__(self) -> str:
        layout = f" {self.layout}" if self.layout is not None else ""
        return f"{self.name}{list(self.shape)}:{self.dtype}{layout}"


def make_node(
    operation: Operation,
    inputs: tuple[Node, ...],
    attributes: Mapping[str, Any],
    shape: Shape,
    dtype: DType,
    layout: Layout | None = None,
    line: Line = None,
    value: Any = None,
    signature: Signature | None = None,
) -> Node:
    """Return an application of an operation, whose shape and dtype are already known."""
    depth = 1 if inputs else 0
    reads_version = operation.is_version
    is_of_numbers = not operation.is_random
    for node in inputs:
        if node.value is None and node.depth >= depth:
            depth = node.depth + 1
        if node.reads_version:
            reads_version = True
        if not node.is_of_numbers:
            is_of_numbers = False
    return new_node(
        operation, inputs, attributes, shape, dtype, layout, line, value, signature, depth,
        reads_version, is_of_numbers,
    )  # fmt: skip


new_node: Callable[..., Node] = Node
"""Makes a node from its fields: `Node`, except while a thread collects its new nodes
(`node_collection`)."""


@final
class WeakResult:
    """A weak reference to the leaf with the value of a node that is not evaluated yet."""

    __slots__ = ("_leaf",)

    def __init__(self) -> None:
        self._leaf: Callable[[], Node | None] = _nothing

    def __call__(self) -> Node | None:
        return self._leaf()

    def resolve(self, leaf: Node) -> None:
        """Set the leaf with the node's value, after its evaluation."""
        self._leaf = ref(leaf)


def _nothing() -> None:
    return None


# Definitions of operations


ShapeAndType = tuple[Shape, DType]
Infer = Callable[..., ShapeAndType]
Axes = Callable[[Node], str]
Gradients = tuple[Node | None, ...]
Vjp = Callable[[Node, Node], Gradients]
Kernel = Callable[[KernelCall], BoundCall]
NumpyFunction = Callable[[Node], Callable[..., object] | None]
MemoryOrder = tuple[int, ...]
"""The dimensions of an array from the outermost in memory to the innermost."""
MemoryOrders = Callable[[Node], Sequence["MemoryOrder | None"]]
Decompositions = Callable[[Node, Sequence[Layout]], Sequence[Node]]
DerivedSplit = Callable[[Node, str, Split, int | None], Split | None]
OnlyLayouts = Callable[[Node, Mesh], NodeLayouts]
OperandCheck = Callable[[Any], object]
SameBits = Callable[[DType, Sequence[DType]], bool]
"""(the result's type, the operands' types) → whether the native form and the kernel give the same
bits."""


def is_never_exact(result: DType, operands: Sequence[DType]) -> bool:
    """Return False, for operations whose native form rounds differently."""
    return False


def no_decomposition(node: Node, layouts: Sequence[Layout]) -> Sequence[Node]:
    """Return no decompositions."""
    return ()


def any_memory_order(node: Node) -> Sequence[MemoryOrder | None]:
    """Return no preferences, for kernels that are equally fast in all memory orders."""
    return (None,) * (len(node.inputs) + 1)


def full_speed(node: Node, local: Shape) -> float:
    """Return 1, the efficiency of operations whose speed does not depend on the shape of the
    piece."""
    return 1.0


def touches_nothing(node: Node, workers: int) -> int:
    """Return 0, for kernels whose arithmetic reuses most of the data that it reads."""
    return 0


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CollectiveKernel:
    """The collective computation of an operation by the workers of a mesh.

    layouts                (node, mesh of one dimension) → the layouts of its operands and of its
                           result, which divide dimensions that the index notation keeps whole; None
                           if they cannot
    kernel                 CollectiveCall → bound call. Every worker makes it, also one that stores
                           nothing. Errors that data can cause (LinAlgError) must occur on all
                           workers, or after the last exchange
    workspace              (node, number of workers) → the workspace on each worker
    traffic                (node, number of workers) → bytes between workers, and number of messages
    touched_bytes          (node, number of workers) → the bytes of its own memory that a worker
                           touches and for which the arithmetic must wait
    is_all_to_all          the traffic is spread over the workers: all send and receive at once
    reads_peers            workers that share memory send nothing: they synchronize once, and each
                           reads the data of the others
    is_worker_independent  returns the same bits for any number of workers: allowed in deterministic
                           mode
    """

    layouts: Callable[[Node, Mesh], NodeLayouts | None]
    kernel: Callable[[CollectiveCall], BoundCall]
    workspace: Callable[[Node, int], Workspace]
    traffic: Callable[[Node, int], tuple[int, int]]
    touched_bytes: Callable[[Node, int], int] = touches_nothing
    is_all_to_all: bool = False
    reads_peers: bool = False
    is_worker_independent: bool = False


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class CheckedOperands:
    """The operands whose values can make an operation, or its gradient, fail: indices, matrices,
    parameters.

    positions      node → their positions in `inputs`
    harmless       (node, position) → a value for such an operand with which the operation and its
                   gradient succeed; it broadcasts to the operand
    check          (node, position) → a function that raises the error for a value of the operand, a
                   number or a NumPy array, with which the operation fails; None: only the kernel
                   can tell
    accepts_draws  operands that are computed from random numbers, such as the order of a data set,
                   do not make it fail
    """

    positions: Callable[[Node], Sequence[int]]
    harmless: Callable[[Node, int], Node]
    check: Callable[[Node, int], OperandCheck] | None = None
    accepts_draws: bool = False


@final
@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operation:
    """The definition of an operation: its shape rule, gradient, index letters, kernels and costs.

    A `Node` is one application of it. What it computes:

    infer             (*inputs, **attributes) → (shape, dtype); raises for invalid operands
    axes              node → index notation (graph/index_notation.py)
    reduction         how letters that the result lacks are combined over workers, or None
    vjp               (node, cotangent) → a cotangent for each input, or None where it has none
    reference         the same on NumPy arrays: (*arrays, **attributes)
    is_elementwise    computes each element from the corresponding elements of its operands
    is_additive       is the sum of its operands: pending sums may be added before they are reduced
    reads_subset      reads at most as many elements of its first operand as the result holds (for
                      the cost model)
    checked           the operands whose values can make it fail; None: it never does

    How it is computed:

    kernel            KernelCall → bound call, on torch tensors of any device
    native            its form in a native function; None: it remains a call between such functions
    has_same_bits     (the result's type, its operands') → True if the native form, with each
                      operation rounded by itself, gives the bits of the kernel (nan counts as one
                      value)
    expansion         node → the same in simpler operations, by which the passes replace it; such a
                      record exists for its gradient and has no kernel, but perhaps NumPy's code
    decompositions    (node, its operands' layouts) → graphs of other operations on the same inputs
                      that compute the same; the place pass chooses the cheapest
    epilogues         what its kernel can apply to the result before storing it, each an attribute
                      of the record's nodes: "convert" (to another type), "bias" (add a row),
                      "residual" (add an array), "accumulate" (c + alpha·result), or an activation
                      by name; `fold_epilogues` folds such nodes into it
    bias_axis         the dimension of the result along which a bias varies
    numpy_ufunc       NumPy's function of the same meaning, if it is faster for short arrays
    numpy_function    node → code on NumPy's arrays, a function of whole operands and of the result
                      that is faster than the kernel for short arrays, or None
    uses_lapack       computed by LAPACK: one worker may compute it for all, with the threads of its
                      whole host

    Where it is computed:

    derived_split     (node, letter, its split, operand) → the split of the dimension with the
                      letter's upper-case form, in an operand by its number or (None) in the result;
                      None: a layout cannot express it
    only_layouts      (node, mesh of one dimension) → the layouts of its operands and of its result
                      on several workers, for operations whose layouts are prescribed; None: the
                      place pass chooses
    collective        how all workers compute it collectively if letters cannot divide it, or None

    What it costs:

    flops             node → arithmetic operations, for the cost model
    efficiency        (node, shape of a local result) → share of the full speed that such a piece
                      reaches

    How its operands and its result are stored:

    memory_orders     node → the memory order that the kernel prefers for each operand and for the
                      result, None where it has no preference; the kernel accepts any order. If the
                      field is None, it requires row-major order (element-wise operations accept any
                      order that their arrays have in common)
    can_overwrite_operand
                      may be computed in the storage of its only operand, if shape and type agree
    grows_operand     its only operand may be stored at the beginning of its memory, in row-major
                      order, and is overwritten there
    overwrites_first  is its first operand with a part overwritten: may be computed in its storage
                      if no other operand is stored there
    is_view           its result may be stored in the memory of its first operand, as a view
    is_move           its elements are those of its first operand, maybe in another layout

    What kind of node it makes:

    is_leaf           gets its value from a run: an input, a variable or a scalar
    is_version        the value of a variable at a line of the user's code (`ops/leaves.py`)
    is_random         draws random numbers
    is_mark           its value is its first operand; autodiff and batching read the others
    is_gradient       a mark of a gradient, which counts as a constant in later ones

    What users see of it:

    public            the public function of an element-wise operation
    """

    name: str
    infer: Infer
    axes: Axes
    reduction: str | None
    vjp: Vjp
    reference: Callable[..., Any]
    kernel: Kernel
    native: NativeForm | None
    flops: Callable[[Node], float]
    is_elementwise: bool = False
    is_additive: bool = False
    reads_subset: bool = False
    checked: CheckedOperands | None = None
    has_same_bits: SameBits = is_never_exact
    expansion: Callable[[Node], Node] | None = None
    decompositions: Decompositions = no_decomposition
    epilogues: frozenset[str] = frozenset()
    bias_axis: int = -1
    numpy_ufunc: NumpyUfunc | None = None
    numpy_function: NumpyFunction | None = None
    uses_lapack: bool = False
    derived_split: DerivedSplit | None = None
    only_layouts: OnlyLayouts | None = None
    collective: CollectiveKernel | None = None
    efficiency: Callable[[Node, Shape], float] = full_speed
    memory_orders: MemoryOrders | None = None
    can_overwrite_operand: bool = False
    grows_operand: bool = False
    overwrites_first: bool = False
    is_view: bool = False
    is_move: bool = False
    is_leaf: bool = False
    is_version: bool = False
    is_random: bool = False
    is_mark: bool = False
    is_gradient: bool = False
    public: PublicFunction = NOT_PUBLIC

    def __repr__(self) -> str:
        return f"Operation({self.name})"

"""The operation record: everything magmath knows about one operation, in one place.

Every field is required, so that a missing rule is found at import and not in a user's run.
`axes` names each dimension by a letter, one string an operand and one for the result
(`"mk,kn->mn"`); a letter may be split over workers if every operand that has it is split alike,
a letter missing from the result is combined by `reduction`, and `.` marks a dimension that must be
whole. A dimension with the upper-case form of a letter follows the ones that have the letter: its
extent is another, and it is divided where they are, as `follow` says (`"ab->Ab"` for a slice of
rows: who holds rows holds those of them that are in the slice). From it the placements are derived,
one mesh axis at a time (`passes/place.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from magmath.core.bounded_memo import store_bounded
from magmath.core.dtypes import DType
from magmath.core.index_set import Tile
from magmath.graph.distributed import DistributedKernel
from magmath.graph.node import NO_ATTRIBUTES, Line, Node, Shape, Signature
from magmath.layout import Layout, Split

if TYPE_CHECKING:
    import torch


class KernelContext(Protocol):
    """What a kernel may ask of the executor that binds it."""

    deterministic: bool

    @property
    def rank(self) -> int:
        """The number of this worker."""

    def gemm(
        self,
        out: torch.Tensor,
        a: torch.Tensor,
        b: torch.Tensor,
        *,
        bias: torch.Tensor | None = None,
        activation: str = "none",
        alpha: torch.Tensor | None = None,
        accumulate: bool = False,
    ) -> Callable[[], object]:
        """A ready product: out = activation(a·b + bias), or out += alpha·a·b."""


@dataclass(slots=True)
class KernelCall:
    """One operation on one worker's tensors, to be bound to a ready call.

    `out` and `inputs` are local tensors (0-d CPU tensors for Python numbers). For operations that
    count elements, `tile` and `tiles` say which elements of the whole arrays they hold, and `shape`
    and `shapes` what the shapes of the whole arrays are. `repeated`: other workers compute the same
    elements.
    """

    out: torch.Tensor
    inputs: list[torch.Tensor]
    attributes: Mapping[str, Any]
    tile: Tile
    tiles: list[Tile]
    shape: Shape
    shapes: list[Shape]
    context: KernelContext
    repeated: bool = False


class NumpyUfunc(NamedTuple):
    """NumPy's function for an operation, given its operands and its result, quicker than torch's on
    results of up to `most` elements, where calling it takes longer than the arithmetic."""

    function: Callable[..., Any]
    most: int


Inference = tuple[Shape, DType]
Infer = Callable[..., Inference]
Axes = Callable[[Node], str]
Gradients = tuple["Node | None", ...]
Vjp = Callable[[Node, Node], Gradients]
Kernel = Callable[[KernelCall], Callable[[], object]]
Decompositions = Callable[[Node, Sequence[Layout]], Sequence[Node]]
DerivedSplit = Callable[[Node, str, Split, "int | None"], "Split | None"]
Native = Any
"""A scalar expression such as "({0} + {1})", one for each kind of the result's type, a `Reading` of
other places, an emitter (`codegen/emit.py`), or None."""


SameBits = Callable[[DType, Sequence[DType]], bool]
"""(the result's type, the operands' types) → whether two ways to compute give the same bits."""


def no_same_bits(result: DType, operands: Sequence[DType]) -> bool:
    """Of operations whose native form rounds in its own way."""
    return False


def no_decomposition(node: Node, layouts: Sequence[Layout]) -> Sequence[Node]:
    """Of operations that are computed as they stand."""
    return ()


def full_speed(node: Node, local: Shape) -> float:
    """The efficiency of operations that do not care how their result is cut."""
    return 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operation:
    """One operation.

    infer      (*inputs, **attributes) → (shape, dtype); raises for operands it cannot take
    axes       node → index structure, as above
    reduction  how letters that the result lacks are combined over workers, or None
    vjp        (node, cotangent) → a cotangent for each input, or None where there is none
    kernel     LocalCall → ready call, on torch tensors of any device
    native     how it is written in a native function; None: it stays a call between such functions
    same_bits  (the result's type, its operands') → True if the native form, with each operation
               rounded by itself, gives the bits that the kernel gives (nan counts as one value)
    reference  the same on NumPy arrays: (*arrays, **attributes)
    epilogues  what its kernel may do with the result before it is stored, each an attribute of the
               record's nodes: "convert" (to another type), "bias" (add a row), "accumulate" (c +
               alpha·result), or an activation by name; the fuse pass folds such nodes into it
    flops      node → arithmetic operations, for the cost model
    efficiency (node, shape of a local result) → share of the full speed that such a piece reaches
    ways       (node, its operands' layouts) → graphs of other operations on the same inputs that
               compute the same; the place pass takes whichever is cheapest
    follow     (node, letter, its split, operand) → how the dimension with the letter's upper-case
               form is divided then, in an operand by its number or (None) in the result; None: not
               in a way that a layout can express
    selects    reads no more of its first operand than the result holds (for the cost model)
    in_place   may be computed in the storage of its only operand, if that is of its shape and type
    updates    is the first operand but for what it overwrites: may be computed in its storage
    expand     node → the same in simpler operations, by which the passes replace it; such a record
               is there for its gradient and has no kernel
    brief      NumPy's function of the same meaning, where it is the quicker one for short arrays
    lapack     computed by LAPACK: data can make it fail (LinAlgError), and one worker may compute
               it for all, with the threads of its whole host
    collective how all workers compute it together where letters cannot divide it, or None
    version    the value that a variable has at a line of the user's (`ops/leaves.py`)
    """

    name: str
    infer: Infer
    axes: Axes
    reduction: str | None
    vjp: Vjp
    kernel: Kernel
    native: Native
    reference: Callable[..., Any]
    flops: Callable[[Node], float]
    same_bits: SameBits = no_same_bits
    epilogues: frozenset[str] = frozenset()
    efficiency: Callable[[Node, Shape], float] = full_speed
    decompositions: Decompositions = no_decomposition
    derived_split: DerivedSplit | None = None
    reads_subset: bool = False
    in_place: bool = False
    overwrites_first: bool = False
    elementwise: bool = False
    leaf: bool = False
    lower_to: Callable[[Node], Node] | None = None
    numpy_ufunc: NumpyUfunc | None = None
    lapack: bool = False
    distributed: DistributedKernel | None = None
    version: bool = False

    def __repr__(self) -> str:
        return f"Operation({self.name})"


_forms: dict[Hashable, Signature] = {}
_MOST_FORMS = 10_000


def apply(
    operation: Operation,
    *inputs: Node,
    line: Line = None,
    **attributes: Any,
) -> Node:
    """A new node; infers and checks the shape and dtype of the result.

    Its line is that of its first operand, if none is given.
    """
    return applied(operation, inputs, line, attributes or NO_ATTRIBUTES)


def applied(
    operation: Operation,
    inputs: tuple[Node, ...],
    line: Line,
    attributes: Mapping[str, Any] = NO_ATTRIBUTES,
) -> Node:
    """The same, for those who have operands and attributes in their places.

    An inference depends on nothing but the operation, its attributes and its operands' shapes and
    types, so it is made once for each combination of these.
    """
    if attributes:
        key: Hashable = (operation, *attributes.items(), *[(x.shape, x.dtype) for x in inputs])
    elif len(inputs) == 2:
        x, y = inputs
        key = (operation, x.shape, x.dtype, y.shape, y.dtype)
    else:
        key = (operation, *[(x.shape, x.dtype) for x in inputs])
    form = _forms.get(key)
    if form is None:
        form = store_bounded(
            _forms, key, Signature(*operation.infer(*inputs, **attributes)), _MOST_FORMS
        )
    if line is None and inputs:
        line = inputs[0].line
    return Node(operation, inputs, attributes, form.shape, form.dtype, None, line, None, form)

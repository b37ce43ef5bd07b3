"""The operation record: all properties of one operation, in one place.

The rules that every operation needs are required fields, so that a missing one is found at import
and not in a user's run. `axes` names each dimension by a letter, with one string per operand and
one for the result (`"mk,kn->mn"`). A letter may be split over workers if every operand that has it
is split alike; a letter missing from the result is combined by `reduction`; `.` marks a dimension
that must be whole. A dimension with the upper-case form of a letter follows the dimensions that
have the letter: its extent differs, and it is divided where they are, as `derived_split` defines
(`"ab->Ab"` for a slice of rows: a worker that stores rows stores the sliced ones among them).
Placements are derived from it, one mesh axis at a time (`passes/place.py`).
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
from magmath.layout import Layout, Mesh, Split

if TYPE_CHECKING:
    import torch


class KernelContext(Protocol):
    """The services of the executor that binds a kernel."""

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
        """Return a ready call of a product: out = activation(a·b + bias), or out += alpha·a·b."""


@dataclass(slots=True)
class KernelCall:
    """One operation on one worker's tensors, from which a kernel binds a ready call.

    `out` and `inputs` are local tensors (0-d CPU tensors for Python numbers). For operations that
    count elements, `tile` and `tiles` are the tiles of the whole arrays that they hold, and `shape`
    and `shapes` the shapes of the whole arrays. `repeated`: other workers compute the same
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
    """NumPy's function for an operation, called with the operands and the result.

    It is faster than torch's on results of up to `most` elements, where the call takes longer than
    the arithmetic.
    """

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
OnlyLayouts = Callable[[Node, Mesh], tuple[tuple[Layout, ...], Layout]]
Native = Any
"""A scalar expression such as "({0} + {1})", one for each kind of the result's type, an `IndexMap`,
a `Writing`, an emitter (`codegen/emit.py`), or None."""


SameBits = Callable[[DType, Sequence[DType]], bool]
"""(the result's type, the operands' types) → whether the native form and the kernel give the same
bits."""


def no_same_bits(result: DType, operands: Sequence[DType]) -> bool:
    """Return False, for operations whose native form rounds differently."""
    return False


def no_decomposition(node: Node, layouts: Sequence[Layout]) -> Sequence[Node]:
    """Return no decompositions."""
    return ()


def full_speed(node: Node, local: Shape) -> float:
    """Return 1, the efficiency of operations whose speed does not depend on the shape of the
    piece."""
    return 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Operation:
    """One operation.

    infer             (*inputs, **attributes) → (shape, dtype); raises for invalid operands
    axes              node → index notation, as above
    reduction         how letters that the result lacks are combined over workers, or None
    vjp               (node, cotangent) → a cotangent for each input, or None where it has none
    kernel            KernelCall → ready call, on torch tensors of any device
    native            its form in a native function; None: it remains a call between such functions
    reference         the same on NumPy arrays: (*arrays, **attributes)
    flops             node → arithmetic operations, for the cost model
    same_bits         (the result's type, its operands') → True if the native form, with each
                      operation rounded by itself, gives the bits of the kernel (nan counts as one
                      value)
    epilogues         what its kernel can apply to the result before storing it, each an attribute
                      of the record's nodes: "convert" (to another type), "bias" (add a row),
                      "accumulate" (c + alpha·result), or an activation by name; the fuse pass folds
                      such nodes into it
    efficiency        (node, shape of a local result) → share of the full speed that such a piece
                      reaches
    decompositions    (node, its operands' layouts) → graphs of other operations on the same inputs
                      that compute the same; the place pass chooses the cheapest
    derived_split     (node, letter, its split, operand) → the split of the dimension with the
                      letter's upper-case form, in an operand by its number or (None) in the result;
                      None: a layout cannot express it
    reads_subset      reads at most as many elements of its first operand as the result holds (for
                      the cost model)
    in_place          may be computed in the storage of its only operand, if shape and type agree
    overwrites_first  is its first operand with a part overwritten: may be computed in its storage
    elementwise       computes each element from the corresponding elements of its operands
    leaf              has no inputs: an input, a variable or a parameter
    lower_to          node → the same in simpler operations, by which the passes replace it; such a
                      record exists for its gradient and has no kernel
    numpy_ufunc       NumPy's function of the same meaning, if it is faster for short arrays
    lapack            computed by LAPACK: data can make it fail (LinAlgError), and one worker may
                      compute it for all, with the threads of its whole host
    only_layouts      (node, mesh of one dimension) → the layouts of its operands and of its result
                      on several workers, for operations whose layouts are prescribed; None: the
                      place pass chooses
    distributed       how all workers compute it collectively if letters cannot divide it, or None
    version           the value of a variable at a line of the user's code (`ops/leaves.py`)
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
    only_layouts: OnlyLayouts | None = None
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
    """Return a new node; infers and checks the shape and dtype of the result.

    Without a given line it has the line of its first operand.
    """
    return applied(operation, inputs, line, attributes or NO_ATTRIBUTES)


def applied(
    operation: Operation,
    inputs: tuple[Node, ...],
    line: Line,
    attributes: Mapping[str, Any] = NO_ATTRIBUTES,
) -> Node:
    """Return a new node for operands and attributes that are already a tuple and a mapping.

    An inference depends only on the operation, its attributes and its operands' shapes and types,
    so it is cached for each combination of these.
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

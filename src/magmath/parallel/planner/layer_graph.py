"""The layer graph of a network: the computation, memory and outputs of each layer.

The *roles* of dimensions say how a layer may be divided. `layer_grouping.py` finds the layers of a
module.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, final

from magmath.core.dtypes import DType
from magmath.parallel.planner.halo_rows import HaloRows

BATCH: Final = "batch"
CHANNEL: Final = "channel"
SPACE: Final = "space"


@final
@dataclass(frozen=True)
class Edge:
    """A value that one layer reads from another: its bytes, the roles of its dimensions, and True
    if the backward pass computes its gradient."""

    source: int
    nbytes: int
    roles: frozenset[str]
    has_gradient: bool


@final
@dataclass(frozen=True)
class LayerParameter:
    """A parameter or buffer of a layer.

    gradient    bytes of its gradient, in the type in which the layer reads it
    is_weight   True if the weights of the layer's product are computed from it
    is_trained  False for buffers and frozen parameters, which have no gradient
    """

    nbytes: int
    gradient: int
    is_weight: bool
    is_trained: bool


@final
@dataclass(frozen=True)
class RoleDependency:
    """What the parts of a divided role need of one another: an allreduce of sums over the role, or
    a halo, which are the borders of its parts.

    kind        "allreduce" or "halo"
    nbytes      bytes of the sums, or of one row of a halo, for the values of all other dimensions
    roles       the roles of these dimensions
    of_product  True for the operand of the layer's product
    rows        the rows of a halo
    """

    kind: str
    role: str
    nbytes: int
    roles: frozenset[str]
    of_product: bool = False
    rows: HaloRows | None = None


@final
@dataclass(frozen=True)
class Layer:
    """One layer. Numbers are for the whole batch on one worker, forward unless stated otherwise.

    kind         the class of its module, or the operation that it begins with
    dtype        the element type in which it computes
    flops        arithmetic operations of the product, twice as many backward
    other_flops  those of the element-wise operations
    other_bytes  bytes of memory that the element-wise operations read and write
    rows         outputs of the product; 0 if there is none, as columns and depth are then
    columns      positions of the product (samples × space)
    depth        elements that the product sums
    groups       groups of channels that are computed independently
    weights      bytes of the weights that the product reads
    parameters   the parameters and buffers that no layer before it reads
    extents      the extent of each role in the result; "input" is the summed dimension
    dependencies what the parts of a divided role need of one another
    result       bytes of the result
    kept         bytes of the values that are stored until the backward pass
    trains_weights  True if it computes the gradient of its product's weights
    trainable    True if the backward pass computes gradients of its values
    """

    name: str
    kind: str
    dtype: DType
    flops: float
    other_flops: float
    other_bytes: int
    rows: int
    columns: int
    depth: int
    groups: int
    weights: int
    parameters: tuple[LayerParameter, ...]
    extents: Mapping[str, int]
    dependencies: tuple[RoleDependency, ...]
    result: int
    kept: int
    trains_weights: bool
    trainable: bool
    inputs: tuple[Edge, ...]

    @property
    def has_product(self) -> bool:
        """True if it computes a matrix product or a convolution."""
        return self.rows > 0

    @property
    def has_input_gradient(self) -> bool:
        """True if it computes the gradient of a value that it reads from another layer."""
        return any(edge.has_gradient for edge in self.inputs)

    @cached_property
    def signature(self) -> tuple[object, ...]:
        """Equal for layers with the same costs; names and neighbours do not count."""
        fields = {k: v for k, v in vars(self).items() if k not in ("name", "inputs", "extents")}
        fields.pop("signature", None)
        edges = tuple((edge.nbytes, edge.roles, edge.has_gradient) for edge in self.inputs)
        return (*fields.values(), tuple(sorted(self.extents.items())), edges)


@final
@dataclass(frozen=True)
class LayerGraph:
    """The layers of a network in the order of computation; the first is the input."""

    layers: tuple[Layer, ...]
    batch: int

    @property
    def parameter_bytes(self) -> int:
        """The bytes of all parameters and buffers that the layers read, each counted once."""
        return sum(parameter.nbytes for layer in self.layers for parameter in layer.parameters)

    @property
    def flops(self) -> float:
        """The arithmetic operations of one training step: forward, and twice that backward."""
        return 3.0 * sum(layer.flops for layer in self.layers)

    def edges(self) -> list[tuple[int, int, Edge]]:
        """Return the edges as source, target and value."""
        return [(e.source, i, e) for i, layer in enumerate(self.layers) for e in layer.inputs]

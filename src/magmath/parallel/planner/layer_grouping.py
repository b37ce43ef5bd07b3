"""The layers of a module: the nodes of a trace, grouped.

`layer_graph` traces a module with abstract inputs. A product or correlation with a parameter begins
a layer, and the element-wise operations on its result join that layer. A node that reads several
layers, or that a division of its layer would not allow, begins a layer of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any, Final, final

from magmath.errors import OptionError, ShapeError
from magmath.graph import Graph, Node, rewrite
from magmath.graph.graph import topological, topological_until
from magmath.nn import mixed_precision
from magmath.nn.abstract import abstract_arrays, trace_nodes, types_of_shapes
from magmath.nn.module import Module, deferred_variables
from magmath.nn.variables import zeros
from magmath.ops.concatenation import CONCAT
from magmath.ops.elementwise.identities import STOP_GRADIENT
from magmath.ops.manipulation import PERMUTE, RESHAPE
from magmath.ops.recomputation import CHECKPOINT
from magmath.ops.slicing import SLICE
from magmath.parallel.planner.halo_rows import halo_rows
from magmath.parallel.planner.layer_graph import (
    CHANNEL,
    SPACE,
    Edge,
    Layer,
    LayerGraph,
    LayerParameter,
    RoleDependency,
)
from magmath.parallel.planner.layer_roles import Roles, divisions_of, input_roles
from magmath.passes.expand import expand

_REARRANGEMENTS: Final = (RESHAPE, PERMUTE, SLICE, CONCAT)
"""The operations whose results have elements of operands, each at most once, in other places."""


def layer_graph(
    module: Module, shape: Sequence[int], dtype: Any = None, precision: str | None = None
) -> LayerGraph:
    """Return the layers of a module for an input of this shape, the batch included, and of this
    type, in a precision (see `nn.precision`).

    A module that is not built is left so: a copy without initial values is traced. The first layer
    that reads a parameter has its bytes and its gradient; layers that share it are planned
    independently, as if moving the parameter between their divisions took no time. Values within
    checkpoints are not kept, and the time of computing them again does not count. Raises ShapeError
    for an input without elements, and OptionError if the output does not depend on the input, or
    nothing is computed from it.
    """
    (abstract,) = abstract_arrays("plan", [shape], dtype)
    if 0 in abstract.shape:
        raise ShapeError(
            f"plan: the input of shape {abstract.shape} has no elements to divide"
            "; give the extents of a batch, such as (32, 3, 224, 224)"
        )
    module = _without_values(module)  # the nodes refer to its variables weakly
    with types_of_shapes("plan", dtype), mixed_precision.precision(precision):
        (network_input,), traced = trace_nodes(module, (abstract,))
    recomputed: set[Node] = set()
    graph = expand(Graph(tuple(traced)), keeps=lambda node: node.operation is CHECKPOINT)
    outputs = rewrite(graph, partial(_without_checkpoint, recomputed)).outputs
    nodes = list(topological(outputs))
    trained = {id(parameter) for parameter in module.trainable()}
    differentiated = _differentiated_nodes(nodes, outputs, trained)
    grouping = _Grouping(network_input, nodes, module, differentiated, recomputed)
    if not any(grouping.is_input_dependent(node) for node in outputs):
        raise OptionError(
            "plan: the output of the network does not depend on its input"
            "; compute the output in __call__ from its argument"
        )
    if len(grouping.drafts) == 1:
        raise OptionError(
            "plan: the network computes nothing from its input, so there are no layers to divide"
            "; plan a network with parameters or arithmetic"
        )
    grouping.finish([node for node in outputs if grouping.is_input_dependent(node)])
    layers = tuple(draft.layer(grouping) for draft in grouping.drafts)
    return LayerGraph(_with_different_names(layers), network_input.shape[0])


def _with_different_names(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """Return layers whose names differ: one with the name of a former layer adds its number."""
    former: set[str] = set()
    renamed = []
    for number, layer in enumerate(layers):
        name = f"{layer.name} {number}" if layer.name in former else layer.name
        former.add(name)
        renamed.append(replace(layer, name=name))
    return tuple(renamed)


def _without_values(module: Module) -> Module:
    """Return the module if it is built, otherwise a copy whose parameters begin with zeros."""
    if module.is_built:
        return module
    abstract = copy.deepcopy(module)
    for placeholder in deferred_variables(abstract):
        placeholder.initial = zeros
    return abstract


@final
@dataclass(eq=False)
class _Draft:
    """A layer that is being collected."""

    number: int
    anchor: Node
    is_product: bool
    members: list[Node] = field(default_factory=list)
    parameters: dict[Node, int] = field(default_factory=dict)
    """Those that no layer before it reads, with the bytes of an element as it reads them."""
    dependencies: list[RoleDependency] = field(default_factory=list)
    excluded: set[str] = field(default_factory=set)
    tensors: dict[Node, int] = field(default_factory=dict)
    """The values that it reads from other layers, with the layers."""

    def layer(self, grouping: _Grouping) -> Layer:
        """Return the finished layer."""
        anchor, differentiated = self.anchor, grouping.differentiated
        other_members = [node for node in self.members if node is not anchor]
        weights = grouping.weights_of(self)
        dtype = anchor.dtype if weights is None else weights.dtype
        columns = grouping.columns_of(self) if self.is_product else 0
        flops = anchor.operation.flops(anchor) if self.is_product else 0.0
        return Layer(
            name=grouping.name_of(self),
            kind=grouping.kind_of(self),
            dtype=dtype,
            flops=flops,
            other_flops=sum(node.operation.flops(node) for node in other_members),
            other_bytes=2 * max([node.nbytes for node in other_members], default=0),
            rows=anchor.size // columns if columns else 0,
            columns=columns,
            depth=int(flops / (2 * anchor.size)) if flops else 0,
            groups=anchor.attributes.get("groups", 1) if self.is_product else 1,
            weights=0 if weights is None else weights.nbytes,
            parameters=grouping.parameters_read(self),
            extents=grouping.extents_of(self),
            dependencies=tuple(self.dependencies),
            result=anchor.size * dtype.itemsize,
            kept=grouping.kept_bytes(self),
            trains_weights=weights in differentiated,
            trainable=not differentiated.isdisjoint(self.members or self.tensors),
            inputs=tuple(
                Edge(n, x.nbytes, frozenset(filter(None, grouping.roles[x])), x in differentiated)
                for x, n in self.tensors.items()
            ),
        )


@final
class _Grouping:
    """Assigns nodes to layers, in topological order."""

    def __init__(
        self,
        network_input: Node,
        nodes: Sequence[Node],
        module: Module,
        differentiated: set[Node],
        recomputed: set[Node],
    ) -> None:
        self.differentiated = differentiated
        self._recomputed = recomputed
        self.drafts: list[_Draft] = []
        self.roles: dict[Node, Roles] = {}
        self._layer: dict[Node, _Draft] = {}
        self._parameters: dict[Node, tuple[Node, ...]] = {}
        self._modules = dict(module.named_modules())
        self._seen: set[Node] = set()
        self._readers: dict[Node, list[Node]] = {}
        for node in nodes:
            for x in node.inputs:
                self._readers.setdefault(x, []).append(node)
        self.roles[network_input] = input_roles(network_input, nodes)
        self._layer[network_input] = self._open(network_input, is_product=False)
        for node in nodes:
            if node is not network_input:
                self._add(node)

    def is_input_dependent(self, node: Node) -> bool:
        """Return True if a node depends on the network's input."""
        return node in self._layer

    def _add(self, node: Node) -> None:
        """Assign the next node."""
        sources = [x for x in node.inputs if self.is_input_dependent(x)]
        if not sources:
            below = [p for x in node.inputs for p in self._parameters[x]]
            own_parameters = [node] if node.operation.is_leaf and node.name == "variable" else []
            self._parameters[node] = tuple(dict.fromkeys([*below, *own_parameters]))
            return
        owners = list(dict.fromkeys(self._layer[x] for x in sources))
        weights = [x for x in node.inputs if self._parameters.get(x)]
        divisions = divisions_of(node, sources, weights, self.roles)
        self.roles[node] = divisions.roles
        is_product = self._is_product(node, sources)
        computes_on_input = owners[0].number == 0 and node.operation.flops(node) > 0
        if is_product or computes_on_input or len(owners) > 1 or divisions.needs_own_layer:
            draft = self._open(node, is_product=is_product)
        else:
            draft = owners[0]
            draft.members.append(node)
        draft.excluded |= divisions.excluded
        if not is_product:
            roles = frozenset(role for role in divisions.roles if role)
            draft.dependencies += [
                RoleDependency("allreduce", role, node.nbytes, roles) for role in divisions.summed
            ]
        draft.dependencies += _halos(node, self.roles, is_product)
        self._layer[node] = draft
        self._read(draft, node, sources)

    def finish(self, outputs: Iterable[Node]) -> None:
        """Add the layer that reads the outputs: the loss."""
        for node in outputs:
            last = self._open(node, is_product=False)
            last.members = []
            last.tensors[node] = self._layer[node].number

    def _open(self, node: Node, *, is_product: bool) -> _Draft:
        draft = _Draft(len(self.drafts), node, is_product, [node])
        self.drafts.append(draft)
        return draft

    def _read(self, draft: _Draft, node: Node, sources: Sequence[Node]) -> None:
        """Note the values and the parameters that a node of a layer reads."""
        for x in sources:
            if self._layer[x] is not draft:
                draft.tensors[x] = self._layer[x].number
        for x in node.inputs:
            for parameter in self._parameters.get(x, ()):
                if parameter not in self._seen:
                    self._seen.add(parameter)
                    draft.parameters[parameter] = x.dtype.itemsize

    def _is_product(self, node: Node, sources: Sequence[Node]) -> bool:
        """Return True for a product of one activation and one parameter that sums over a letter."""
        if node.operation.is_elementwise or len(node.inputs) != 2 or len(sources) != 1:
            return False
        notation = node.index_notation
        parameter_operand = node.inputs[1] if node.inputs[0] is sources[0] else node.inputs[0]
        shared = set(notation.inputs[0]) & set(notation.inputs[1]) - set(notation.output)
        return bool(self._parameters[parameter_operand]) and bool(
            shared - {"."} or node.attributes.get("groups")
        )

    def weights_of(self, draft: _Draft) -> Node | None:
        """Return the operand of a product that is a parameter, or computed from parameters, as a
        transposed one; None for other layers."""
        if not draft.is_product:
            return None
        (operand,) = [x for x in draft.anchor.inputs if not self.is_input_dependent(x)]
        return operand

    def parameters_of(self, operand: Node | None) -> tuple[Node, ...]:
        """Return the parameters from which an operand is computed; none without an operand."""
        return () if operand is None else self._parameters[operand]

    def parameters_read(self, draft: _Draft) -> tuple[LayerParameter, ...]:
        """Return the parameters and buffers that no layer before a layer reads."""
        of_product = self.parameters_of(self.weights_of(draft))
        return tuple(
            LayerParameter(
                leaf.nbytes, leaf.size * item, leaf in of_product, leaf in self.differentiated
            )
            for leaf, item in draft.parameters.items()
        )

    def extents_of(self, draft: _Draft) -> dict[str, int]:
        """Return the extent of each role that can divide a layer."""
        roles, shape = self.roles[draft.anchor], draft.anchor.shape
        extents = {role: n for role, n in zip(roles, shape, strict=True) if role is not None}
        if draft.is_product and self._can_split_input(draft):
            extents["input"] = self._input_extent(draft)
        return {role: n for role, n in extents.items() if role not in draft.excluded}

    def columns_of(self, draft: _Draft) -> int:
        """Return the positions of a product: the elements of the dimensions of its result that come
        from the activation and are not its channels."""
        anchor, notation = draft.anchor, draft.anchor.index_notation
        letters = next(
            letters
            for letters, x in zip(notation.inputs, anchor.inputs, strict=True)
            if self.is_input_dependent(x)
        ).lower()
        return prod(
            extent
            for letter, role, extent in zip(
                notation.output.lower(), self.roles[anchor], anchor.shape, strict=True
            )
            if letter in letters and letter != "." and role != CHANNEL
        )

    def _summed(self, draft: _Draft) -> int | None:
        """Return the dimension of the activation over which a product sums."""
        notation = draft.anchor.index_notation
        activation_index = next(
            i for i, x in enumerate(draft.anchor.inputs) if self.is_input_dependent(x)
        )
        shared = set(notation.inputs[1 - activation_index]) - set(notation.output) - {"."}
        for d, letter in enumerate(notation.inputs[activation_index]):
            if letter in shared:
                return d
        return None

    def _can_split_input(self, draft: _Draft) -> bool:
        """Return True if the summed dimension of a product has the role of channels."""
        (x,) = [x for x in draft.anchor.inputs if self.is_input_dependent(x)]
        d = self._summed(draft)
        return d is not None and self.roles[x][d] == CHANNEL

    def _input_extent(self, draft: _Draft) -> int:
        """Return the extent of the summed dimension of a product."""
        (x,) = [x for x in draft.anchor.inputs if self.is_input_dependent(x)]
        d = self._summed(draft)
        assert d is not None
        return x.shape[d]

    def kept_bytes(self, draft: _Draft) -> int:
        """Return the bytes of the values of a layer that are stored until the backward pass.

        They are what other layers and windows read, and what several operations read, as in a
        normalization. Element-wise operations on such values are computed again, and of a value
        and its rearrangements only those that such operations read are stored.
        """
        kept: set[Node] = set()
        known: set[Node] = set()
        for node in draft.members:
            if node is not draft.anchor and self._is_computed_again(node, draft, known):
                known.add(node)
            has_several_readers = len(self._readers_of_elements(node, draft)) > 1
            is_read = self._is_read_whole(node, draft) or (
                has_several_readers and node not in known
            )
            if is_read and self._has_gradient_readers(node):
                kept.add(node)
            known |= kept
        return sum(node.nbytes for node in kept)

    def _has_gradient_readers(self, node: Node) -> bool:
        """Return True if a gradient may read a value: one of its own or of its readers. Values
        within checkpoints are recomputed instead."""
        readers = self._readers.get(node, ())
        return node not in self._recomputed and not self.differentiated.isdisjoint((node, *readers))

    def _is_computed_again(self, node: Node, draft: _Draft, known: set[Node]) -> bool:
        """Return True for an operation on known values of a layer that takes little time."""
        operands = [x for x in node.inputs if self._layer.get(x) is draft]
        if node.operation in _REARRANGEMENTS:
            return known.issuperset(operands)
        return node.operation.is_elementwise and all(
            x in known or x.size < node.size for x in operands
        )

    def _readers_of_elements(self, node: Node, draft: _Draft) -> list[Node]:
        """Return the operations of a layer that read a value, as it is or rearranged."""
        readers = []
        for x in self._readers.get(node, ()):
            if x.operation in _REARRANGEMENTS:
                readers += self._readers_of_elements(x, draft)
            elif self._layer[x] is draft:
                readers.append(x)
        return readers

    def _is_read_whole(self, node: Node, draft: _Draft) -> bool:
        """Return True for a value that another layer or the loss reads, or an operation that is not
        element-wise and does not sum; the gradients of rearrangements do not read it."""
        readers = self._readers.get(node, ())
        return not readers or any(
            self._layer[x] is not draft or not (x.operation.is_elementwise or x.operation.reduction)
            for x in readers
            if x.operation not in _REARRANGEMENTS
        )

    def name_of(self, draft: _Draft) -> str:
        """Return the path of the layer's module, or its operation and number."""
        if draft.number == 0:
            return "input"
        if not draft.members:
            return "loss"
        return _module_path(draft) or f"{draft.anchor.name} {draft.number}"

    def kind_of(self, draft: _Draft) -> str:
        """Return the class of the layer's module, or its operation."""
        if not draft.members:
            return "loss"
        path = _module_path(draft)
        module = self._modules.get(path) if path else None
        return draft.anchor.name if module is None else type(module).__name__


def _without_checkpoint(recomputed: set[Node], node: Node) -> Node | None:
    """Return the value of a checkpoint, after adding to `recomputed` the values between this and
    the inputs of the checkpoint; None for other nodes."""
    if node.operation is not CHECKPOINT:
        return None
    value, *ends = node.inputs
    recomputed.update(set(topological_until([value], ends)).difference(ends, [value]))
    return value


def _differentiated_nodes(
    nodes: Sequence[Node], outputs: Iterable[Node], trained: Container[int]
) -> set[Node]:
    """Return the nodes whose gradients the backward pass computes: those that depend on trained
    parameters, given by the identities of their variables, and on which the outputs depend. A
    value of `stop_gradient` depends on nothing."""

    def sources(node: Node) -> tuple[Node, ...]:
        return () if node.operation is STOP_GRADIENT else node.inputs

    trainable: set[Node] = set()
    for node in nodes:
        if id(_variable_of(node)) in trained or not trainable.isdisjoint(sources(node)):
            trainable.add(node)
    return trainable.intersection(topological_until(outputs, (), sources))


def _variable_of(leaf: Node) -> Any:
    """Return the variable of a leaf, or None."""
    return leaf.value() if callable(leaf.value) else None


def _module_path(draft: _Draft) -> str:
    """Return the path of the module of a layer's parameters; empty if it has none."""
    for parameter in draft.parameters:
        path: str = getattr(_variable_of(parameter), "name", "").rpartition(".")[0]
        if path:
            return path
    return ""


def _halos(node: Node, roles: Mapping[Node, Roles], is_product: bool) -> list[RoleDependency]:
    """Return the borders of parts of space that a node reads from other workers."""
    halos = []
    for number, x in enumerate(node.inputs):
        if SPACE in roles.get(x, ()):
            d = roles[x].index(SPACE)
            if rows := halo_rows(node, number, d):
                row = x.nbytes // x.shape[d]
                others = frozenset(role for role in roles[x] if role) - {SPACE}
                halos.append(RoleDependency("halo", SPACE, row, others, is_product, rows))
    return halos

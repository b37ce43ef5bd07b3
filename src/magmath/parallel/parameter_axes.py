"""The axes of parameters along which model parallelism divides a layer: of its outputs and of its
inputs.

They follow from the index notation of the first operation of a step that combines a parameter with
data, so layers declare nothing, and modules of users and of other libraries are divided too. In
y[n,k] = Σ_c x[n,c] · w[k,c] the axis of the outputs is that of k, which is in the result alone, and
the axis of the inputs that of c, which is summed. Conversions, transpositions and products of
parameters alone are passed through.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import final

from magmath.arrays.variables.variable import Variable
from magmath.graph import Graph, Node
from magmath.parallel.strategy import Training
from magmath.passes.expand import expand, with_first_steps

DIVIDING_OPTIONS = ("output", "input")
"""The options that divide parameters: along their outputs, and along their inputs."""
Dimensions = tuple[int | None, ...]
"""For each dimension of a value, the dimension of a parameter that it is; None for others."""


@final
@dataclass(frozen=True)
class ParameterAxes:
    """The dimensions of a parameter; None where it cannot be divided.

    output       the dimension of the outputs of its layer, such as output channels
    input        the dimension of the inputs, such as input channels, over which the layer sums
    is_product   True if it is the weight of a product; False if it is added or scales, like a bias
    """

    output: int | None = None
    input: int | None = None
    is_product: bool = False

    def dimension(self, option: str) -> int | None:
        """Return the dimension that an option divides, or None."""
        return {"output": self.output, "input": self.input}.get(option)


@final
class LayerAxes:
    """The axes of the parameters of all layers, found in the graph of a step when they are needed.

    `step_graph` returns the graph.
    """

    def __init__(self, training: Training, step_graph: Callable[[], Graph]) -> None:
        self._training, self._step_graph = training, step_graph

    @cached_property
    def _axes(self) -> Mapping[Node, ParameterAxes]:
        leaves = [v.leaf for _, v in self._training.named_parameters()]
        return parameter_axes(self._step_graph(), leaves)

    @cached_property
    def _layers(self) -> Mapping[str, Sequence[Variable]]:
        """The parameters of each layer."""
        layers: dict[str, list[Variable]] = {}
        for layer, parameter in self._training.named_parameters():
            layers.setdefault(layer, []).append(parameter)
        return layers

    def of(self, parameter: Variable) -> ParameterAxes:
        """Return the axes of a parameter."""
        return self._axes[parameter.leaf]

    def extent(self, layer: str, option: str) -> int:
        """Return the number of outputs or inputs of a layer, which an option divides; 0 if it
        cannot.

        The weights of products decide, if there are any: a bias is divided with them only.
        """
        parameters = [(self.of(v), v) for v in self._layers.get(layer, ())]
        decisive = [(axes, v) for axes, v in parameters if axes.is_product] or parameters
        dims = [(axes.dimension(option), v) for axes, v in decisive]
        return min([0 if dim is None else v.shape[dim] for dim, v in dims], default=0)

    def possible(self, layer: str, option: str, workers: int) -> str:
        """Return an option of a layer, or "data" if it cannot divide the layer over workers."""
        if option not in DIVIDING_OPTIONS or self.extent(layer, option) >= workers:
            return option
        return "data"


def parameter_axes(step: Graph, leaves: Sequence[Node]) -> dict[Node, ParameterAxes]:
    """Return the axes of parameters, given as the leaves of a step.

    The first reader decides: the operation of least depth, products before others. It belongs to
    the forward pass, since the backward pass and the update depend on the loss.
    """
    views: dict[Node, dict[Node, Dimensions]] = {x: {x: tuple(range(x.ndim))} for x in leaves}
    depth: dict[Node, int] = {}
    readers: dict[Node, tuple[bool, int, ParameterAxes]] = {}
    for node in expand(with_first_steps(step)).nodes:
        depth[node] = 1 + max([depth[x] for x in node.inputs], default=0)
        if not any(x in views for x in node.inputs):
            continue
        has_data = any(x.ndim and x not in views for x in node.inputs)
        if followed_views := _followed(node, views, has_data):
            views[node] = followed_views
        for leaf, axes in _axes_in(node, views) if has_data else ():
            reader = (not axes.is_product, depth[node], axes)
            if leaf not in readers or reader[:2] < readers[leaf][:2]:
                readers[leaf] = reader
    return {x: readers[x][2] if x in readers else ParameterAxes() for x in leaves}


def _followed(
    node: Node, views: Mapping[Node, Mapping[Node, Dimensions]], has_data: bool
) -> dict[Node, Dimensions]:
    """Return the dimensions of parameters in a value of parameters alone, or in a parameter whose
    elements an operation changes, such as by a mask."""
    notation = node.index_notation
    dimensions: dict[Node, Dimensions] = {}
    for letters, x in zip(notation.inputs, node.inputs, strict=True):
        if has_data and not (node.operation.is_elementwise and x.shape == node.shape):
            continue
        for leaf, dims in views.get(x, {}).items():
            by_letter = dict(zip(letters, dims, strict=True))
            by_letter.pop(".", None)
            dimensions.setdefault(
                leaf, tuple([by_letter.get(letter) for letter in notation.output])
            )
    return dimensions


def _axes_in(
    node: Node, views: Mapping[Node, Mapping[Node, Dimensions]]
) -> Iterable[tuple[Node, ParameterAxes]]:
    """Yield the axes of the parameters that an operation combines with data."""
    notation = node.index_notation
    pairs = list(zip(notation.inputs, node.inputs, strict=True))
    of_data = {c.lower() for letters, x in pairs if x not in views for c in letters}
    for letters, x in pairs:
        if x in views:
            for leaf, dims in views[x].items():
                yield leaf, _axes(node, letters, dims, of_data, set(notation.output.lower()))


def _axes(
    node: Node, letters: str, dims: Dimensions, of_data: Collection[str], of_result: set[str]
) -> ParameterAxes:
    """Return the axes of a parameter with these letters.

    A dimension that data share is one of outputs only if there is no other: with several, as in the
    positions and features of an embedding that is added, the notation does not say which.
    """
    known = [(c.lower(), dim) for c, dim in zip(letters, dims, strict=True) if c != "."]
    result_dims = [(c, dim) for c, dim in known if c in of_result]
    unshared_dims = [dim for c, dim in result_dims if c not in of_data]
    outputs = (
        unshared_dims[:1]
        if unshared_dims
        else [dim for _, dim in result_dims]
        if len(result_dims) == 1
        else []
    )
    inputs = [dim for c, dim in known if c not in of_result]
    is_product = not node.operation.is_elementwise
    return ParameterAxes(next(iter(outputs), None), next(iter(inputs), None), is_product)

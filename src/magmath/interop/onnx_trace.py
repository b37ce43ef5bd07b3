"""Traces of a module for several extents of its inputs, which show what depends on them.

An ONNX model computes for any extent of a named axis. A trace has numbers instead: the shape of a
reshape, the bounds of a slice. So the module is traced with several extents. A number that differs
between the traces depends on an extent, and the traces show how.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, final

import magmath as mm
from magmath.arrays.array import Array
from magmath.arrays.tree import flatten
from magmath.engine import session, tracing
from magmath.engine.tracing import Trace
from magmath.errors import MagmathError
from magmath.graph import Graph, Node, Shape, topological
from magmath.ops.leaves import input_leaf

Extent = tuple[int, ...]
"""An extent, or another integer, in each of the traces."""
ADDED = (2, 6)
"""What is added to a named extent in two more traces: a multiple of it differs from a part."""


@final
class TracedNode:
    """A node in all traces."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = tuple(nodes)
        self.first = nodes[0]
        self.is_named = False
        """True if it depends on named extents, but on no input."""
        self.is_data = False
        """True if it depends on the inputs of the module."""
        self.inputs: tuple[TracedNode, ...] = ()

    @property
    def name(self) -> str:
        """The name of the operation."""
        return self.first.name

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return self.first.ndim

    @property
    def shape(self) -> list[Extent]:
        """The extents."""
        return list(zip(*[node.shape for node in self.nodes], strict=True))

    def attribute(self, name: str) -> Any:
        """Return an attribute that is equal in all traces. Raises MagmathError if it is not."""
        values = [node.attributes[name] for node in self.nodes]
        if any(value != values[0] for value in values):
            raise self.refuse(f"whose {name} depends on an extent of the inputs")
        return values[0]

    def each(self, name: str) -> list[Any]:
        """Return an attribute in each of the traces."""
        return [node.attributes[name] for node in self.nodes]

    def refuse(self, reason: str) -> MagmathError:
        """Return the error for an operation that an ONNX model cannot have."""
        line = self.first.line
        where = f" at {line[0]}:{line[1]}" if line else ""
        return MagmathError(
            f"to_onnx: the module has the operation {self.name}{where}, {reason}; write it in "
            f"other operations, or, if an extent is the reason, pass variable_axes=0"
        )

    def varies(self) -> bool:
        """Return True if a number of the operation itself depends on an extent."""
        first = self.first
        if first.name == "parameter":
            return any(node.value != first.value for node in self.nodes)
        same = all(dict(node.attributes) == dict(first.attributes) for node in self.nodes)
        return not same


@final
class Traced:
    """The operations of a module, and its variables by their leaves.

    inputs    the shapes and element types of the inputs, by name
    extents   the named extents: the extent, and the input and axis that have it
    """

    def __init__(
        self,
        module: Callable[..., Any],
        examples: Sequence[mm.Array],
        variable_axes: int,
    ) -> None:
        named = _named_extents(examples, variable_axes)
        variants = _variants(named)
        traces = [_traced(module, examples, named, sizes) for sizes in variants]
        self.variables: dict[Node, Any] = dict(traces[0][2].read)
        self.extents: dict[str, tuple[Extent, int, int]] = {}
        for name, places in named.items():
            index, axis = places[0]
            self.extents[name] = tuple([sizes[name] for sizes in variants]), index, axis
        self.places = {place: name for name, places in named.items() for place in places}
        orders = [topological(tuple(outputs)) for _, outputs, _ in traces]
        if any([n.name for n in order] != [n.name for n in orders[0]] for order in orders):
            raise MagmathError(
                "to_onnx: the module has other operations for other extents of its inputs; pass "
                "variable_axes=0 for a model of the extents of the example"
            )
        self.nodes = [TracedNode(nodes) for nodes in zip(*orders, strict=True)]
        of = {traced.first: traced for traced in self.nodes}
        self.inputs = [of.get(leaf, TracedNode([leaf])) for leaf in traces[0][0]]
        self.outputs = [of[node] for node in traces[0][1]]
        given = {*self.inputs, *[of[leaf] for leaf in self._numbers(traces[0][2]) if leaf in of]}
        for traced in self.nodes:
            traced.inputs = tuple([of[source] for source in traced.first.inputs])
            traced.is_data = traced in given or any(x.is_data for x in traced.inputs)
            varies = traced.varies() or any(x.is_named for x in traced.inputs)
            traced.is_named = varies and not traced.is_data

    @staticmethod
    def _numbers(trace: Trace) -> set[Node]:
        """Return the numbers that differ in each run: seeds, and counts of steps."""
        return {*trace.numbers, *trace.numbers_of_run()}

    def values(self, nodes: Sequence[TracedNode]) -> list[Array]:
        """Return the values of nodes that depend on variables and numbers alone."""
        if not nodes:
            return []
        current = {leaf: v.snapshot().node for leaf, v in self.variables.items()}
        graph = Graph(tuple([traced.first for traced in nodes]))
        known = {leaf: value for leaf, value in current.items() if leaf in set(graph.nodes)}
        return [Array(node) for node in graph.substituted(known).outputs]


def _named_extents(examples: Sequence[mm.Array], count: int) -> dict[str, list[tuple[int, int]]]:
    """Return the inputs and axes of each named extent: equal extents of one axis are the same."""
    found: dict[str, list[tuple[int, int]]] = {}
    names: dict[tuple[int, int], str] = {}
    for index, x in enumerate(examples):
        for axis, extent in enumerate(x.shape[:count]):
            key = (axis, extent)
            if key not in names:
                others = sum(1 for other, _ in names if other == axis)
                name = "batch" if axis == 0 else f"extent_{axis}"
                names[key] = f"{name}_{others}" if others else name
            found.setdefault(names[key], []).append((index, axis))
    return found


def _variants(named: Mapping[str, Sequence[tuple[int, int]]]) -> list[dict[str, int]]:
    """Return the extents of each trace: different ones for each name, then one by one larger.

    None is a power of two, whose inverse is exact, so that a mean is another operation.
    """
    first = {name: 1 + (8 << i) for i, name in enumerate(named)}
    return [first, *[{**first, name: first[name] + n} for name in named for n in ADDED]]


def _traced(
    module: Callable[..., Any],
    examples: Sequence[mm.Array],
    named: Mapping[str, Sequence[tuple[int, int]]],
    sizes: Mapping[str, int],
) -> tuple[list[Node], list[Node], Trace]:
    """Return the leaves of the inputs, the nodes of the outputs, and the trace of a call.

    Raises MagmathError if the module does not take inputs of these extents.
    """
    shapes: list[Shape] = []
    for index, x in enumerate(examples):
        shape = list(x.shape)
        for name, places in named.items():
            for _, axis in [place for place in places if place[0] == index]:
                shape[axis] = sizes[name]
        shapes.append(tuple(shape))
    whole = session.engine().environment.whole
    with tracing.tracing(Trace()) as trace:
        given = [
            Array(input_leaf(shape, x.dtype, whole(shape), None))
            for shape, x in zip(shapes, examples, strict=True)
        ]
        try:
            outputs, _ = flatten(module(*given))
        except MagmathError as error:
            if not named:
                raise
            raise MagmathError(
                f"to_onnx: the module does not take inputs of the shapes "
                f"{', '.join(map(str, shapes))}, which have other first extents than the example: "
                f"{error}; pass variable_axes=0 for a model of the extents of the example"
            ) from error
    return [x.node for x in given], [x.node for x in outputs], trace

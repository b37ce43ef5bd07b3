"""Traces of a module for several extents of its inputs, which show what depends on them.

An ONNX model computes for any extent of a named axis. A trace has numbers instead: the shape of a
reshape, the bounds of a slice. So the module is traced with several extents. A number that differs
between the traces depends on an extent, and the traces show how.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, final

import numpy as np

import magmath as mm
from magmath.arrays.array import Array
from magmath.arrays.tree import flatten
from magmath.engine import session
from magmath.engine.traces import tracing
from magmath.engine.traces.tracing import Trace
from magmath.errors import MagmathError, OptionError, UnsupportedError
from magmath.graph import Graph, Node, Shape, topological
from magmath.ops.leaves import input_leaf
from magmath.ops.marks import without_marks

Extent = tuple[int, ...]
"""An extent, or another integer, in each of the traces."""
Place = tuple[int, int]
"""The number of an input, and one of its axes."""
TRACES = 2
"""The number of traces in which a named extent is larger than in the first trace, by an even
number. Those with odd ones are last, and may be missing."""
ADDED, ADDED_TO_SPACE = (2, 6), (64, 160)
"""What is added to a named extent in these traces: two numbers tell a multiple of an extent from a
part of it. Images are enlarged by more, so that their extents differ after strides too, and by
multiples of 32, which networks that halve and double them need."""
ODD, ODD_IN_SPACE = 7, 161
"""What is added in one more trace, to see what depends on an extent modulo 2."""
KEEP_FIXED = "pass variable_axes=0 for a model of the extents of the example"
"""The remedy of errors about extents."""


@final
class TracedNode:
    """A node in all traces."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.nodes = tuple(nodes)
        self.first = nodes[0]
        self.depends_on_extents = False
        """True if it depends on named extents, but on no input."""
        self.depends_on_inputs = False
        """True if it depends on the inputs of the module."""
        self.inputs: tuple[TracedNode, ...] = ()
        self.line = self.first.line

    @property
    def is_constant(self) -> bool:
        """True if variables and numbers alone determine the value."""
        return not (self.depends_on_inputs or self.depends_on_extents)

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
        """Return an attribute that is equal in all traces. Raises UnsupportedError if it is not."""
        values = [node.attributes[name] for node in self.nodes]
        if any(value != values[0] for value in values):
            raise self.unsupported(f"whose {name} depends on an extent of the inputs")
        return values[0]

    def attribute_in_each(self, name: str) -> list[Any]:
        """Return an attribute in each of the traces."""
        return [node.attributes[name] for node in self.nodes]

    def unsupported(self, reason: str, remedy: str = KEEP_FIXED) -> MagmathError:
        """Return the error for an operation that an ONNX model cannot have."""
        where = f" at {self.line[0]}:{self.line[1]}" if self.line else ""
        kind = f"operation {self.name}"
        if self.name in ("scalar", "input"):
            kind = "array" if self.ndim else "number"
        return UnsupportedError(f"to_onnx: the module has the {kind}{where}, {reason}; {remedy}")

    def has_varying_number(self) -> bool:
        """Return True if a number of the operation itself depends on an extent."""
        first = self.first
        if first.name == "scalar":
            return any(node.value != first.value for node in self.nodes)
        if first.name == "input":  # an array that the module has created, or has
            return any(not _has_same_values(node, first) for node in self.nodes)
        return any(dict(node.attributes) != dict(first.attributes) for node in self.nodes)


@final
class TracedModule:
    """The operations of a module in all traces.

    nodes       the operations, each after its operands
    inputs      the nodes of the arguments
    outputs     the nodes of the results
    nested      the results as the module nests them
    variables   the variables of the module, by their leaves
    extents     the named extents, in all traces
    axis_names  the names of variable extents, by the number of the input and the axis
    """

    def __init__(
        self,
        module: Callable[..., Any],
        examples: Sequence[mm.Array],
        variable_axes: Sequence[Sequence[int]],
    ) -> None:
        places = _places_of_extents(examples, variable_axes)
        variants = _variants(places, examples)
        traces = [_trace_module(module, examples, places, sizes) for sizes in variants]
        for sizes in _odd_variants(places, variants[0]):
            # A network that halves and doubles its images takes no odd extents.
            with suppress(Exception):
                traces.append(_trace_module(module, examples, places, sizes))
                variants.append(sizes)
        first = traces[0]
        self.variables: dict[Node, Any] = dict(first.trace.read)
        self.nested = first.nested
        self.extents: dict[str, Extent] = {
            name: tuple([sizes[name] for sizes in variants]) for name in places
        }
        self.axis_names = {place: name for name, used in places.items() for place in used}
        if not _have_same_operations(traces):
            raise UnsupportedError(
                f"to_onnx: the module has other operations for other extents of its inputs, such "
                f"as those of a recurrent layer, whose steps are written one by one; "
                f"{_remedy_for_other_operations(module, examples, variable_axes)}"
            )
        self.nodes = _traced_nodes(traces)
        traced_of = {traced.first: traced for traced in self.nodes}
        self.inputs = [
            traced_of.get(leaves[0], TracedNode(leaves))
            for leaves in zip(*[trace.inputs for trace in traces], strict=True)
        ]
        self.outputs = [traced_of[node] for node in first.outputs]
        # Seeds and counts of steps are given to each run too.
        numbers = [*first.trace.numbers, *first.trace.numbers_of_run()]
        given = [traced_of[leaf] for leaf in numbers if leaf in traced_of]
        self._set_dependence({*self.inputs, *given}, traced_of)

    def _set_dependence(
        self, arguments: set[TracedNode], traced_of: Mapping[Node, TracedNode]
    ) -> None:
        """Connect the nodes, and record which of them depend on arguments and on extents."""
        for traced in self.nodes:
            traced.inputs = tuple([traced_of[source] for source in traced.first.inputs])
            for source in traced.inputs:
                source.line = source.line or traced.line
            traced.depends_on_inputs = traced in arguments or any(
                x.depends_on_inputs for x in traced.inputs
            )
            if not traced.depends_on_inputs:
                traced.depends_on_extents = (
                    any(x.depends_on_extents for x in traced.inputs) or traced.has_varying_number()
                )

    def values(self, nodes: Sequence[TracedNode]) -> list[Array]:
        """Return the values of nodes that depend on variables and numbers alone."""
        if not nodes:
            return []
        current = {leaf: v.snapshot().node for leaf, v in self.variables.items()}
        graph = Graph(tuple([traced.first for traced in nodes]))
        known = {leaf: value for leaf, value in current.items() if leaf in set(graph.nodes)}
        return [Array(node) for node in graph.substituted(known).outputs]


def _have_same_operations(traces: Sequence[_ModuleTrace]) -> bool:
    """Return True if all traces have the same operations in the same order."""
    names = [[n.name for n in topological(tuple(trace.outputs))] for trace in traces]
    return all(order == names[0] for order in names)


def _traced_nodes(traces: Sequence[_ModuleTrace]) -> list[TracedNode]:
    """Return the operations of all traces, in order."""
    orders = [topological(tuple(trace.outputs)) for trace in traces]
    return [TracedNode(nodes) for nodes in zip(*orders, strict=True)]


def _remedy_for_other_operations(
    module: Callable[..., Any],
    examples: Sequence[mm.Array],
    variable_axes: Sequence[Sequence[int]],
) -> str:
    """Return the remedy for a module whose operations depend on extents: if they do not depend on
    that of the first axis, it alone can vary."""
    first_axes = [[axis for axis in axes if axis == 0] for axes in variable_axes]
    if first_axes == [list(axes) for axes in variable_axes]:
        return KEEP_FIXED
    try:
        TracedModule(module, examples, first_axes)
    except MagmathError:
        return KEEP_FIXED
    return "the number of samples alone can vary: pass variable_axes=1"


def _has_same_values(node: Node, other: Node) -> bool:
    if node is other or node.value is other.value:
        return True
    if node.shape != other.shape:
        return False
    return bool(np.asarray(Array(node)).tobytes() == np.asarray(Array(other)).tobytes())


def _places_of_extents(
    examples: Sequence[mm.Array], axes: Sequence[Sequence[int]]
) -> dict[str, list[Place]]:
    """Return the inputs and axes of each named extent: equal extents of one axis are the same."""
    places: dict[str, list[Place]] = {}
    names: dict[tuple[int, int], str] = {}
    for index, x in enumerate(examples):
        for axis in [axis for axis in axes[index] if axis < x.ndim]:
            key = (axis, x.shape[axis])
            if key not in names:
                number = sum(1 for other, _ in names if other == axis)
                name = "batch" if axis == 0 else f"extent_{axis}"
                names[key] = f"{name}_{number}" if number else name
            places.setdefault(names[key], []).append((index, axis))
    return places


def _variants(
    places: Mapping[str, Sequence[Place]], examples: Sequence[mm.Array]
) -> list[dict[str, int]]:
    """Return the extents of each trace: different ones for each name, then one by one larger.

    No extent is a power of two: for those a mean multiplies by the exact inverse, and has other
    nodes. Without a name there are two equal traces, which show what the module draws.
    """
    first: dict[str, int] = {}
    for i, (name, ((index, axis), *_)) in enumerate(places.items()):
        step = 1 if axis < 2 else 32
        extent = examples[index].shape[axis]
        while (
            extent <= 8 << i
            or extent in first.values()
            or any((extent + n).bit_count() == 1 for n in (0, *_added(axis), _odd(axis)))
        ):
            extent += step
        first[name] = extent
    larger = [
        {**first, name: first[name] + n}
        for name, ((_, axis), *_) in places.items()
        for n in _added(axis)
    ]
    return [first, *(larger or [first])]


def _added(axis: int) -> tuple[int, int]:
    return ADDED if axis < 2 else ADDED_TO_SPACE


def _odd(axis: int) -> int:
    return ODD if axis < 2 else ODD_IN_SPACE


def _odd_variants(
    places: Mapping[str, Sequence[Place]], first: Mapping[str, int]
) -> list[dict[str, int]]:
    """Return the extents of one more trace for each name."""
    return [{**first, name: first[name] + _odd(axis)} for name, ((_, axis), *_) in places.items()]


@final
class _ModuleTrace(NamedTuple):
    """A traced call: the leaves of its inputs, the nodes of its outputs, and the nested outputs."""

    inputs: list[Node]
    outputs: list[Node]
    nested: Any
    trace: Trace


def _trace_module(
    module: Callable[..., Any],
    examples: Sequence[mm.Array],
    places: Mapping[str, Sequence[Place]],
    sizes: Mapping[str, int],
) -> _ModuleTrace:
    """Trace a call of the module with inputs of these extents.

    Raises UnsupportedError if the module does not take such inputs, OptionError if it returns
    something else than arrays.
    """
    shapes: list[Shape] = []
    for index, x in enumerate(examples):
        shape = list(x.shape)
        for name, used in places.items():
            for _, axis in [place for place in used if place[0] == index]:
                shape[axis] = sizes[name]
        shapes.append(tuple(shape))
    replicated = session.engine().environment.replicated
    with tracing.tracing(Trace()) as trace:
        inputs = [
            Array(input_leaf(shape, x.dtype, replicated(shape), None))
            for shape, x in zip(shapes, examples, strict=True)
        ]
        try:
            nested = module(*inputs)
        except MagmathError as error:
            if not places:
                raise
            raise UnsupportedError(
                f"to_onnx: the module is traced with inputs of other extents too, and does not "
                f"take {', '.join(map(str, shapes))}: {error}; if it takes the example, "
                f"{KEEP_FIXED}"
            ) from error
        outputs, _ = flatten(nested)
    for x in outputs:
        if not isinstance(x, Array):
            raise OptionError(
                f"to_onnx: the module must return arrays, was given {type(x).__name__} among its "
                f"outputs; leave it out, or return mm.asarray(x)"
            )
    return _ModuleTrace(
        [x.node for x in inputs], without_marks([x.node for x in outputs]), nested, trace
    )

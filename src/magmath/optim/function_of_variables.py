"""Conversion of an expression to a function of its variables.

`minimize` starts from the current values of variables, independently of the values that the
expression has read at the line that wrote it. Everything else that the expression reads is
constant: plain arrays, former values of variables, and random arrays that user code references.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence, Set
from typing import final
from weakref import ref

from magmath.arrays.array import Array
from magmath.arrays.variables.variable import Variable
from magmath.engine import session
from magmath.engine.lifetimes.live_references import live_intermediates
from magmath.engine.traces.stream_state import StreamState, generator_of
from magmath.errors import GradientError
from magmath.graph import (
    Graph,
    Node,
    OperandReference,
    make_node,
    provenance_of,
    set_value,
    topological,
)
from magmath.graph.provenance.dependence import DependenceSearch
from magmath.graph.provenance.operand_references import VersionReference
from magmath.graph.provenance.provenance_chains import operands_before
from magmath.graph.provenance.rebuild import with_expressions


@final
class FunctionOfVariables:
    """An expression as a function of its variables.

    output   the expression of the variables' leaves
    draws    the leaves of random stream numbers, in the order of the draws, and their generators
    reads_present_values   True if the expression has read the current values of its variables

    If the expression has read several values of a variable, the last one is the argument; former
    values are constants. Random arrays that user code references are constants too; each step draws
    the others again. A variable that was converted since is one too: its former type stays part of
    the expression. Raises GradientError if the expression depends on none of the given variables,
    or depends on variables through an evaluated array that cannot be recomputed.
    """

    def __init__(self, expression: Array, variables: Sequence[Variable]) -> None:
        self._node = ref(expression.node)
        self._targets = [v.leaf for v in variables]
        _evaluate_constants(expression.node)
        newest = _newest_values(expression.node)
        targets = {v.leaf for v in variables}
        if targets.isdisjoint(newest):
            raise GradientError(
                "minimize: the expression depends on none of the variables; write it with them "
                "(a copy, mm.asarray(v, copy=True), is a constant)"
            )

        node = _rebuilt(expression.node, targets, newest)
        self.reads_present_values = all(map(_is_present, newest, newest.values()))
        self._present = {v: n for v, n in newest.items() if v not in targets and _is_present(v, n)}
        self.output = _of_variables(node, newest)
        graph = Graph((self.output,))
        self.leaves = graph.leaves
        self._read = [leaf for leaf in self.leaves if leaf.name == "variable"]
        self._layouts = [leaf.layout for leaf in self._read]
        self.draws = _draws(self.leaves)
        self.key = _structure_key(graph, self.draws)

    def is_of(self, expression: Array, variables: Sequence[Variable]) -> bool:
        """Return True if it was made from this expression and these variables, and is still valid:
        no variable was converted or moved since."""
        if self._node() is not expression.node or self._targets != [v.leaf for v in variables]:
            return False
        if self._layouts != [leaf.layout for leaf in self._read]:
            return False
        present = self._present.items()  # for these, evaluated arrays are constants
        return (
            not self.reads_present_values
            and all(map(_is_of_variable, self._read))
            and all(_is_present(v, n) for v, n in present)
        )

    def draws_of(self, leaf: Node) -> int:
        """Return the number of draws from the generator of a stream number leaf."""
        return sum(state is self.draws[leaf] for state in self.draws.values())


def _rebuilt(expression: Node, targets: Set[Node], newest: Mapping[Node, int]) -> Node:
    """Return the expression with the expressions of evaluated arrays that depend on the targets, or
    on values that other variables no longer have.

    Raises GradientError if one of them cannot be built again.
    """

    def is_varying(read: OperandReference) -> bool:
        if not isinstance(read, VersionReference) or newest.get(read.variable) != read.number:
            return False
        return read.variable in targets or not _is_present(read.variable, read.number)

    def replaced(read: OperandReference) -> Node | None:
        if isinstance(read, VersionReference) and newest.get(read.variable) == read.number:
            return read.variable
        return read.find()

    (node,), lost, _ = with_expressions([expression], (), DependenceSearch(is_varying), replaced)
    if lost:
        raise GradientError(
            "minimize: the expression depends on variables through an array of shape "
            f"{next(iter(lost)).shape} that was computed from operands that no longer exist; "
            "build the expression again"
        )
    return node


def _structure_key(graph: Graph, draws: Mapping[Node, StreamState]) -> Hashable:
    """Return a key of an expression: its structure, the variables that it reads, which draws have
    the same generator, and the order of the draws."""
    generators = list(dict.fromkeys(map(id, draws.values())))
    read = [
        leaf if leaf.name == "variable"
        else generators.index(id(draws[leaf])) if leaf in draws
        else None
        for leaf in graph.leaves
    ]  # fmt: skip
    order = [graph.leaves.index(leaf) for leaf in draws]
    return (graph.key, *read, *order)


def _evaluate_constants(node: Node) -> None:
    """Compute the intermediates that user code references and that depend on no variable.

    So a randomly drawn data set is not drawn again.
    """
    order = topological((node,), pending=True)
    named = live_intermediates(order, (node,))
    constants = [x for x in order if x in named and not x.reads_version and not x.is_leaf]
    if constants:
        for constant, leaf in zip(constants, session.engine().evaluate(constants), strict=True):
            set_value(constant, leaf)


def _newest_values(output: Node) -> dict[Node, int]:
    """Return the leaves of the variables that an expression depends on, with the number of the last
    version of each that it has read."""
    newest: dict[Node, int] = {}
    for node in topological([output]):
        if node.operation.is_version:
            variable, number = node.inputs[0], node.attributes["number"]
            newest[variable] = max(number, newest.get(variable, 0))
        provenance = provenance_of(node)
        if provenance is None:
            continue
        for read in operands_before(provenance):
            if isinstance(read, VersionReference):
                newest[read.variable] = max(read.number, newest.get(read.variable, 0))
    return {leaf: number for leaf, number in newest.items() if _is_of_variable(leaf)}


def _is_of_variable(leaf: Node) -> bool:
    """Return True if a variable has this leaf: not after its conversion to another type."""
    owner = leaf.value()
    return owner is not None and owner.leaf is leaf


def _is_present(variable: Node, number: int) -> bool:
    """Return True if this is the version number of a variable's current value."""
    owner = variable.value()
    return owner is not None and owner.number == number


def _of_variables(output: Node, newest: Mapping[Node, int]) -> Node:
    """Return an expression with variables in place of their last versions that it has read."""
    new: dict[Node, Node] = {}
    varying: set[Node] = set()
    for node in topological([output]):
        inputs = tuple([new[source] for source in node.inputs])
        former = (
            node.operation.is_version and newest.get(node.inputs[0]) != node.attributes["number"]
        )
        if node.name == "variable" or (node.operation.is_version and not former):
            image = node if node.name == "variable" else inputs[0]
        elif former or varying.isdisjoint(inputs):
            new[node] = node if node.value is None or node.is_leaf else node.value
            continue
        else:
            image = make_node(
                node.operation, inputs, node.attributes, node.shape, node.dtype, node.layout,
                node.line, signature=node.signature,
            )  # fmt: skip
        new[node] = image
        varying.add(image)
    return new[output]


def _draws(leaves: Sequence[Node]) -> dict[Node, StreamState]:
    """Return the leaves of random stream numbers and their generators, in order of the draws."""
    streams = {
        leaf: state
        for leaf in leaves
        if leaf.name == "scalar" and (state := generator_of(leaf)) is not None
    }
    return dict(sorted(streams.items(), key=lambda pair: pair[0].value))

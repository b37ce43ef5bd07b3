"""Gradients of small arrays: one call of a program for all operations of a gradient.

A training loop differentiates an expression of the same structure in each step. To build the
expression from the records of its results, and its gradient, node by node, takes several times as
long as the arithmetic. So the second gradient of a structure makes a program, which later ones run.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, final

from magmath.autodiff import gradients
from magmath.core.bounded_memo import RecentlyUsed
from magmath.engine.eager.gradient_tape import GradientTape, NotEagerError
from magmath.errors import MagmathError
from magmath.graph import (
    Graph,
    Node,
    Operation,
    Provenance,
    Recipe,
    apply,
    provenance_of,
    recipe_of,
    topological,
)
from magmath.graph.graph import substituted
from magmath.graph.operation import Line
from magmath.graph.provenance.operand_references import reference_to_array
from magmath.ops.gradient_results import INDEPENDENT
from magmath.passes.simplify import simplify

if TYPE_CHECKING:
    from magmath.engine.eager.eager_computation import EagerComputation
    from magmath.executor.eager_program import EagerProgram

MAX_CALLS = 1024


@final
class ComputedGradients(NamedTuple):
    """Gradients, and the arrays that they were computed from."""

    gradients: list[Node]
    operands: list[Node]


@final
class EagerGradients:
    """The computation of gradients of small arrays for one pool, in this process."""

    def __init__(self, eager: EagerComputation) -> None:
        self._eager = eager
        self._calls: RecentlyUsed[Hashable, _GradientCall | Literal[False] | None]
        self._calls = RecentlyUsed(MAX_CALLS)
        """By structure; None if one gradient was seen, False if it is not computed here."""

    def compute(
        self,
        output: Node,
        sources: Sequence[Node],
        mark: Operation | None,
        line: Line,
        *,
        check_independence: bool,
    ) -> ComputedGradients | None:
        """Return the gradient of a 0-d result by each source, marked by `mark`.

        Returns None for a gradient that needs more than operations on small arrays that this
        process stores. `check_independence` as for `gradients`.
        """
        try:
            tape = GradientTape(
                self._eager, output, sources, through_gradients=not check_independence
            )
        except NotEagerError:
            return None
        key = (mark, check_independence, tape.key)
        call = self._calls.find(key)
        if call is None and key not in self._calls:
            self._calls.store(key, None)
            nodes = _marked(gradients(output, sources, check_independence=check_independence), mark)
            return self._computed(nodes, tape)
        if call is None:
            call = _prepared(self._eager, tape, mark, check_independence)
            self._calls.store(key, call)
        return call.run(self._eager, tape, line) if call else None

    def _computed(self, nodes: Sequence[Node], tape: GradientTape) -> ComputedGradients | None:
        """Return gradients that are computed one operation after the other."""
        leaves = [leaf for x in nodes if (leaf := self._eager.leaf_of_needed_node(x)) is not None]
        if len(leaves) < len(nodes):
            return None
        if (record := provenance_of(leaves[0])) is not None:
            record.keep_recent(tape.stored_intermediates)
        return ComputedGradients(leaves, tape.leaves)


def _marked(gradients: list[Node], mark: Operation | None) -> list[Node]:
    return gradients if mark is None else [apply(mark, x) for x in gradients]


@final
class _GradientCall:
    """The gradients of one structure.

    program    computes the gradients from the values and the numbers of a tape
    recipe     how they are built again, for gradients of a higher order
    outputs    the positions of the gradients in the recipe
    like       a node for each gradient, of its shape and type
    operands   the operands of the recipe, by their positions among the leaves of a tape, followed
               by those of its stored results
    numbers    its numbers, by those among the numbers of a tape
    """

    def __init__(
        self,
        program: EagerProgram,
        recipe: Recipe,
        outputs: Sequence[int],
        like: Sequence[Node],
        operands: Sequence[int],
        numbers: Sequence[int],
    ) -> None:
        self._program, self._recipe = program, recipe
        self._outputs, self._like = outputs, like
        self._operands, self._numbers = operands, numbers

    def run(self, eager: EagerComputation, tape: GradientTape, line: Line) -> ComputedGradients:
        """Return the gradients of a result. Raises what a kernel raises."""
        values = self._program.run(tape.values, tape.numbers)
        stored = [*tape.leaves, *tape.stored]
        leaves = [stored[i] for i in self._operands]
        operands = tuple([reference_to_array(leaf) for leaf in leaves])
        numbers = [tape.numbers[i] for i in self._numbers]
        results = []
        record: Provenance | None = None
        for value, node, output in zip(values, self._like, self._outputs, strict=True):
            if record is None:
                record = Provenance.of(self._recipe, output, operands, line, numbers)
                record.keep_recent(tape.stored_intermediates)
            else:
                record = record.of_output(output, line)
            results.append(eager.new_leaf(node.shape, node.dtype, value, record))
        return ComputedGradients(results, leaves)


def _prepared(
    eager: EagerComputation, tape: GradientTape, mark: Operation | None, check_independence: bool
) -> _GradientCall | Literal[False]:
    """Return the call that computes the gradients of all results with this tape; False if it needs
    the workers."""
    nodes = tape.nodes()
    try:
        unmarked = gradients(nodes.output, nodes.sources, check_independence=check_independence)
    except MagmathError:  # the usual way raises the error
        return False
    if check_independence and any(x.operation is INDEPENDENT for x in unmarked):
        return False  # which is an error or not, by what the source was computed from
    computed = simplify(Graph(tuple(substituted(unmarked, dict(nodes.stored)))))
    values = [*nodes.leaves, *[leaf for _, leaf in nodes.stored]]
    program = eager.program(computed, values, nodes.numbers)
    if program is None:
        return False
    marked = _marked(unmarked, mark)
    # The results are operands too: the gradients depend on them, and later gradients find them.
    results = [node for node, _ in nodes.stored]
    recipe, _, position = recipe_of(topological(marked), set(results))
    numbers = [i for i, x in enumerate(nodes.numbers) if x in position]
    recipe = recipe.with_numbers([position[nodes.numbers[i]] for i in numbers])
    index = {position[x]: i for i, x in enumerate([*nodes.leaves, *results]) if x in position}
    operands = [index[i] for i in recipe.operands]
    return _GradientCall(
        program, recipe, [position[x] for x in marked], unmarked, operands, numbers
    )

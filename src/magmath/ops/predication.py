"""Operations that mark the branches of `mm.cond` in a traced function (predication).

Both branches are computed, and their results are selected. `branch` names the predicate of a branch
and everything that the branch reads; its value is the predicate. `branch_result` is a result of the
branch. The passes replace both by their values. `autodiff` and `batching` read the marks, so that
nothing of a branch that is not taken reaches a gradient, not even zero times an infinite
derivative.
"""

from __future__ import annotations

from collections.abc import Iterable

from magmath.core.dtypes import DType, bool_
from magmath.graph import Node, Shape, apply
from magmath.ops.leaves import is_known_number
from magmath.ops.marks import mark


def _branch_infer(predicate: Node, *inputs: Node) -> tuple[Shape, DType]:
    return (), bool_


BRANCH = mark("branch", infer=_branch_infer, reference=lambda predicate, *inputs: predicate)

BRANCH_RESULT = mark(
    "branch_result",
    infer=lambda value, branch: (value.shape, value.dtype),
    reference=lambda value, branch: value,
)


def branch(predicate: Node, inputs: Iterable[Node]) -> Node:
    """Mark a branch that is taken if the 0-d predicate is true, and that reads these inputs.

    Known numbers are not listed: they have no gradients.
    """
    read = [x for x in dict.fromkeys(inputs) if not is_known_number(x)]
    return apply(BRANCH, predicate, *read)


def branch_result(value: Node, branch_node: Node) -> Node:
    """Mark a value as a result of a branch. It depends on nothing but what the branch reads."""
    return apply(BRANCH_RESULT, value, branch_node)


OPERATIONS = {record.name: record for record in (BRANCH, BRANCH_RESULT)}

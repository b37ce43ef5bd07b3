"""Errors of differentiation: a lost expression, and a source that the result does not read."""

from __future__ import annotations

from magmath.errors import GradientError, MagmathError
from magmath.graph import Node, provenance_of
from magmath.graph.provenance.provenance_chains import nodes_before
from magmath.ops.leaves import is_known_number


def lost_expression_error(node: Node) -> MagmathError:
    """Return the error for a gradient through an array that cannot be computed again."""
    provenance = provenance_of(node)
    assert provenance is not None
    line = provenance.line
    where = f" at {line[0]}:{line[1]}" if line else ""
    return GradientError(
        f"grad: the result depends on the array through one that was computed{where} and cannot be "
        f"computed again: {provenance.why_lost()}; compute the gradients before, in one call for "
        f"several arrays (mm.grad(loss, [w, b])), keep the operands, or compile the whole "
        f"(mm.compile); for what counts as a constant there is mm.stop_gradient(x)"
    )


def check_independent(output: Node, source: Node) -> None:
    """Raise GradientError if an output that does not depend on a source depends on an array from
    which the source was computed: a zero gradient is hardly intended then."""
    made_of = _ancestors(source) - {source, source.leaf_or_self}
    ancestor = next(iter(made_of & _ancestors(output)), None)
    if ancestor is not None:
        raise GradientError(
            f"grad: the result does not depend on this array of shape {source.shape}, only on its "
            f"source of shape {ancestor.shape}, so the gradient would be zero; if the array was "
            f"updated in place (x[0] = …, x -= …) after the result was computed, the result has "
            f"not read its present value: compute the gradient before the update; if it is a part "
            f"(x[0] is a new array each time), write part = x[0] once and use part in the result, "
            f"or take a part of the gradient with respect to the source (mm.grad(y, x)[0]); apply "
            f"mm.stop_gradient to the source if the array is a constant"
        )


def _ancestors(node: Node) -> set[Node]:
    """Return the node and all nodes through which its value has gradients, including the existing
    ones of the provenance of evaluated nodes."""
    ancestors, stack = {node}, [node]
    while stack:
        last = stack.pop()
        is_end = last.name == "stop_gradient" or last.operation.is_gradient
        sources = [] if is_end else [last.leaf_or_self, *last.inputs]
        provenance = provenance_of(last)
        before = nodes_before(provenance, through_gradients=False) if provenance else ()
        for source in [*sources, *before]:
            has_gradient = source.dtype.kind in ("float", "complex") and not is_known_number(source)
            if has_gradient and source not in ancestors:
                ancestors.add(source)
                stack.append(source)
    return ancestors

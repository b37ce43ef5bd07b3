"""Losses of the parts of a batch, whose combination is the loss of the batch.

A loss is usually the mean over the samples. A weighted mean, such as that over the labels that are
not ignored, is a quotient whose divisor depends on sums over the samples: the dividends of the
parts are added, and the sums in their divisors. Other losses may be linear functions of such means
and of sums (`linear_losses`). The form is read from the expression of the loss.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from functools import reduce
from operator import add
from typing import NamedTuple, final

from magmath.arrays.array import Array
from magmath.graph import Node
from magmath.graph.graph import substituted
from magmath.parallel.linear_losses import TracedLoss, loss_terms


@final
class PartLoss(NamedTuple):
    """The summand of a part of a batch.

    divisor  what the sum of all summands is to be divided by; None if it is not to be divided
    sums     the sums over the samples of the part in the divisor
    fixed    what is to be added once to the loss of the batch: terms that do not depend on samples
    """

    summand: Array
    divisor: Node | None = None
    sums: Sequence[Node] = ()
    fixed: Array | None = None


def part_loss(
    part: TracedLoss,
    samples: int,
    parameters: Collection[Node],
    whole: Callable[[], TracedLoss],
) -> PartLoss:
    """Return the summand of a part.

    part        the loss of the part alone
    samples     the number of samples of the batch
    parameters  on which the divisor of a weighted mean does not depend
    whole       returns the loss of the batch, which is asked for unless the loss is a weighted mean
    """
    weighted = _weighted_mean(part.loss, part, samples, parameters)
    if weighted is not None:
        return weighted
    share, terms = part.samples / samples, loss_terms(part, whole())
    if terms is None or terms.varying is None:
        return PartLoss(Array(part.loss) * share)
    fixed = None if terms.fixed is None else Array(terms.fixed)
    if terms.quotient is None:
        return PartLoss(Array(terms.varying), fixed=fixed)
    weighted = _weighted_mean(terms.quotient, part, samples, parameters)
    if weighted is None:
        return PartLoss(Array(part.loss) * share)
    (summand,) = substituted([terms.varying], {terms.quotient: weighted.summand.node})
    return weighted._replace(summand=Array(summand), fixed=fixed)


def _weighted_mean(
    node: Node, part: TracedLoss, samples: int, parameters: Collection[Node]
) -> PartLoss | None:
    """Return the summand of a quotient of sums over the samples; None for another expression."""
    if node.name != "divide":
        return None
    (dividend, divisor), batch = node.inputs, set(part.batch)
    sums, others = _sums_of_samples(divisor, part.samples)
    is_constant = batch.union(parameters).isdisjoint(others)
    is_weighted = sums and is_constant and _ancestors(sums, batch).isdisjoint(parameters)
    if not (is_weighted and _is_sum_of_samples(_without_casts(dividend), part.samples)):
        return None
    return PartLoss(Array(dividend) / samples, divisor, sums)


def total_divisor(losses: Sequence[PartLoss], samples: int) -> Array | None:
    """Return what the sum of the summands is to be divided by; None if it is the loss of the
    batch."""
    first = losses[0]
    if first.divisor is None:
        return None
    of_parts = zip(*[x.sums for x in losses], strict=True)
    totals = [reduce(add, map(Array, sums)).node for sums in of_parts]
    (divisor,) = substituted([first.divisor], dict(zip(first.sums, totals, strict=True)))
    return Array(divisor) / samples


def _sums_of_samples(node: Node, count: int) -> tuple[list[Node], set[Node]]:
    """Return the sums over the samples on which a node depends, and the nodes that combine them."""
    sums: list[Node] = []
    others, waiting = set[Node](), [node]
    while waiting:
        node = waiting.pop()
        if _is_sum_of_samples(node, count):
            sums += [node] if node not in sums else []
        elif node not in others:
            others.add(node)
            waiting += node.inputs
    return sums, others


def _ancestors(nodes: Iterable[Node], ends: Collection[Node]) -> set[Node]:
    """Return the nodes on which nodes depend, without those on which only `ends` depend."""
    read, waiting = set[Node](), [*nodes]
    while waiting:
        node = waiting.pop()
        if node not in read:
            read.add(node)
            waiting += () if node in ends else node.inputs
    return read


def _is_sum_of_samples(node: Node, count: int) -> bool:
    """Return True for a sum over the first axis of an array that has this many samples, or as many
    for each element of a sequence."""
    if node.name != "sum" or 0 not in node.attributes["axis"]:
        return False
    return node.inputs[0].shape[0] % count == 0


def _without_casts(node: Node) -> Node:
    while node.name == "astype":
        (node,) = node.inputs
    return node

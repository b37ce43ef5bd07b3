"""Losses of the parts of a batch, whose combination is the loss of the batch.

A loss is usually the mean over the samples. It may be another linear function of means and of sums
over the samples (`linear_losses`), or of a weighted mean, such as that over the labels that are not
ignored: a quotient whose divisor depends on sums over the samples. The dividends of the parts are
added, and the sums in their divisors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import reduce
from operator import add
from types import MappingProxyType
from typing import NamedTuple, final

from magmath.api.manipulation import reshape
from magmath.arrays.array import Array
from magmath.graph import Node
from magmath.graph.graph import substituted
from magmath.parallel.linear_losses import TracedLoss, loss_terms


@final
class PartLoss(NamedTuple):
    """The summand of a part of a batch.

    divisor   what the sum of all summands is to be divided by; None if it is not to be divided
    sums      the sums over the samples of the batch in the divisor, with those of the part
    fixed     what is to be added once to the loss of the batch: terms that do not depend on samples
    """

    summand: Array
    divisor: Node | None = None
    sums: Mapping[Node, Node] = MappingProxyType({})
    fixed: Array | None = None


@final
class InseparableLoss(Exception):
    """The loss of a batch does not follow from sums over its parts."""


def part_loss(
    part: TracedLoss, samples: int, parameters: Collection[Node], whole: TracedLoss
) -> PartLoss:
    """Return the summand of a part. Raises InseparableLoss if the sum of those of all parts does
    not give the loss of the batch.

    part        the loss of the part alone
    samples     the number of samples of the batch
    parameters  on which the divisor of a weighted mean must not depend
    whole       the loss of the batch
    """
    terms = loss_terms(part, whole)
    if terms is None:
        raise InseparableLoss
    if terms.varying is None:
        return weighted_loss(part, samples)
    fixed = None if terms.fixed is None else Array(terms.fixed)
    quotient = terms.quotient
    if quotient is None:
        return PartLoss(Array(terms.varying), fixed=fixed)
    if not _ancestors(quotient.node.inputs[1:], part.batch).isdisjoint(parameters):
        raise InseparableLoss
    dividend = Array(quotient.dividend) / samples
    (summand,) = substituted([terms.varying], {quotient.node: dividend.node})
    return PartLoss(Array(summand), quotient.divisor, quotient.sums, fixed)


def weighted_loss(part: TracedLoss, samples: int) -> PartLoss:
    """Return the loss of a part weighted by its samples, of a batch of `samples`."""
    return PartLoss(Array(part.loss) * (part.samples / samples))


def total_divisor(losses: Sequence[PartLoss], samples: int) -> Array | None:
    """Return what the sum of the summands is to be divided by, 0-d; None if it is the loss of the
    batch."""
    first = losses[0]
    if first.divisor is None:
        return None
    totals = {
        whole: reduce(add, [Array(x.sums[whole]) for x in losses]).node for whole in first.sums
    }
    (divisor,) = substituted([first.divisor], totals)
    return reshape(Array(divisor), ()) / samples


def _ancestors(nodes: Iterable[Node], ends: Collection[Node]) -> set[Node]:
    """Return the nodes on which nodes depend, without those on which only `ends` depend."""
    read, waiting = set[Node](), [*nodes]
    while waiting:
        node = waiting.pop()
        if node not in read:
            read.add(node)
            waiting += () if node in ends else node.inputs
    return read

"""Losses of the parts of a batch, so that their sum is the loss of the batch.

A loss is the mean over the samples, their sum, or a weighted mean, such as that over the labels
that are not ignored. Weighted means have a divisor that depends on the batch: the dividends of the
parts are added, and their divisors. The form is read from the expression of the loss.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, final

from magmath.arrays.array import Array
from magmath.graph import Node


@final
class PartLoss(NamedTuple):
    """The summand of a part of a batch, and its weight if the sum of all summands is to be divided
    by that of their weights."""

    summand: Array
    weight: Array | None = None


def part_loss(loss: Array, part: Sequence[Array], samples: int, fixed: Iterable[Node]) -> PartLoss:
    """Return the summand of a part.

    loss     the loss of the part alone
    part     the arrays of its samples
    samples  the number of samples of the batch
    fixed    the parameters, on which the divisor of a weighted mean does not depend
    """
    node, own_samples, batch = loss.node, part[0].shape[0], {x.node for x in part}
    if node.name == "divide":
        dividend, divisor = node.inputs
        read = _read(divisor, batch)
        is_weight = not read.isdisjoint(batch) and read.isdisjoint(fixed)
        if is_weight and _is_sum_of_samples(dividend, own_samples):
            return PartLoss(Array(dividend) / samples, Array(divisor) / samples)
    if _is_sum_of_samples(node, own_samples) and not _has_sums(node, own_samples, batch):
        return PartLoss(loss)
    return PartLoss(loss * (own_samples / samples))


def _read(node: Node, ends: Collection[Node]) -> set[Node]:
    """Return the nodes on which a node depends, without those on which only `ends` depend."""
    read, waiting = set[Node](), [node]
    while waiting:
        node = waiting.pop()
        if node not in read:
            read.add(node)
            waiting += () if node in ends else node.inputs
    return read


def _is_sum_of_samples(node: Node, samples: int) -> bool:
    """Return True for a sum over the first axis of an array with this length."""
    if node.name != "sum" or 0 not in node.attributes["axis"]:
        return False
    return node.inputs[0].shape[0] == samples


def _has_sums(node: Node, samples: int, batch: Collection[Node]) -> bool:
    """Return True if the summands depend on sums over samples, such as means of columns."""
    return any(_is_sum_of_samples(x, samples) for x in _read(node.inputs[0], batch))

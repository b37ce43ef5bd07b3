"""The loss of a part of a batch as a linear function of sums over its samples.

The expression of a part does not tell whether the factor of a sum is that of a mean, which depends
on the number of samples, or one of the user. So it is compared with the expression of the whole
batch, which is not computed: what they differ in depends on the number of samples. The sums of the
parts are multiplied by the factors of the whole batch. Terms that do not depend on the samples,
such as a penalty, are added once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple, final

from magmath.core.shapes import size_of
from magmath.engine.remote_array import RemoteArray
from magmath.graph import Node, topological
from magmath.graph.graph import substituted
from magmath.ops import elementwise as e

_LINEAR = ("negative", "astype", "sum", "reshape", "permute_dims", "broadcast_to")
"""Operations of one operand that are linear and read no numbers."""
_REPEATING = ("broadcast_to", "full")
"""Operations that repeat elements."""


@final
class TracedLoss(NamedTuple):
    """The loss of some samples, the arrays of the samples, and the outputs of the module."""

    loss: Node
    batch: Sequence[Node]
    outputs: Sequence[Node]

    @property
    def samples(self) -> int:
        """The number of samples."""
        return self.batch[0].shape[0]


@final
class WeightedMean(NamedTuple):
    """A quotient of sums over the samples.

    node      the quotient of the part
    dividend  whose sum over the parts is that of the batch
    divisor   that of the batch, with the sums of the part in place of those of the batch
    sums      the sums of the part in the divisor
    """

    node: Node
    dividend: Node
    divisor: Node
    sums: Sequence[Node]


@final
class LossTerms(NamedTuple):
    """The terms of a loss.

    varying   those that depend on the samples, whose sum over the parts is that of the batch
    fixed     those that do not
    quotient  a quotient that depends on the samples, if `varying` is linear in it and in nothing
              else
    """

    varying: Node | None
    fixed: Node | None
    quotient: WeightedMean | None = None

    def mapped(self, function: Callable[[Node], Node]) -> LossTerms:
        """Return a linear function of the terms."""
        return LossTerms(
            self.varying and function(self.varying),
            self.fixed and function(self.fixed),
            self.quotient,
        )

    def plus(self, other: LossTerms) -> LossTerms:
        """Return the sum of these terms and other ones."""
        quotient = self.quotient or other.quotient
        if quotient is not None and None not in (self.varying, other.varying):
            raise _NotLinear
        return LossTerms(_sum(self.varying, other.varying), _sum(self.fixed, other.fixed), quotient)


def loss_terms(part: TracedLoss, whole: TracedLoss) -> LossTerms | None:
    """Return the terms of the loss of a part, with the factors of the whole batch; None if it is
    not a linear function of sums over the samples."""
    try:
        return _Comparison(part, whole).terms(part.loss, whole.loss)
    except _NotLinear:
        return None


@final
class _NotLinear(Exception):
    """The loss has another form."""


@final
class _Comparison:
    """The comparison of the losses of a part and of the whole batch, node by node."""

    def __init__(self, part: TracedLoss, whole: TracedLoss) -> None:
        self._samples = part.samples, whole.samples
        operands = zip((*part.batch, *part.outputs), (*whole.batch, *whole.outputs), strict=True)
        self._counterparts = dict(operands)
        self._varying = _dependent(part.loss, self._counterparts)

    def terms(self, part: Node, whole: Node) -> LossTerms:
        """Return the terms of corresponding nodes."""
        if part not in self._varying:
            return LossTerms(None, _of_whole_batch(part, whole))
        is_scaled = _is_times_number(part) and _is_times_number(whole)
        if part.shape != whole.shape or (part.name != whole.name and not is_scaled):
            raise _NotLinear
        pairs = list(zip(part.inputs, whole.inputs, strict=True))
        if part.name == "sum" and self._is_over_samples(part, whole):
            self._check_equal(*pairs[0])
            return LossTerms(part, None)
        if part.name in _LINEAR:
            return self.terms(*pairs[0]).mapped(lambda x: part.replace((x,)))
        if any(x.shape != part.shape for x in part.inputs if x in self._varying):
            raise _NotLinear
        if part.name in ("add", "subtract") and part.inputs[0].shape == part.inputs[1].shape:
            terms, others = [self.terms(*pair) for pair in pairs]
            return terms.plus(others if part.name == "add" else others.mapped(e.negative))
        if part.name not in ("multiply", "divide"):
            raise _NotLinear
        first, second = part.inputs
        if second not in self._varying:
            factor = _of_whole_batch(*pairs[1])
            return self.terms(*pairs[0]).mapped(lambda x: whole.replace((x, factor)))
        if part.name == "divide" and first in self._varying:
            return LossTerms(part, None, self._weighted_mean(part, *pairs))
        if part.name == "divide" or first in self._varying:
            raise _NotLinear
        factor = _of_whole_batch(*pairs[0])
        return self.terms(*pairs[1]).mapped(lambda x: part.replace((factor, x)))

    def _weighted_mean(
        self, part: Node, dividend: tuple[Node, Node], divisor: tuple[Node, Node]
    ) -> WeightedMean:
        """Return a quotient of the part, given its dividend and its divisor with those of the
        batch."""
        terms = self.terms(*dividend)
        if terms.varying is None or terms.fixed is not None or terms.quotient is not None:
            raise _NotLinear
        sums = self._sums(*divisor)
        (of_batch,) = substituted([divisor[1]], {whole: part for part, whole in sums.items()})
        return WeightedMean(part, terms.varying, of_batch, list(sums))

    def _sums(self, part: Node, whole: Node) -> dict[Node, Node]:
        """Return the sums over the samples on which a node depends, with those of the batch. Raises
        _NotLinear if it depends on samples otherwise."""
        sums: dict[Node, Node] = {}
        waiting, seen = [(part, whole)], set[tuple[Node, Node]]()
        while waiting:
            pair = part, whole = waiting.pop()
            if pair in seen:
                continue
            seen.add(pair)
            if part not in self._varying:
                _of_whole_batch(part, whole)
            elif part.is_leaf or part.name != whole.name or part.shape != whole.shape:
                raise _NotLinear
            elif part.name == "sum" and self._is_over_samples(part, whole):
                self._check_equal(part.inputs[0], whole.inputs[0])
                sums[part] = whole
            else:
                waiting += zip(part.inputs, whole.inputs, strict=True)
        return sums

    def _is_over_samples(self, part: Node, whole: Node) -> bool:
        """Return True for a sum over the samples, perhaps over other axes too."""
        scaled = self._scaled_axes(part.inputs[0], whole.inputs[0])
        return len(scaled) == 1 and scaled[0] in part.attributes["axis"]

    def _scaled_axes(self, part: Node, whole: Node) -> list[int]:
        """Return the axes whose length is proportional to the number of samples. Raises _NotLinear
        if another one has different lengths."""
        if part.ndim != whole.ndim:
            raise _NotLinear
        lengths = list(zip(part.shape, whole.shape, strict=True))
        axes = [axis for axis, (m, n) in enumerate(lengths) if m != n]
        count, samples = self._samples
        if any(lengths[axis][0] * samples != lengths[axis][1] * count for axis in axes):
            raise _NotLinear
        return axes

    def _check_equal(self, part: Node, whole: Node) -> None:
        """Raise _NotLinear unless corresponding nodes are one function of each sample."""
        waiting, seen = [(part, whole)], set[tuple[Node, Node]]()
        while waiting:
            pair = part, whole = waiting.pop()
            if pair in seen or part is whole or self._counterparts.get(part) is whole:
                continue
            seen.add(pair)
            is_alike = part.name == whole.name and len(part.inputs) == len(whole.inputs)
            if not is_alike or _attributes(part) != _attributes(whole):
                raise _NotLinear
            if part.is_leaf and not _have_equal_values(part, whole):
                raise _NotLinear
            if part in self._varying:
                self._check_per_sample(part, whole)
            elif part.shape != whole.shape and not self._is_equal_for_samples(part, whole):
                raise _NotLinear
            waiting += zip(part.inputs, whole.inputs, strict=True)

    def _is_equal_for_samples(self, part: Node, whole: Node) -> bool:
        """Return True if the elements of a node that depends on no samples are equal along the axis
        of the samples, where those of its operands are."""
        if part.name == "iota":
            return part.attributes["axis"] not in self._scaled_axes(part, whole)
        return part.name in _REPEATING or part.operation.is_elementwise

    def _check_per_sample(self, part: Node, whole: Node) -> None:
        """Raise _NotLinear unless an operation can be divided along the samples of its operands and
        of its result."""
        if part.name == "reshape":
            self._check_blocks(part, whole)
            return
        operands, result = part.operation.axes(part).split("->")
        letters = {result[axis] for axis in self._scaled_axes(part, whole)}
        read = [
            letters_of[axis]
            for letters_of, *pair in zip(
                operands.split(","), part.inputs, whole.inputs, strict=True
            )
            for axis in self._scaled_axes(*pair)
        ]
        if len(letters) != 1 or "." in letters or not letters.issuperset(read):
            raise _NotLinear

    def _check_blocks(self, part: Node, whole: Node) -> None:
        """Raise _NotLinear unless `reshape` makes a block of elements of each block that belongs to
        a sample: the axes before those of the samples have equal lengths in total."""
        operands = part.inputs[0], whole.inputs[0]
        axes = [self._scaled_axes(*pair) for pair in (operands, (part, whole))]
        shapes = operands[0].shape, part.shape
        if (
            any(len(scaled) != 1 for scaled in axes)
            or len({size_of(shape[:axis]) for shape, (axis,) in zip(shapes, axes, strict=True)}) > 1
        ):
            raise _NotLinear


def _attributes(node: Node) -> dict[str, Any]:
    """Return the attributes without the lengths of whole axes."""
    attributes = dict(node.attributes)
    if attributes.get("shape") == node.shape:
        del attributes["shape"]
    if node.name == "slice":
        bounds = zip(attributes["bounds"], node.inputs[0].shape, strict=True)
        attributes["bounds"] = [None if x == (0, n, 1) else x for x, n in bounds]
    return attributes


def _have_equal_values(part: Node, whole: Node) -> bool:
    """Return True for leaves with equal numbers. Each trace makes its own arrays from NumPy's."""
    mine, others = part.value, whole.value
    if isinstance(mine, RemoteArray) and isinstance(others, RemoteArray):
        is_alike = part.shape == whole.shape and part.dtype is whole.dtype
        return mine is others or (is_alike and bool((mine.fetch() == others.fetch()).all()))
    return mine is not None and type(mine) is type(others) and bool(mine == others)


def _of_whole_batch(part: Node, whole: Node) -> Node:
    """Return a node of the whole batch that does not depend on the samples, but perhaps on their
    number. Raises _NotLinear if it reads other arrays, variables or numbers of the step, such as
    those of random streams, than that of the part."""
    leaves = [x for x in topological((whole,)) if x.is_leaf]
    read = {x for x in leaves if not x.is_of_numbers or (x.name == "scalar" and x.value is None)}
    known = [x for x in topological((part,)) if x.is_leaf]
    for leaf in read.difference(known):
        if not any(_have_equal_values(x, leaf) for x in known):
            raise _NotLinear
    return whole


def _is_times_number(node: Node) -> bool:
    """Return True for a product with a number, which is a quotient unless that is exact."""
    return node.name in ("multiply", "divide") and node.inputs[1].is_of_numbers


def _dependent(loss: Node, operands: Collection[Node]) -> set[Node]:
    """Return the nodes of a loss that depend on operands."""
    dependent = set(operands)
    for node in topological((loss,)):
        if not dependent.isdisjoint(node.inputs):
            dependent.add(node)
    return dependent


def _sum(x: Node | None, y: Node | None) -> Node | None:
    return y if x is None else x if y is None else e.add(x, y)

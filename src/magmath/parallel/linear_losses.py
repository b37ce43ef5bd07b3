"""The loss of a part of a batch as a linear function of sums over its samples.

The expression of a part does not tell whether the factor of a sum is that of a mean, which depends
on the number of samples, or one of the user. So it is compared with the expression of the whole
batch, which is not computed: what they differ in depends on the number of samples. The sums of the
parts are multiplied by the factors of the whole batch. Terms that do not depend on the samples,
such as a penalty, are added once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, final

from magmath.core.shapes import size_of
from magmath.engine.remote_array import RemoteArray
from magmath.graph import Node, topological
from magmath.ops import elementwise as e
from magmath.ops.custom_gradients import CUSTOM_CALL, CUSTOM_RESULT, GradientRule, parts_of_call
from magmath.ops.marks import is_value_mark
from magmath.ops.shared_fields import unreachable

_LINEAR = ("negative", "astype", "sum", "reshape", "permute_dims", "broadcast_to")
"""Operations of one operand that are linear and read no numbers."""


@final
class TracedLoss(NamedTuple):
    """The loss of some samples, the arrays of the samples, and what the module and its parts have
    returned."""

    loss: Node
    batch: Sequence[Node]
    outputs: Sequence[Node]

    @property
    def samples(self) -> int:
        """The number of samples."""
        return self.batch[0].shape[0]


@final
class WeightedMean(NamedTuple):
    """A quotient of sums over the samples, of one element.

    node      the quotient of the part
    dividend  whose sum over the parts is that of the batch
    divisor   that of the batch
    sums      the sums over the samples in the divisor of the batch, with those of the part
    """

    node: Node
    dividend: Node
    divisor: Node
    sums: Mapping[Node, Node]


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
        if len(part.outputs) != len(whole.outputs):
            raise _NotLinear
        operands = zip((*part.batch, *part.outputs), (*whole.batch, *whole.outputs), strict=True)
        self._counterparts = {x: y for x, y in operands if self._is_of_samples(x, y)}
        self._varying = _dependent([part.loss], self._counterparts)

    def terms(self, part: Node, whole: Node) -> LossTerms:
        """Return the terms of corresponding nodes."""
        if part not in self._varying:
            return LossTerms(None, _of_whole_batch(part, whole))
        if part.shape != whole.shape or not _are_alike(part, whole):
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
        batch. Raises _NotLinear for several elements: a sum over them, each with a divisor of its
        own, has no common divisor."""
        if size_of(part.shape) != 1:
            raise _NotLinear
        terms = self.terms(*dividend)
        if terms.varying is None or terms.fixed is not None or terms.quotient is not None:
            raise _NotLinear
        return WeightedMean(part, terms.varying, divisor[1], self._sums(*divisor))

    def _sums(self, part: Node, whole: Node) -> dict[Node, Node]:
        """Return the sums over the samples on which a node of the batch depends, with those of the
        part. Raises _NotLinear if it depends on samples otherwise."""
        sums: dict[Node, Node] = {}
        waiting, seen = [(part, whole)], set[tuple[Node, Node]]()
        while waiting:
            pair = part, whole = waiting.pop()
            if pair in seen:
                continue
            seen.add(pair)
            if part not in self._varying:
                _of_whole_batch(part, whole)
            elif part.is_leaf or part.shape != whole.shape or not _are_alike(part, whole):
                raise _NotLinear
            elif part.name == "sum" and self._is_over_samples(part, whole):
                self._check_equal(part.inputs[0], whole.inputs[0])
                sums[whole] = part
            else:
                waiting += zip(part.inputs, whole.inputs, strict=True)
        return sums

    def _is_over_samples(self, part: Node, whole: Node) -> bool:
        """Return True for a sum over the samples, perhaps over other axes too."""
        scaled = self._scaled_axes(part.inputs[0], whole.inputs[0])
        return len(scaled) == 1 and scaled[0] in part.attributes["axis"]

    def _is_of_samples(self, part: Node, whole: Node) -> bool:
        """Return True if one axis numbers the samples."""
        try:
            return len(self._scaled_axes(part, whole)) == 1
        except _NotLinear:
            return False

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
            is_random = part.operation.is_random  # each part draws numbers of its own
            if part.operation is CUSTOM_CALL:
                self._check_rules(part, whole)
            elif is_random or part in self._varying or part.shape != whole.shape:
                self._check_per_sample(part, whole)
            waiting += zip(_read(part), _read(whole), strict=True)

    def _check_rules(self, part: Node, whole: Node) -> None:
        """Raise _NotLinear unless the gradient rules of corresponding calls are one function of
        each sample: of the cotangents of the values, and of the arrays that the rules read."""
        rules: list[GradientRule] = [x.attributes["rule"] for x in (part, whole)]
        one, other = rules
        if len(one.read) != len(other.read) or len(one.computed) != len(other.computed):
            raise _NotLinear
        reads = zip(one.read, parts_of_call(part).read, strict=True)
        varying = [*one.value_cotangents, *[x for x, source in reads if source in self._varying]]
        operands = (*one.value_cotangents, *one.read), (*other.value_cotangents, *other.read)
        self._counterparts |= zip(*operands, strict=True)
        self._varying |= _dependent(one.computed, varying)
        for pair in zip(one.computed, other.computed, strict=True):
            self._check_equal(*pair)

    def _check_per_sample(self, part: Node, whole: Node) -> None:
        """Raise _NotLinear unless an operation can be divided along the samples of its operands and
        of its result, and does not number the samples."""
        if part.name == "reshape":
            self._check_blocks(part, whole)
            return
        if is_value_mark(part):
            return
        axes = self._scaled_axes(part, whole)
        is_number = part.name == "iota" and part.attributes["axis"] in axes
        if is_number or part.operation.axes is unreachable:  # the steps of loops are not compared
            raise _NotLinear
        operands, result = part.operation.axes(part).split("->")
        letters = {result[axis] for axis in axes}
        triples = zip(operands.split(","), part.inputs, whole.inputs, strict=False)  # "" of none
        read = [
            letters_of[axis] for letters_of, *pair in triples for axis in self._scaled_axes(*pair)
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
    """Return the attributes without the lengths of whole axes, and without gradient rules."""
    attributes = {name: x for name, x in node.attributes.items() if name != "rule"}
    if attributes.get("shape") == node.shape:
        del attributes["shape"]
    if node.name in ("slice", "set_slice"):
        bounds = zip(attributes["bounds"], node.inputs[0].shape, strict=True)
        attributes["bounds"] = [None if x == (0, n, 1) else x for x, n in bounds]
    return attributes


def _read(node: Node) -> Sequence[Node]:
    """Return the inputs on which the value of a node and its gradient depend, without the seed and
    the number of a random stream."""
    if node.operation.is_random:
        return node.inputs[2:]
    is_call = node.operation in (CUSTOM_CALL, CUSTOM_RESULT)
    return node.inputs[:1] if is_value_mark(node) and not is_call else node.inputs


def _have_equal_values(part: Node, whole: Node) -> bool:
    """Return True for leaves whose numbers are known and equal. Each trace makes its own arrays
    from NumPy's."""
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


def _are_alike(part: Node, whole: Node) -> bool:
    """Return True for nodes of one operation: of a mean over eight samples and one over three, one
    multiplies by 1/8 and the other one divides by 3."""
    return part.name == whole.name or (_is_times_number(part) and _is_times_number(whole))


def _is_times_number(node: Node) -> bool:
    """Return True for a product with a number, which is a quotient unless that is exact."""
    return node.name in ("multiply", "divide") and node.inputs[1].is_of_numbers


def _dependent(roots: Sequence[Node], operands: Collection[Node]) -> set[Node]:
    """Return the nodes of expressions that depend on operands."""
    dependent = set(operands)
    for node in topological(roots):
        if not dependent.isdisjoint(node.inputs):
            dependent.add(node)
    return dependent


def _sum(x: Node | None, y: Node | None) -> Node | None:
    return y if x is None else x if y is None else e.add(x, y)

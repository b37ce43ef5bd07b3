"""Which losses are linear functions of sums over the samples, and which terms they have."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import magmath as mm
from engines import current
from magmath.core.dtypes import float32
from magmath.engine.traces import tracing
from magmath.engine.traces.tracing import Trace
from magmath.parallel.linear_losses import LossTerms, TracedLoss, loss_terms
from magmath.transform.traced_function import placeholder

Loss = Callable[[mm.Array], mm.Array]


def terms_of(loss: Loss) -> LossTerms | None:
    """The terms for a part of 4 of 12 samples."""

    def traced(samples: int) -> TracedLoss:
        with tracing.tracing(Trace()):
            o = mm.Array(placeholder((samples, 4), float32))
            return TracedLoss(loss(o).node, [o.node], [])

    with current("inline"):
        return loss_terms(traced(4), traced(12))


LINEAR: dict[str, Loss] = {
    "sum": lambda o: mm.sum(o**2),
    "mean": lambda o: -mm.mean(o**2) / 3,
    "transposed": lambda o: mm.sum(mm.mean(o.T, axis=1)),
    "chosen columns": lambda o: mm.sum(o[:, 1] * mm.softmax(o, axis=1)[:, 0]),
    "joined": lambda o: mm.mean(mm.concat([o, 2 * o], axis=1)),
    "constant weights": lambda o: mm.sum(o * mm.full((len(o), 4), 2.0) * mm.ones((1, 4))),
    "marked columns": lambda o: mm.sum(mm.where(mm.arange(4) + mm.zeros((len(o), 4)) < 2, o, 0)),
    "repeated samples": lambda o: mm.sum(mm.repeat(o, 3, axis=0) ** 2),
    "sequences": lambda o: mm.sum(mm.reshape(o, (len(o), 2, 2))[:, 0] ** 2),
    "difference": lambda o: mm.mean(o) - 2 * mm.sum(o),
    "random factors": lambda o: mm.sum(o * mm.random.uniform(shape=o.shape)),
    "random rows": lambda o: mm.sum(o * mm.random.gamma(o**2, size=o.shape)),
    "recomputed": lambda o: mm.sum(mm.remat(mm.exp)(o)),
    "gradient": lambda o: mm.sum(mm.grad(mm.sum(mm.tanh(o)[:, 1:]), o) ** 2),
}
OTHERS: dict[str, Loss] = {
    "root": lambda o: mm.sqrt(mm.mean(o**2)),
    "quotients of columns": lambda o: mm.sum(mm.sum(o, axis=0) / mm.sum(o**2, axis=0)),
    "product": lambda o: mm.mean(o) * mm.sum(o),
    "sums of columns": lambda o: mm.sum(mm.sum(o, axis=0) ** 2),
    "centred": lambda o: mm.sum((o - mm.mean(o, axis=0)) ** 2),
    "greatest": lambda o: mm.sum((o - mm.max(o, axis=0)) ** 2),
    "running sums": lambda o: mm.sum(mm.cumulative_sum(o, axis=0) ** 2),
    "order": lambda o: mm.sum(mm.sort(o, axis=0) * mm.arange(len(o))[:, None]),
    "differences of samples": lambda o: mm.sum((o[1:] - o[:-1]) ** 2),
    "blocks of samples": lambda o: mm.sum(mm.reshape(o.T, (-1,))[:2] ** 2),
    "mixed samples": lambda o: mm.sum(mm.reshape(o.T, (len(o), 4)) * mm.arange(4)),
    "pairs": lambda o: mm.sum(o @ o.T),
    "factors of samples": lambda o: mm.sum((o / len(o)) ** 2),
    "weights by position": lambda o: mm.sum(o * mm.arange(len(o))[:, None]),
    "triangle": lambda o: mm.sum(mm.triu(o)),
    "first samples": lambda o: mm.sum(mm.where(mm.arange(len(o))[:, None] < 2, o, 0)),
    "running weights": lambda o: mm.sum(mm.cumulative_sum(mm.ones(len(o)))[:, None] * o),
    "random term": lambda o: mm.sum(o) + mm.sum(mm.random.uniform(shape=(1,))),
    "random factors of all samples": lambda o: mm.sum(o * mm.random.uniform(shape=(4,))),
    "random order": lambda o: mm.sum(o * mm.random.permutation(len(o))[:, None]),
    "centred gradient": lambda o: mm.sum(mm.grad(mm.sum((o - mm.mean(o, axis=0)) ** 3), o) ** 2),
}


@pytest.mark.parametrize("name", LINEAR)
def test_linear_losses(name: str) -> None:
    terms = terms_of(LINEAR[name])
    assert terms is not None
    assert terms.varying is not None
    assert terms.fixed is None


@pytest.mark.parametrize("name", OTHERS)
def test_other_losses(name: str) -> None:
    assert terms_of(OTHERS[name]) is None


def test_terms_without_samples() -> None:
    with current("inline"):
        w = mm.variable("w", [1.0, 2.0])
    terms = terms_of(lambda o: mm.sum(o) + mm.sum(w**2) / len(o))
    assert terms is not None
    assert terms.fixed is not None
    numbers = [x.value for x in terms.fixed.inputs if x.name in ("scalar", "constant")]
    assert numbers == [12.0], "the number of samples of the whole batch"

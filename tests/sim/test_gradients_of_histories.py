"""Gradients by any array of a program: results are pending, evaluated alone or with others, freed,
results of compiled functions or of loops, and were differentiated before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from engines import current
from magmath.autodiff import reverse_mode, source_expression
from magmath.engine.evaluation import evaluator
from magmath.errors import MagmathError
from magmath.graph import Provenance, graph
from magmath.graph.provenance import provenance, provenance_chains, repeated_calls

POOLS = [("inline", 1), ("planned", 1), ("shared", 2)]
LENGTH = 6


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("pool", POOLS, ids=[kind for kind, _ in POOLS])
def test_gradients_equal_those_of_pytorch(pool: tuple[str, int], seed: int) -> None:
    with current(*pool):
        _History(seed).run()


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("pool", POOLS[1:], ids=[kind for kind, _ in POOLS[1:]])
def test_gradients_of_values_that_are_computed_again(
    pool: tuple[str, int], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Arrays are evaluated after those that were computed from them."""
    monkeypatch.setattr(evaluator, "worthwhile_intermediates", lambda order, live: [])
    with current(*pool):
        _History(seed).run()


@pytest.mark.parametrize("evaluated", ["never", "before", "after"])
@pytest.mark.parametrize("pool", POOLS, ids=[kind for kind, _ in POOLS])
def test_gradients_by_arrays_that_are_evaluated_after_others_have_read_them(
    pool: tuple[str, int], evaluated: str
) -> None:
    rows = np.random.default_rng(0).normal(size=(4000, LENGTH))
    with current(*pool):
        for source in (
            lambda: mm.arange(LENGTH, dtype="float64") * 0.5,
            lambda: mm.random.Generator(1).normal(size=LENGTH, dtype="float64"),
            lambda: mm.sum(mm.asarray(rows) * 2.0, axis=0),
        ):
            x = source()
            y = x * mm.asarray(rows)
            z = mm.sin(y)
            if evaluated == "before":
                mm.evaluate(y)
            values = x.numpy()
            if evaluated == "after":
                mm.evaluate(y)
            gradient = mm.grad(mm.sum(z) + mm.sum(y), x)
            expected = (rows * (np.cos(values * rows) + 1)).sum(axis=0)
            np.testing.assert_allclose(gradient.numpy(), expected, rtol=1e-9)


FIXED: dict[str, Any] = {
    "a fixed array": lambda w, v, x, h: mm.grad(mm.sum(mm.tanh(x @ w) @ v), [w, x])[0],
    "a fixed result": lambda w, v, x, h: mm.grad(mm.sum(mm.tanh(x @ w) @ v), [w, v])[0],
    "a former state": lambda w, v, x, h: mm.grad(mm.sum(x @ w + mm.stop_gradient(h) @ v), [w, v])[
        0
    ],
    "nothing else": lambda w, v, x, h: mm.grad(mm.sum(mm.tanh(x @ w) @ v), w),
}


# loops that are longer than the records ----------------------------------------------------------


def _classification(w: list[Any], x: Any, y: Any, lib: Any) -> Any:
    return lib.cross_entropy(lib.relu(x @ w[0]) @ w[1], y)


def _normalized(w: list[Any], x: Any, y: Any, lib: Any) -> Any:
    """A loss of a running mean of the samples, which does not depend on the weights."""
    w[2] = 0.9 * w[2] + 0.1 * x.mean(0)
    return lib.cross_entropy(lib.relu((x - w[2]) @ w[0]) @ w[1], y)


class _Magmath:
    relu, cross_entropy = staticmethod(mm.relu), staticmethod(mm.nn.cross_entropy)


class _PyTorch:
    relu = staticmethod(torch.relu)
    cross_entropy = staticmethod(torch.nn.functional.cross_entropy)


@pytest.mark.parametrize("reads", [False, True], ids=["unread", "read"])
@pytest.mark.parametrize(
    ("momentum", "loss_of"),
    [(0.0, _normalized), (0.9, _classification), (0.9, _normalized)],
)
@pytest.mark.parametrize("length", [150, 301, 1000])
def test_loops_that_are_longer_than_the_records_equal_those_of_pytorch(
    loss_of: Any, momentum: float, length: int, reads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only the older half of what was recorded is forgotten, also of chains that join a longer
    one: masks of labels, running means, moments."""
    for module in (provenance_chains, provenance, repeated_calls):
        monkeypatch.setattr(module, "MAX_LENGTH", length)
    random = np.random.default_rng(0)
    x, y = random.normal(size=(12, 5)), random.integers(0, 3, 12)
    first = [random.normal(size=shape) * 0.3 for shape in ((5, 4), (4, 3))]
    first.append(np.zeros(5))
    ours, theirs = ([make(a) for a in first] for make in (mm.asarray, torch.tensor))
    moments = [0.0, 0.0]
    x_of_torch, y_of_torch = torch.tensor(x), torch.tensor(y)
    x, y = mm.asarray(x), mm.asarray(y)
    moments_of_torch = [0.0, 0.0]
    for _ in range(140):
        loss = loss_of(ours, x, y, _Magmath)
        gradients = mm.grad(loss, ours[:2])
        if reads:
            float(loss)
        sources = [a.detach().requires_grad_() for a in theirs[:2]]
        theirs = [*sources, theirs[2].detach()]
        expected = torch.autograd.grad(loss_of(theirs, x_of_torch, y_of_torch, _PyTorch), sources)
        for i in range(2):
            moments[i] = momentum * moments[i] + gradients[i]
            ours[i] = ours[i] - 0.05 * moments[i]
            moments_of_torch[i] = momentum * moments_of_torch[i] + expected[i]
            theirs[i] = theirs[i] - 0.05 * moments_of_torch[i]
    for own, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(own.numpy(), other.detach().numpy(), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize(
    ("steps", "is_read"),
    [
        (1500, lambda i: True),  # more operations than records of a chain
        (260, lambda i: i >= 250),  # a history that is deeper than Python's stack
        (260, lambda i: i % 10 == 9),
    ],
    ids=["always", "late", "sometimes"],
)
def test_a_running_mean_of_the_weights_is_differentiated_however_long_its_history(
    steps: int, is_read: Callable[[int], bool]
) -> None:
    """The former mean is no array of user code any more; it is kept, or computed again from all
    former weights."""
    random = np.random.default_rng(0)
    first = random.normal(size=(4, 1))
    w, mean = mm.asarray(first), mm.asarray(first) * 1
    expected, expected_mean = torch.tensor(first), torch.tensor(first)
    for i in range(steps):
        expected = expected.detach().requires_grad_()
        if i:
            expected_mean = 0.9 * expected_mean.detach() + 0.1 * expected
        loss, expected_loss = ((w - 1) ** 2).mean(), ((expected - 1) ** 2).mean()
        if is_read(i):
            loss += 0.1 * ((w - mean) ** 2).mean()
            expected_loss = expected_loss + 0.1 * ((expected - expected_mean) ** 2).mean()
        w = w - 0.01 * mm.grad(loss, w)
        expected = expected - 0.01 * torch.autograd.grad(expected_loss, expected)[0]
        mean = 0.9 * mean + 0.1 * w
    np.testing.assert_allclose(w.numpy(), expected.detach().numpy(), rtol=1e-9)


@pytest.mark.parametrize("case", FIXED)
@pytest.mark.parametrize("pool", POOLS, ids=[kind for kind, _ in POOLS])
def test_no_step_searches_all_former_ones(
    pool: tuple[str, int], case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parameters depend on what does not change through gradients alone, in each step."""
    searched, followed = [0], [0]
    direct_operands, until = Provenance.direct_operands, graph.topological_until

    def noted_operands(record: Provenance, **options: bool) -> Any:
        searched[0] += 1
        return direct_operands(record, **options)

    def noted_nodes(*arguments: Any) -> Any:
        nodes = until(*arguments)
        followed[0] += len(nodes)
        return nodes

    monkeypatch.setattr(Provenance, "direct_operands", noted_operands)
    for module in (reverse_mode, source_expression):
        monkeypatch.setattr(module, "topological_until", noted_nodes)
    with current(*pool):
        w, v = mm.ones((4, 4)) * 0.01, mm.ones((4, 4)) * 0.01
        x = mm.asarray(np.ones((8, 4), "float32"))
        h, counts = x, []
        for _ in range(60):
            searched[0] = followed[0] = 0
            h = mm.tanh(x @ w + mm.stop_gradient(h) @ v)
            w = w - 0.001 * FIXED[case](w, v, x, h)
            float(mm.sum(w))
            counts.append((searched[0], followed[0]))
        assert max(counts[40:]) <= max(counts[10:30])


@mm.compile
def _compiled(x: mm.Array, y: mm.Array) -> Any:
    return mm.sin(x) * y, x - 0.5 * y


@mm.compile
def _repeated(x: mm.Array) -> Any:
    return 0.9 * x + mm.cos(x)


class _History:
    """A random program, with a PyTorch tensor beside each array."""

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._ours: list[Any] = []
        self._theirs: list[Any] = []
        self.compared = 0

    def run(self) -> None:
        """Run the program; compare each gradient and each value."""
        for _ in range(3):
            self._start()
        steps = [
            self._start, self._count, self._sum_rows, self._combine, self._combine, self._scale, self._call, self._repeat,
            self._loop, self._evaluate, self._update, self._free, self._differentiate,
            self._differentiate,
        ]  # fmt: skip
        for step in self._random.integers(len(steps), size=45):
            steps[step]()
        for ours, theirs in zip(self._ours, self._theirs, strict=True):
            np.testing.assert_allclose(ours.numpy(), theirs.detach(), rtol=1e-9, atol=1e-9)

    def _choice(self) -> int:
        return int(self._random.integers(len(self._ours)))

    def _add(self, ours: Any, theirs: Any) -> None:
        self._ours.append(ours)
        self._theirs.append(theirs)

    def _start(self) -> None:
        value = self._random.normal(size=LENGTH)
        self._add(mm.asarray(value), torch.tensor(value, requires_grad=True))

    def _count(self) -> None:
        """Add an array that is computed from numbers alone, when its value is needed."""
        first, step = (float(x) for x in self._random.normal(size=2))
        ours = mm.arange(LENGTH, dtype="float64") * step + first
        theirs = torch.arange(LENGTH, dtype=torch.float64) * step + first
        self._add(ours, theirs.requires_grad_())

    def _combine(self) -> None:
        i, j = self._choice(), self._choice()
        kind = self._random.integers(3)
        both = zip((self._ours[i], self._theirs[i]), (self._ours[j], self._theirs[j]), strict=True)
        self._add(*[x + y if kind == 0 else x - y if kind == 1 else 0.3 * x * y for x, y in both])

    def _sum_rows(self) -> None:
        """Add an array that depends on a large one, which is not computed at its line."""
        i = self._choice()
        rows = self._random.normal(size=(4000, LENGTH)) / 100
        ours = mm.sum(self._ours[i] * mm.asarray(rows), axis=0)
        self._add(ours, (self._theirs[i] * torch.tensor(rows)).sum(0))

    def _scale(self) -> None:
        i, number = self._choice(), float(self._random.normal())
        self._add(mm.sin(self._ours[i] * number), torch.sin(self._theirs[i] * number))

    def _call(self) -> None:
        i, j = self._choice(), self._choice()
        x, y = self._theirs[i], self._theirs[j]
        first, second = _compiled(self._ours[i], self._ours[j])
        self._add(first, torch.sin(x) * y)
        self._add(second, x - 0.5 * y)

    def _repeat(self) -> None:
        i = self._choice()
        ours, theirs = self._ours[i], self._theirs[i]
        for _ in range(int(self._random.integers(1, 5))):
            ours, theirs = _repeated(ours), 0.9 * theirs + torch.cos(theirs)
        self._add(ours, theirs)

    def _loop(self) -> None:
        i, j = self._choice(), self._choice()
        y = self._ours[j]
        ours = mm.fori_loop(0, 3, lambda _, x: mm.cos(x) + 0.1 * y, self._ours[i])
        theirs = self._theirs[i]
        for _ in range(3):
            theirs = torch.cos(theirs) + 0.1 * self._theirs[j]
        self._add(ours, theirs)

    def _evaluate(self) -> None:
        chosen = {self._choice() for _ in range(int(self._random.integers(1, 4)))}
        mm.evaluate(*[self._ours[i] for i in chosen])

    def _update(self) -> None:
        i, j = self._choice(), self._choice()
        if i == j:
            return
        # Other arrays of the program may have the same memory: a new one is updated.
        ours = self._ours[i] * 1.0
        ours += 0.1 * self._ours[j]
        self._add(ours, self._theirs[i] * 1.0 + 0.1 * self._theirs[j])

    def _free(self) -> None:
        if len(self._ours) > 6:
            i = self._choice()
            del self._ours[i], self._theirs[i]

    def _differentiate(self) -> None:
        i = self._choice()
        chosen = sorted({self._choice() for _ in range(int(self._random.integers(1, 4)))})
        weights = self._random.normal(size=LENGTH)
        ours = mm.sum(self._ours[i] * mm.asarray(weights))
        theirs = (self._theirs[i] * torch.tensor(weights)).sum()
        if self._random.integers(2):
            float(ours)
        sources = [self._theirs[k] for k in chosen]
        expected = torch.autograd.grad(theirs, sources, retain_graph=True, allow_unused=True)
        actual, error = self._gradients(ours, chosen)
        if actual is None:
            # It depends on what the sources were computed from, or on an array that was freed.
            assert None in expected or "does not exist any more" in error, error
            return
        for ours, theirs in zip(actual, expected, strict=True):
            value = np.zeros(LENGTH) if theirs is None else theirs.numpy()
            np.testing.assert_allclose(ours.numpy(), value, rtol=1e-9, atol=1e-9)
            self.compared += 1
        for gradient, theirs in zip(actual, expected, strict=True):  # steps of a training loop
            if theirs is not None and self._random.integers(2):
                k = chosen[0]
                self._add(self._ours[k] - 0.1 * gradient, self._theirs[k] - 0.1 * theirs.detach())

    def _gradients(self, ours: Any, chosen: list[int]) -> tuple[Any, str]:
        """Return the gradients by some arrays, or None and the message of the error."""
        try:
            return mm.grad(ours, [self._ours[k] for k in chosen], create_graph=False), ""
        except MagmathError as error:
            return None, str(error)

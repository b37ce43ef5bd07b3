"""Parameters on which a loss does not depend keep their values, moments and step counts, as in
PyTorch, whose optimizers skip parameters without a gradient: a network with two heads that are used
in turn."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from engines import current
from magmath import nn, parallel
from magmath.autodiff import independence
from magmath.errors import MagmathError
from magmath.optim import Adam, Momentum, Optimizer
from sim.test_optimizers import PAIRS

POOLS = [("inline", 1), ("shared", 2), ("messages", 3)]
HEADS = "aabababbba"
DRAW = np.random.default_rng(2)
X, Y = DRAW.normal(size=(24, 4)), DRAW.normal(size=(24, 2))
GROUPS = {"a.*": {"learning_rate": 0.03, "weight_decay": 0.2}, "*.bias": {"weight_decay": 0.0}}


@pytest.fixture(autouse=True)
def _float64() -> Iterator[None]:
    mm.set_default_dtype("float64")
    yield
    mm.set_default_dtype("float32")


class Heads(nn.Module):
    """A trunk with two heads, one of which is used. The head "b" reads the trunk as a constant."""

    def __init__(self) -> None:
        self.trunk, self.a, self.b = nn.Dense(5, "tanh"), nn.Dense(2), nn.Dense(2)
        self.head = "a"

    def __call__(self, x: mm.Array) -> mm.Array:
        y = self.trunk(x)
        return self.a(y) if self.head == "a" else self.b(mm.stop_gradient(y))


class TorchHeads(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.trunk = torch.nn.Linear(4, 5)
        self.a, self.b = torch.nn.Linear(5, 2), torch.nn.Linear(5, 2)
        self.double()

    def forward(self, x: Any, head: str) -> Any:
        y = torch.tanh(self.trunk(x))
        return self.a(y) if head == "a" else self.b(y.detach())


def made() -> tuple[Heads, TorchHeads]:
    theirs = TorchHeads()
    ours = Heads()
    for part, size in ((ours.trunk, 4), (ours.a, 5), (ours.b, 5)):
        part.build((1, size))
    state = {k: v.T if v.ndim == 2 else v for k, v in theirs.state_dict().items()}
    ours.load_state_dict(state)
    return ours, theirs


def check_equal(ours: Heads, theirs: TorchHeads, limit: float = 1e-10) -> None:
    actual = {k: v.numpy() for k, v in ours.state_dict().items()}
    for name, value in theirs.state_dict().items():
        expected = value.T if value.ndim == 2 else value
        np.testing.assert_allclose(actual[name], expected, limit, limit, err_msg=name)


def torch_steps(theirs: TorchHeads, rule: torch.optim.Optimizer, heads: str = HEADS) -> None:
    for head in heads:
        rule.zero_grad()
        torch.nn.functional.mse_loss(
            theirs(torch.from_numpy(X), head), torch.from_numpy(Y)
        ).backward()
        rule.step()


class Loop:
    """The same loop here, in several ways."""

    def __init__(self, ours: Heads, optimizer: Optimizer) -> None:
        self.ours, self.optimizer = ours, optimizer
        self.compiled = mm.compile(self.update)
        self.gradients = mm.compile(lambda: mm.grad(self.loss(), ours.trainable()))

    def loss(self, rows: slice = slice(None)) -> mm.Array:
        return nn.mean_squared_error(self.ours(X[rows]), Y[rows])

    def minimize(self) -> None:
        self.optimizer.minimize(self.loss(), self.ours.trainable())

    def update(self) -> None:
        variables = self.ours.trainable()
        gradients = mm.grad(self.loss(), variables)
        self.optimizer.update(dict(zip(variables, gradients, strict=True)))

    def evaluated(self) -> None:
        """The loss, and with it the gradients, are computed before the update."""
        loss, gradients = mm.value_and_grad(self.loss, self.ours.trainable())
        assert float(loss) > 0
        assert all(np.isfinite(g.numpy()).all() for g in gradients.values())
        self.optimizer.update(gradients)

    def returned(self) -> None:
        """A compiled function returns the gradients."""
        variables = self.ours.trainable()
        gradients = self.gradients()
        self.optimizer.update(dict(zip(variables, gradients, strict=True)))

    def accumulated(self) -> None:
        """Gradients are added, evaluated and divided."""
        variables = self.ours.trainable()
        total = mm.grad(self.loss(slice(0, 12)), variables)
        mm.evaluate(*total)
        total = list(map(mm.add, total, mm.grad(self.loss(slice(12, 24)), variables)))
        mm.evaluate(*total)
        self.optimizer.update({v: g / 2 for v, g in zip(variables, total, strict=True)})


def run(loop: Loop, way: str, heads: str = HEADS) -> None:
    for head in heads:
        loop.ours.head = head
        getattr(loop, way)()


WAYS = ("update", "compiled", "minimize", "evaluated", "accumulated", "returned")


@pytest.mark.parametrize(
    ("name", "way", "kind", "workers"),
    [
        *[(name, way, *POOLS[0]) for name in PAIRS for way in WAYS[:3]],
        *[(name, way, *POOLS[0]) for name in ("momentum", "adam") for way in WAYS[3:]],
        *[(name, way, *POOLS[1]) for name in ("momentum", "adam") for way in WAYS],
    ],
)
def test_unused_parameters_are_skipped(name: str, way: str, kind: str, workers: int) -> None:
    make, rule = PAIRS[name]
    with current(kind, workers):
        ours, theirs = made()
        torch_steps(theirs, rule(list(theirs.parameters())))
        run(Loop(ours, make()), way)
        check_equal(ours, theirs)


@pytest.mark.parametrize("way", ["update", "compiled", "minimize"])
def test_groups_of_parameters(way: str) -> None:
    with current("inline"):
        ours, theirs = made()
        parts: Any = {name: [] for name in ("a", "bias", "rest")}
        for name, p in theirs.named_parameters():
            kind = "a" if name.startswith("a.") else "bias" if name.endswith("bias") else "rest"
            parts[kind].append(p)
        groups = [
            {"params": parts["a"], "lr": 0.03, "weight_decay": 0.2},
            {"params": parts["bias"], "weight_decay": 0.0},
            {"params": parts["rest"]},
        ]
        torch_steps(theirs, torch.optim.Adam(groups, 0.01, weight_decay=0.1))
        run(Loop(ours, Adam(0.01, weight_decay=0.1, groups=GROUPS)), way)
        check_equal(ours, theirs)


STRATEGIES: dict[str, Callable[[], Any]] = {
    "data": lambda: "data",
    "accumulated": lambda: parallel.DataParallel(accumulate=3),
    "sharded": lambda: parallel.DataParallel("sharded"),
    "ring": lambda: parallel.DataParallel("ring"),
    "server": lambda: parallel.DataParallel("parameter-server"),
    "replicas": lambda: parallel.WeightAveraging(2),
    "delayed": lambda: parallel.Asynchronous(0, schedule=[0]),
    "asynchronous": lambda: parallel.Asynchronous(0),
    "one server": lambda: parallel.Asynchronous(0, servers=1),
}


RULES: Any = (
    lambda p: torch.optim.Adam(p, 0.02, weight_decay=0.1),
    lambda: Adam(0.02, weight_decay=0.1),
)
LINEAR: Any = (  # the mean of the steps of two replicas is that of their mean gradient
    lambda p: torch.optim.SGD(p, 0.02, momentum=0.9, weight_decay=0.1),
    lambda: Momentum(0.02, weight_decay=0.1),
)


@pytest.mark.parametrize(
    ("name", "kind", "workers"),
    [
        *[(name, "shared", 2) for name in ("data", "sharded", "replicas", "delayed", "one server")],
        *[(name, "messages", 2) for name in ("accumulated", "ring", "server", "asynchronous")],
    ],
)
def test_fit_skips_unused_parameters(name: str, kind: str, workers: int) -> None:
    """The heads change from epoch to epoch; an epoch has one step."""

    class Heads(mm.train.Callback):
        def on_epoch_begin(self, trainer: Any, epoch: int) -> None:
            trainer.module.head = HEADS[epoch]

    with current(kind, workers):
        ours, theirs = made()
        theirs_rule, rule = LINEAR if name == "replicas" else RULES
        torch_steps(theirs, theirs_rule(theirs.parameters()))
        trainer = mm.train.Trainer(
            ours, loss="mean_squared_error", optimizer=rule(),
            strategy=STRATEGIES[name](),
        )  # fmt: skip
        trainer.fit(
            X, Y, batch_size=24, epochs=len(HEADS), shuffle=False, verbose=False,
            callbacks=[Heads()],
        )  # fmt: skip
        check_equal(ours, theirs)


@pytest.mark.parametrize(
    "strategy",
    [parallel.DataParallel(accumulate=12), parallel.Auto(accumulate=12)],
    ids=["data", "auto"],
)
def test_gradients_of_many_parts(strategy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A head that is not used keeps its value with more parts than `is_independent` looks deep."""
    monkeypatch.setattr(independence, "MAX_DEPTH", 8)
    with current("inline"):
        ours, _ = made()
        former = ours.b.weight.numpy()
        trainer = mm.train.Trainer(
            ours, "mean_squared_error", Momentum(0.02, weight_decay=0.1), strategy=strategy
        )
        trainer.fit(X, Y, batch_size=24, epochs=2)
        np.testing.assert_array_equal(ours.b.weight.numpy(), former)


def test_a_zero_that_is_computed_counts() -> None:
    """Only independence of the structure counts, not the value."""
    with current("inline"):
        v, unused = mm.variable("v", [1.0, 2.0]), mm.variable("unused", [1.0, 2.0])
        p = torch.tensor([1.0, 2.0], requires_grad=True)
        rule = torch.optim.SGD([p], 0.1, momentum=0.9, weight_decay=0.1)
        optimizer = Momentum(0.1, weight_decay=0.1)
        for _ in range(3):
            rule.zero_grad()
            (p * 0.0).sum().backward()
            rule.step()
            slopes = mm.grad(mm.sum(v * 0.0), [v, unused])
            np.testing.assert_array_equal(slopes[1], [0.0, 0.0])
            optimizer.update({v: slopes[0], unused: slopes[1]})
        np.testing.assert_allclose(v, p.detach(), rtol=1e-6)
        np.testing.assert_array_equal(unused, [1.0, 2.0])
        assert optimizer.steps == 3


def limited_by_maximum(x: mm.Array) -> mm.Array:
    return mm.minimum(0.3, mm.maximum(x, -0.3))


@pytest.mark.parametrize("is_evaluated", [False, True])
@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize(
    ("limit", "is_zero"),
    [
        (lambda x: mm.clip(x, -0.3, 0.3), True),
        (lambda x: mm.clip(x, 0, None), True),
        (lambda x: mm.clip(mm.astype(x, mm.float64) * 3, None, 1.0), True),
        (limited_by_maximum, True),
        (lambda x: mm.clip(x, 0.1, 0.3), False),
        (lambda x: mm.clip(x, -0.3, mm.asarray([-0.1, 0.1])), False),
        (lambda x: mm.minimum(x, -0.1), False),
    ],
)
def test_limited_gradients(
    limit: Callable[[mm.Array], mm.Array], is_zero: bool, is_compiled: bool, is_evaluated: bool
) -> None:
    """Limits that contain 0 leave the zeros of unused variables what they are."""
    with current("inline"):
        v, unused = mm.variable("v", [1.0, 2.0]), mm.variable("unused", [1.0, 2.0])
        optimizer = Momentum(0.1, weight_decay=0.5)

        def step() -> None:
            slopes = [limit(g) for g in mm.grad(mm.sum(v * v), [v, unused])]
            if is_evaluated and not is_compiled:
                mm.evaluate(*slopes)
            optimizer.update(dict(zip((v, unused), slopes, strict=True)))

        call = mm.compile(step) if is_compiled else step
        for _ in range(2):
            call()
        assert (unused.tolist() == [1.0, 2.0]) == is_zero
        assert v.tolist() != [1.0, 2.0]


def test_a_step_without_any_used_variable() -> None:
    """It counts as a step of schedules, and `minimize` says what is wrong."""
    with current("inline"):
        v = mm.variable("v", [1.0, 2.0])
        optimizer = Momentum(0.1)
        step = mm.compile(lambda: optimizer.update({v: mm.grad(mm.asarray(1.0) * 2, v)}))
        with pytest.warns(UserWarning, match="the loss depends on none of the 1 variables"):
            optimizer.update({v: mm.grad(mm.sum(mm.stop_gradient(v)), v)})
        step()
        np.testing.assert_array_equal(v, [1.0, 2.0])
        assert optimizer.steps == 2
        with pytest.raises(MagmathError, match="no gradient by the variables"):
            optimizer.minimize(mm.sum(mm.stop_gradient(v)), [v])


def test_a_scaled_loss_and_a_limit_of_the_norm() -> None:
    with current("inline"):
        ours, theirs = made()
        rule = torch.optim.Adam(theirs.parameters(), 0.02, weight_decay=0.1)
        for head in HEADS:
            rule.zero_grad()
            torch.nn.functional.mse_loss(
                theirs(torch.from_numpy(X), head), torch.from_numpy(Y)
            ).backward()
            torch.nn.utils.clip_grad_norm_(theirs.parameters(), 0.3)
            rule.step()
        optimizer, scale = Adam(0.02, weight_decay=0.1, clip_norm=0.3), mm.optim.LossScale(8.0)
        loop = Loop(ours, optimizer)
        for head in HEADS:
            ours.head = head
            _, gradients = scale.value_and_grad(loop.loss, ours.trainable())
            optimizer.update(gradients, scale)
        check_equal(ours, theirs, 1e-5)
        assert scale.skipped == 0


def test_states_are_saved_with_their_counts() -> None:
    """The loop continues after it was saved in the middle."""
    with current("inline"):
        ours, theirs = made()
        torch_steps(theirs, torch.optim.Adam(theirs.parameters(), 0.02))
        first = Loop(ours, Adam(0.02))
        run(first, "compiled", HEADS[:5])
        second = Loop(ours, Adam(0.02))
        second.optimizer.load_state_dict(first.optimizer.state_dict())
        run(second, "update", HEADS[5:])
        check_equal(ours, theirs)
        counts = {k: int(v) for k, v in second.optimizer.state_dict().items() if "count" in k}
        used = {"trunk": HEADS.count("a"), "a": HEADS.count("a"), "b": HEADS.count("b")}
        assert counts == {f"{p}.{w}.count": n for p, n in used.items() for w in ("weight", "bias")}


@pytest.mark.parametrize("is_compiled", [False, True])
def test_a_step_that_changes_nothing_is_a_warning_once(is_compiled: bool) -> None:
    model, other = nn.Dense(2).build((1, 4)), nn.Dense(2).build((1, 4))
    optimizer = Adam(0.1)

    def step(x: Any) -> None:
        gradients = mm.value_and_grad(lambda: mm.sum(other(x)), model.trainable())[1]
        optimizer.update(gradients)

    before = model.weight.tolist()
    step = mm.compile(step) if is_compiled else step
    with pytest.warns(UserWarning, match=r"^update: the loss depends on none of the 2 variables, "):
        step(X)
    step(X)
    assert model.weight.tolist() == before

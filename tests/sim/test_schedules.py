"""Schedules have the values of PyTorch's, compile nothing, and count steps or epochs in `fit`."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import numpy as np
import pytest
import torch
from torch.optim import lr_scheduler as counterparts

import magmath as mm
from engines import current
from magmath.errors import MagmathError
from magmath.optim import Adam, GradientDescent
from magmath.optim import schedules as s
from magmath.optim.schedules import Schedule

BASE = 0.4
Counterpart = Callable[[torch.optim.Optimizer], Any]
PAIRS: dict[str, tuple[Callable[[], Schedule], Counterpart]] = {
    "constant": (lambda: s.Constant(BASE), lambda o: counterparts.ConstantLR(o, 1.0)),
    "step": (lambda: s.Step(BASE, 7), lambda o: counterparts.StepLR(o, 7)),
    "step, factor": (lambda: s.Step(BASE, 1, 0.9), lambda o: counterparts.StepLR(o, 1, 0.9)),
    "multi-step": (
        lambda: s.MultiStep(BASE, (3, 11, 30), 0.5), lambda o: counterparts.MultiStepLR(o, [3, 11, 30], 0.5)
    ),
    "exponential": (lambda: s.Exponential(BASE, 0.93), lambda o: counterparts.ExponentialLR(o, 0.93)),
    "polynomial": (
        lambda: s.Polynomial(BASE, 40, 2.5), lambda o: counterparts.PolynomialLR(o, 40, 2.5)
    ),
    "linear": (
        lambda: s.Polynomial(BASE * 0.25, 33, end=BASE),
        lambda o: counterparts.LinearLR(o, 0.25, total_iters=33),
    ),
    "cosine": (
        lambda: s.Cosine(BASE, 50, 0.01), lambda o: counterparts.CosineAnnealingLR(o, 50, 0.01)
    ),
    "cosine, short": (lambda: s.Cosine(BASE, 20), lambda o: counterparts.CosineAnnealingLR(o, 20)),
    "restarts": (
        lambda: s.Cosine(BASE, 6, 0.02, restarts=True, growth=2),
        lambda o: counterparts.CosineAnnealingWarmRestarts(o, 6, 2, 0.02),
    ),
    "restarts, equal": (
        lambda: s.Cosine(BASE, 9, restarts=True),
        lambda o: counterparts.CosineAnnealingWarmRestarts(o, 9),
    ),
    "warm-up": (
        lambda: s.WarmUp(BASE, 5, 0.2), lambda o: counterparts.LinearLR(o, 0.2, total_iters=5)
    ),
    "warm-up, cosine": (
        lambda: s.WarmUp(s.Cosine(BASE, 40), 5),
        lambda o: counterparts.SequentialLR(
            o, [counterparts.LinearLR(o, 0.1, total_iters=5), counterparts.CosineAnnealingLR(o, 40)], [5]
        ),
    ),
    "one cycle": (
        lambda: s.OneCycle(BASE, 51), lambda o: counterparts.OneCycleLR(o, BASE, 51, cycle_momentum=False)
    ),
    "one cycle, linear": (
        lambda: s.OneCycle(BASE, 51, 0.5, 10.0, 100.0, linear=True),
        lambda o: counterparts.OneCycleLR(
            o, BASE, 51, pct_start=0.5, div_factor=10.0, final_div_factor=100.0,
            anneal_strategy="linear", cycle_momentum=False,
        ),
    ),
}  # fmt: skip


def of_torch(make: Counterpart, steps: int) -> list[float]:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], BASE)
    scheduler, rates = make(optimizer), []
    for _ in range(steps):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return rates


def test_every_schedule_is_compared() -> None:
    made = {type(ours()) for ours, _ in PAIRS.values()} | {s.Plateau, s.Formula, Schedule}
    named = [x for x in vars(s).values() if isinstance(x, type) and issubclass(x, Schedule)]
    assert set(named) == made


@pytest.mark.parametrize("name", PAIRS)
def test_fifty_rates_are_those_of_pytorch(name: str) -> None:
    ours, theirs = PAIRS[name]
    schedule = ours()
    actual = [schedule(step) for step in range(50)]
    np.testing.assert_allclose(actual, of_torch(theirs, 50), rtol=1e-12, atol=1e-12)
    assert schedule == ours()
    assert pickle.loads(pickle.dumps(schedule)) == schedule
    assert asdict(schedule)["per"] == ("step" if name.startswith("one cycle") else "epoch")


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize(
    "settings",
    [{}, {"patience": 0}, {"patience": 2, "cooldown": 3, "factor": 0.5, "minimum": 0.02},
     {"patience": 1, "threshold": 0.2}],
)  # fmt: skip
def test_plateaus_are_those_of_pytorch(settings: dict[str, Any], mode: Any) -> None:
    values = np.abs(np.random.default_rng(3).normal(size=50)) + np.linspace(2, 1, 50)
    ours = s.Plateau(BASE, mode=mode, **settings)
    named = {"minimum": "min_lr"}
    theirs = {named.get(k, k): v for k, v in settings.items()}
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], BASE)
    counterpart = counterparts.ReduceLROnPlateau(optimizer, mode, **theirs)
    for i, value in enumerate(values):
        if i == 20:  # on from what was saved
            other = s.Plateau(1.0, mode=mode, **settings)
            other.load_state_dict(ours.state_dict())
            ours = pickle.loads(pickle.dumps(other))
        ours.observe(value)
        counterpart.step(value)
        assert ours(i) == pytest.approx(optimizer.param_groups[0]["lr"], rel=1e-12)


def test_one_step_of_each_schedule() -> None:
    """Schedules of a single step or period divide nothing by zero."""
    for schedule in (
        s.OneCycle(1.0, 1),
        s.OneCycle(1.0, 2, 0.5),
        s.OneCycle(1.0, 4, 1.0),
        s.Cosine(1.0, 1),
        s.WarmUp(1.0, 1),
    ):
        assert all(np.isfinite(schedule(step)) for step in range(6))


def test_milestones_in_any_order_and_from_an_iterator() -> None:
    for milestones in ([30, 10, 20], (10 * k for k in (1, 2, 3))):
        schedule = s.MultiStep(1.0, milestones)  # type: ignore[arg-type]
        for _ in range(2):
            assert [round(schedule(k), 9) for k in (9, 10, 25, 30)] == [1.0, 0.1, 0.01, 0.001]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: s.Cosine(0.1, 0), "Cosine: steps must be a number of at least 1, was given 0"),
        (lambda: s.Step(0.1, 0), "Step: size must be a number of at least 1"),
        (lambda: s.Cosine(0.1, 5, restarts=True, growth=0), "Cosine: growth must be a number of"),
        (lambda: s.Constant(-0.1), "Constant: rate must be a number of at least 0, was given -0.1"),
        (lambda: s.Cosine(0.1, 5, np.nan), "Cosine: end must be a number of at least 0"),
        (lambda: s.Polynomial(0.1, 5, -1), "Polynomial: power must be a number of at least 0"),
        (lambda: s.MultiStep(0.1, 30), "milestones must be a list of steps, was given 30"),
        (lambda: s.OneCycle(0.1, 100, pct_start=30), "pct_start is a share of the steps, .* 30;"),
        (lambda: s.OneCycle(0.1, 100, div_factor=0), "div_factor must be positive, was given 0"),
        (lambda: s.Plateau(0.1, factor=10), "must be less than 1, was given 10; 0.1 divides it"),
        (lambda: s.Plateau(0.1, monitor="rmse"), "Plateau: it is not known whether less or more of"),
        (lambda: s.Plateau(0.1, mode="less"), "Plateau: mode is 'min' or 'max', was given 'less'"),  # type: ignore[arg-type]
        (lambda: s.Plateau(-0.1), "Plateau: rate must be a number of at least 0"),
        (lambda: GradientDescent(lambda step: -1.0).rates(7), "at least 0, .*returned -1.0 for 7"),
        (lambda: GradientDescent(s.WarmUp(lambda step: np.nan, 3)).rates(0), "returned nan for 0"),
        (lambda: s.Step(0.1, 2, per="batch"), 'per must be "epoch" or "step", was given \'batch\''),
        (lambda: s.Plateau(0.1, monitor="f1").observe_metrics({"loss": 1.0, "accuracy": None}),
         "no value is recorded as 'f1'; recorded are loss"),
    ],
)  # fmt: skip
def test_invalid_schedules_are_errors(make: Callable[[], Any], message: str) -> None:
    with pytest.raises(MagmathError, match=message):
        make()


# in loops -------------------------------------------------------------------------------------

SLOPE = 2.0
SCHEDULE = s.Polynomial(0.5, 20, 2.0)


def moves(rates: list[float]) -> float:
    return -SLOPE * sum(rates)


@pytest.mark.parametrize("way", ["minimize", "steps", "update", "compiled"])
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2), ("messages", 4)])
def test_loops_count_steps(way: str, kind: str, workers: int) -> None:
    with current(kind, workers):
        v = mm.variable("v", mm.asarray([0.0], dtype="float64"))
        descent = GradientDescent(SCHEDULE)

        def step() -> mm.Array:
            descent.update({v: mm.asarray([SLOPE], dtype="float64")})
            return v + 0.0

        compiled = mm.compile(step)
        for _ in range(6):
            if way == "minimize":
                descent.minimize(mm.sum(v * SLOPE), [v])
            elif way == "steps":
                descent.minimize(mm.sum(v * SLOPE), [v], steps=2)
            else:
                (compiled if way == "compiled" else step)()
        count = 12 if way == "steps" else 6
        assert v.tolist() == [pytest.approx(moves([SCHEDULE(i) for i in range(count)]), rel=1e-12)]


def fitted(rate: Any, calls: list[int], samples: int, loss: Any = None) -> tuple[float, Any]:
    """Where a weight of gradient SLOPE is after epochs of 3 steps; and the optimizer."""

    def linear(outputs: mm.Array, targets: mm.Array) -> mm.Array:
        return mm.mean(outputs) * SLOPE

    x = np.ones((samples, 1), np.float32)
    descent = GradientDescent(rate)
    net = mm.nn.NeuralNetwork(
        [mm.nn.Dense(1, bias=False)], loss=loss or linear, optimizer=descent, seed=1
    )
    net.build((1, 1))
    net.parameters["0.weight"].assign(np.zeros((1, 1), np.float32))
    for epochs in calls:
        net.fit(x, x, batch_size=4, epochs=epochs)
    return float(net.parameters["0.weight"][0, 0]), descent


@pytest.mark.parametrize("samples", [12, 10, 3])
@pytest.mark.parametrize("per", ["epoch", "step"])
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2), ("messages", 4)])
def test_fit_counts_epochs_or_steps(per: Any, samples: int, kind: str, workers: int) -> None:
    """This includes a smaller last batch, and a second `fit`."""
    schedule = s.Polynomial(0.5, 20, 2.0, per=per)
    each = -(-samples // 4)
    with current(kind, workers):
        result, descent = fitted(schedule, [2, 1, 1], samples)
    assert descent.steps == 4 * each
    rates = [schedule(i if per == "step" else i // each) for i in range(4 * each)]
    assert result == pytest.approx(moves(rates), rel=1e-5)


KINDS: dict[str, tuple[Callable[[], Any], Callable[[int, int], float]]] = {
    "number": (lambda: 0.25, lambda step, epoch: 0.25),
    "function": (lambda: lambda epoch: 0.5 / (epoch + 1), lambda step, epoch: 0.5 / (epoch + 1)),
    "per epoch": (lambda: s.Step(0.5, 1, 0.5), lambda step, epoch: 0.5 * 0.5**epoch),
    "per step": (
        lambda: s.Step(0.5, 1, 0.5, per="step"), lambda step, epoch: 0.5 * 0.5**step
    ),
}  # fmt: skip
"""Learning rates of all kinds, and their values at a step and an epoch."""


@pytest.mark.parametrize("of_callback", [False, True])
@pytest.mark.parametrize(("first", "second"), [(a, b) for a in KINDS for b in KINDS])
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
def test_another_kind_of_rate_takes_effect_in_the_next_epoch(
    first: str, second: str, kind: str, workers: int, of_callback: bool
) -> None:
    """Assigned between two calls of `fit`, or by a callback between two epochs of one."""
    with current(kind, workers):
        x = mm.asarray(np.ones((12, 1), np.float32))
        net = mm.nn.NeuralNetwork(
            [mm.nn.Dense(1, bias=False, weight_init="zeros")],
            loss=lambda outputs, targets: mm.mean(outputs) * SLOPE,
            optimizer=GradientDescent(KINDS[first][0]()),
        )

        def assign(epochs: int) -> None:
            if epochs == 1:
                net.optimizer.learning_rate = KINDS[second][0]()

        if of_callback:
            net.fit(x, x, batch_size=4, epochs=3, callbacks=[lambda record: assign(record.epoch)])
        else:
            net.fit(x, x, batch_size=4)
            assign(1)
            net.fit(x, x, batch_size=4, epochs=2)
        rates = [KINDS[second if i >= 3 else first][1](i, i // 3) for i in range(9)]
        weight = float(net.parameters["0.weight"][0, 0])
        assert weight == pytest.approx(moves(rates), rel=1e-5)


def test_a_schedule_that_is_not_of_this_package() -> None:
    """A function counts epochs."""
    with current("inline"):
        result, _ = fitted(lambda epoch: 0.1 / (epoch + 1), [2, 1], 8)
    assert result == pytest.approx(moves([0.1, 0.1, 0.05, 0.05, 0.1 / 3, 0.1 / 3]), rel=1e-5)


def test_a_function_is_called_for_the_steps_and_epochs_that_are_taken() -> None:
    """It may be invalid before."""

    def rate(number: int) -> float:
        called.append(number)
        return 0.1 * (number - 2)

    called: list[int] = []
    with current("inline"):
        v, descent = mm.variable("v", 1.0), GradientDescent(0.1)
        descent.minimize(mm.square(v), [v], steps=3)
        descent.learning_rate = rate
        descent.minimize(mm.exp(v), [v], steps=2)  # by another program
        assert called == [3, 4]
        called.clear()
        net = mm.nn.NeuralNetwork(
            [mm.nn.Dense(1)], optimizer=GradientDescent(0.1), loss="mean_squared_error"
        )
        x, y = np.ones((4, 1), np.float32), np.ones((4, 1), np.float32)
        net.fit(x, y, batch_size=2, epochs=3)
        net.optimizer.learning_rate = rate
        net.fit(x, y, batch_size=4, epochs=1)
        assert set(called) == {3}


def test_a_rate_that_is_rounded_to_less_than_zero_is_zero() -> None:
    descent = GradientDescent(lambda step: 0.3 - 0.1 * step)
    assert 0.3 - 0.1 * 3 < 0
    assert descent.rates(3) == [0.0]
    with pytest.raises(MagmathError, match=r"returned -0\.1.* for 4"):
        descent.rates(4)


@pytest.mark.parametrize("kind", ["a number", "per step"])
@pytest.mark.parametrize(("pool", "workers"), [("inline", 1), ("shared", 2)])
def test_a_callback_sets_the_rate_of_the_next_step(pool: str, workers: int, kind: str) -> None:
    """A warm-up by hand, as in PyTorch's loops, then a schedule in place of the first one."""
    x, y = np.ones((10, 3), np.float32), np.arange(10.0, dtype=np.float32)[:, None]
    rates = [0.01 * (i + 1) for i in range(6)] + [0.06 * 0.9**i for i in range(6, 15)]
    given = s.Constant(rates[0], per="step") if kind == "per step" else rates[0]

    class WarmUp(mm.train.Callback):
        done = 0

        def on_step_end(self, trainer: Any, done: int, loss: float, speed: float) -> None:
            self.done += 1
            rate: Any = rates[self.done] if self.done < len(rates) else 0.0
            if kind == "per step":
                rate = s.Constant(rate, per="step")
                if self.done == 6:
                    rate = s.Exponential(0.06, 0.9, per="step")
                elif self.done > 6:
                    return
            trainer.optimizer.learning_rate = rate

    theirs = torch.nn.Linear(3, 1)
    torch.nn.init.zeros_(theirs.weight)
    rule = torch.optim.SGD(theirs.parameters(), rates[0], momentum=0.9)
    losses = []
    for step in range(15):
        rule.param_groups[0]["lr"] = rates[step]
        rows = slice(2 * (step % 5), 2 * (step % 5) + 2)
        rule.zero_grad()
        loss = (theirs(torch.from_numpy(x[rows])) - torch.from_numpy(y[rows])).square().mean()
        loss.backward()
        rule.step()
        losses.append(loss.item())
        if not step:
            bias = float(theirs.bias.detach()) + rates[0] * float(theirs.bias.grad)
    with current(pool, workers):
        net = mm.nn.Dense(1).build((1, 3))
        net.load_state_dict({"weight": np.zeros((3, 1)), "bias": np.array([bias])})
        trainer = mm.train.Trainer(net, "mean_squared_error", mm.optim.Momentum(given))
        history = trainer.fit(
            x, y, batch_size=2, epochs=3, shuffle=False, callbacks=[WarmUp()]
        ).step_losses  # fmt: skip
    assert history == pytest.approx(losses, rel=1e-4)


@pytest.mark.parametrize("kind", ["number", "function", "per step"])
@pytest.mark.parametrize(("pool", "workers"), [("inline", 1), ("shared", 2)])
def test_rates_have_the_type_of_converted_parameters(pool: str, workers: int, kind: str) -> None:
    """From the next step on, also in the middle of an epoch: 0.1 in float32 is another number."""
    rate, at = {
        "number": (0.1, lambda step: 0.1),
        "function": (lambda epoch: 0.1 / (epoch + 1), lambda step: 0.1 / (step // 3 + 1)),
        "per step": (s.Exponential(0.1, 0.9, per="step"), lambda step: 0.1 * 0.9**step),
    }[kind]
    converted = 0
    weight = 0.0

    class Converts(mm.train.Callback):
        def on_step_end(self, trainer: Any, done: int, loss: float, speed: float) -> None:
            nonlocal weight
            if trainer.optimizer.steps == converted:
                trainer.module.astype(mm.float64)
                weight = trainer.module.weight.numpy().item()

    x, y = np.ones((6, 1), np.float32), np.full((6, 1), 2, np.float32)
    with current(pool, workers):
        for converted in range(1, 6):
            net = mm.nn.Dense(1, bias=False, weight_init=0.3)
            rule = mm.optim.GradientDescent(rate)
            trainer = mm.train.Trainer(net, "mean_squared_error", rule)
            trainer.fit(x, y, batch_size=2, epochs=2, callbacks=[Converts()])
            for step in range(converted, 6):
                weight -= at(step) * 2 * (weight - 2)
            assert net.weight.numpy().item() == pytest.approx(weight, rel=1e-13)


def test_restarts_are_a_switch() -> None:
    for given in (2, 1, 0, 2.0, None, "yes"):
        with pytest.raises(ValueError, match="write restarts=True, growth=2"):
            s.Cosine(0.1, 10, restarts=given)  # type: ignore[arg-type]


@pytest.mark.parametrize("per", ["epoch", "step"])
def test_an_epoch_with_a_schedule_is_few_messages(per: Any) -> None:
    """One for the steps; a schedule per step has its rates sent before, in the same number of
    messages however many steps there are."""
    with current("shared", 2) as pool:
        x = np.ones((80, 1), np.float32)
        sent = []
        for batch in (2, 20):
            net = mm.nn.NeuralNetwork(
                [mm.nn.Dense(1)], loss="mean_squared_error",
                optimizer=Adam(s.Exponential(0.01, 0.9, per=per)),
            )  # fmt: skip
            data = mm.asarray(x)
            net.fit(data, data, batch_size=batch, epochs=2)
            before = pool.traffic.messages
            net.fit(data, data, batch_size=batch, epochs=4)
            sent.append(pool.traffic.messages - before)
        assert sent[0] == sent[1]
        assert per == "step" or sent[0] == 4


def test_a_plateau_takes_the_value_of_each_epoch() -> None:
    def constant(outputs: mm.Array, targets: mm.Array) -> mm.Array:
        return mm.mean(outputs) * 0.0 + 1.0

    with current("inline"):
        _, descent = fitted(s.WarmUp(s.Plateau(0.4, 0.5, patience=1), 2), [5], 8, constant)
        assert descent.rates(5)[0] == pytest.approx(0.1)
        _, descent = fitted(s.Plateau(0.4, 0.5, patience=1), [5], 8, constant)
        assert descent.rates(0)[0] == pytest.approx(0.1)
        state = descent.state_dict()
        other = GradientDescent(s.Plateau(0.4, 0.5, patience=1))
        other.load_state_dict(state)
        assert other.learning_rate.state_dict() == descent.learning_rate.state_dict()
        with pytest.raises(MagmathError, match="no value is recorded as 'validation_loss'"):
            fitted(s.Plateau(0.4, monitor="validation_loss"), [1], 8)


def test_an_epoch_is_recorded_before_its_metrics_are_observed() -> None:
    """An error of the schedule leaves the epoch complete."""
    with current("inline"):
        trainer = mm.train.Trainer(mm.nn.Dense(2), optimizer=Adam(s.Plateau(0.1, monitor="f1")))
        with pytest.raises(MagmathError, match="no value is recorded as 'f1'"):
            trainer.fit(np.ones((8, 4)), np.arange(8) % 2, batch_size=4, epochs=2)
        assert trainer.history is not None
        assert len(trainer.history.records) == trainer.epochs_done == 1
        assert len(trainer.history.step_losses) == trainer.optimizer.steps == 2


def test_a_warm_up_precedes_any_learning_rate() -> None:
    for after in (0.8, s.Constant(0.8), lambda step: 0.8):
        result = [s.WarmUp(after, 4, 0.5)(step) for step in range(6)]
        assert result == pytest.approx([0.4, 0.5, 0.6, 0.7, 0.8, 0.8])
    falling = s.WarmUp(lambda step: 0.5**step, 2)
    assert [falling(step) for step in (2, 3, 4)] == [1.0, 0.5, 0.25]


def test_rates_are_asked_for_no_step_beyond_the_last() -> None:
    asked = []

    class Listed(s.Schedule):
        per = "step"

        def __call__(self, step: int) -> float:
            asked.append(step)
            return [0.1, 0.2, 0.3, 0.4][step]

    class Watching(mm.train.Callback):
        def on_step_end(self, trainer: Any, done: int, loss: float, speed: float) -> None:
            """Steps are run one by one."""

    with current("inline"):
        net = mm.nn.Dense(1).build((1, 2))
        trainer = mm.train.Trainer(net, "mean_squared_error", GradientDescent(Listed()), metrics=[])
        x = np.ones((4, 2), np.float32)
        trainer.fit(x, x[:, :1], epochs=2, batch_size=2, callbacks=[Watching()])
    assert max(asked) == 3

"""The number of steps of an optimizer is that of the updates, in every form of a loop."""

from __future__ import annotations

import math
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath.engine.lifetimes.kept_expressions import keeping_expressions
from magmath.errors import OptionError, TracingError
from magmath.ops import counted_loops
from magmath.optim import Optimizer, schedules
from magmath.runtime.command_queue import CommandQueue
from magmath.runtime.run_handle import RunHandle
from magmath.train import Callback
from magmath.transform import traced_loop

STEPS = 6
Update = Callable[[], None]


def in_python(update: Update) -> None:
    for _ in range(STEPS):
        update()


def compiled(update: Update) -> None:
    call = mm.compile(lambda x: (update(), x)[1])
    for _ in range(STEPS):
        call(mm.ones(1))


def in_fori_loop(update: Update) -> None:
    mm.fori_loop(3, 3 + STEPS, lambda i, x: (update(), x)[1], mm.ones(1))


def in_scan(update: Update) -> None:
    mm.scan(lambda x, row: (update(), (x, row))[1], mm.ones(1), mm.ones((STEPS, 2)), reverse=True)


def in_while_loop(update: Update) -> None:
    mm.while_loop(lambda i: i < STEPS, lambda i: (update(), i + 1)[1], mm.asarray(0))


def in_two_loops(update: Update) -> None:
    for _ in range(2):
        mm.fori_loop(0, STEPS // 2, lambda i, x: (update(), x)[1], mm.ones(1))


FORMS: dict[str, Callable[[Update], None]] = {
    "python": in_python,
    "compile": compiled,
    "fori_loop": in_fori_loop,
    "scan": in_scan,
    "while_loop": in_while_loop,
    "compiled fori_loop": lambda update: mm.compile(lambda: (in_fori_loop(update), mm.ones(1))[1])(),
    "compiled scan": lambda update: mm.compile(lambda: (in_scan(update), mm.ones(1))[1])(),
    "two loops": in_two_loops,
}  # fmt: skip


def in_cond(update: Update) -> None:
    taken = mm.asarray(True)
    for _ in range(STEPS):
        mm.cond(taken, lambda: (update(), 0.0)[1], lambda: 0.0)


def in_compiled_cond(update: Update) -> None:
    call = mm.compile(lambda taken: mm.cond(taken, lambda: (update(), 0.0)[1], lambda: 0.0))
    for _ in range(STEPS):
        call(mm.asarray(True))


FORMS_OF_PARTS: dict[str, Callable[[Update], None]] = {
    **FORMS,
    "compiled while_loop": lambda update: mm.compile(lambda: in_while_loop(update))(),
    "cond": in_cond,
    "compiled cond": in_compiled_cond,
}


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("each", [1, 2])
def test_steps_are_the_updates(form: str, each: int, kind: str, workers: int) -> None:
    with current(kind, workers):
        v, counter = mm.variable("v", np.ones(3)), mm.variable("counter", 0)
        groups = {"w": {"learning_rate": 0.3}}
        optimizer = mm.optim.Adam(0.1, groups=groups)

        def update() -> None:
            for _ in range(each):
                optimizer.update({v: 2 * v})
                counter.assign(counter + 1)

        FORMS[form](update)
        assert optimizer.steps == int(counter) == each * STEPS
        state = optimizer.state_dict()
        assert int(state["steps"]) == int(state["v.count"]) == each * STEPS
        seen: list[int] = []
        optimizer.learning_rate = lambda step: seen.append(step) or 0.1
        update()
        assert seen == list(range(each * STEPS, each * (STEPS + 1)))


@pytest.mark.parametrize("form", FORMS_OF_PARTS)
@pytest.mark.parametrize("names", [["ab", "a"], ["a", "ab", "b"], ["abc", "bc", "c", "a"]])
def test_each_variable_counts_its_own_updates(names: list[str], form: str) -> None:
    """Whichever of them a step updates together, before and after updates of some alone."""
    with current("inline"):
        expected = {v: STEPS * sum(v in group for group in names) for v in "abc"}
        counts, values = _counts_and_values(names, FORMS_OF_PARTS[form])
        assert counts == {name: count for name, count in expected.items() if count}
        assert values == pytest.approx(_counts_and_values(names, in_python)[1])


def _counts_and_values(
    names: list[str], update_in: Callable[[Update], None]
) -> tuple[dict[str, int], list[float]]:
    """Update groups of variables in turn; return the step counts by name, and the variables."""
    variables = {name: mm.variable(name, 1.0, dtype="float64") for name in "abc"}
    optimizer = mm.optim.Adam(0.1)

    def update() -> None:
        for group in names:
            updated = [variables[name] for name in group]
            gradients = mm.grad(sum(v * v for v in updated), updated)
            optimizer.update(dict(zip(updated, gradients, strict=True)))

    update_in(update)
    state = optimizer.state_dict()
    counts = {v: int(state[f"{v}.count"]) for v in "abc" if f"{v}.count" in state}
    return counts, list(map(float, variables.values()))


@pytest.mark.parametrize("form", ["fori_loop", "scan"])
def test_a_failed_loop_counts_no_steps(form: str) -> None:
    with current("inline"):
        v = mm.variable("v", np.ones(3))
        optimizer = mm.optim.Adam(0.1)
        index = mm.asarray([7])

        def update() -> None:
            optimizer.update({v: 2 * mm.take(v, index) + v})

        with pytest.raises(IndexError):
            FORMS[form](update)
        assert optimizer.steps == 0


@pytest.mark.parametrize("form", ["update", "compile", "kept"])
@pytest.mark.parametrize("group", [False, True])
def test_a_step_without_a_valid_rate_is_not_counted(form: str, group: bool) -> None:
    """The next one has its number, also if the rate of a second group is invalid."""

    def rate(step: int) -> float:
        called.append(step)
        return math.nan if is_invalid and step >= 3 else 0.5

    called: list[int] = []
    is_invalid = True
    with current("inline"):
        v = mm.variable("v", 0.0)
        groups = {"w*": {"learning_rate": rate}} if group else {}
        descent = mm.optim.GradientDescent(lambda s: 0.5 if group else rate(s), groups=groups)
        compiled = mm.compile(lambda: descent.update({v: mm.asarray(1.0)}))

        def kept() -> None:
            with keeping_expressions():
                descent.update({v: mm.asarray(1.0)})

        steps: dict[str, Callable[[], object]] = {
            "update": lambda: descent.update({v: mm.asarray(1.0)}),
            "compile": compiled,
            "kept": kept,
        }
        step = steps[form]
        for _ in range(3):
            step()
        for _ in range(2):
            with pytest.raises(OptionError, match="returned nan for 3"):
                step()
            assert descent.steps == 3
        assert float(v) == -1.5
        is_invalid = False
        called.clear()
        step()
        assert called == [3]
        assert (descent.steps, float(v)) == (4, -2.0)


@pytest.mark.parametrize("form", ["compile", "remat"])
def test_a_rate_that_runs_other_programs_and_fails(form: str) -> None:
    """What they take stays taken, and the step is not counted."""
    with current("inline"):
        v, last = mm.variable("v", 0.0), mm.variable("last", 0.0)

        def rate(step: int) -> float:
            last.assign(last + 1)
            return math.nan

        descent = mm.optim.GradientDescent(rate)

        def update(x: mm.Array) -> mm.Array:
            descent.update({v: mm.asarray(1.0)})
            return x

        call = mm.compile(update) if form == "compile" else mm.remat(update)
        for _ in range(2):
            with pytest.raises(OptionError, match="returned nan for 0"):
                call(mm.ones(1))
            assert descent.steps == 0
        if form == "compile":  # otherwise it is an assignment of the call that has failed
            assert float(last) >= 2


@pytest.mark.parametrize("transformation", ["remat", "vmap", "jacobian", "cond"])
def test_the_number_of_steps_is_read_in_functions_that_are_traced_at_each_call(
    transformation: str,
) -> None:
    with current("inline"):
        v, descent = mm.variable("v", np.zeros(2)), mm.optim.GradientDescent(0.0)
        scaled = lambda x: x * (descent.steps + 1)  # noqa: E731
        calls: dict[str, Callable[[mm.Array], mm.Array]] = {
            "remat": mm.remat(scaled),
            "vmap": mm.vmap(scaled),
            "jacobian": lambda x: mm.sum(mm.jacobian(scaled)(x), axis=0),
            "cond": lambda x: mm.cond(mm.asarray(True), scaled, lambda x: x, x),
        }
        call = calls[transformation]
        for step in range(3):
            assert call(mm.ones(2)).tolist() == [step + 1] * 2
            descent.update({v: mm.ones(2)})
        with pytest.raises(TracingError, match="steps is read in a compiled function"):
            mm.compile(call)(mm.ones(2))


def test_a_schedule_after_a_loop_continues_there() -> None:
    """Warm-up in a loop on the workers, then a cosine in a Python loop."""
    with current("inline"):
        v = mm.variable("v", 0.0)
        descent = mm.optim.GradientDescent(0.5)
        mm.fori_loop(0, 4, lambda i, x: (descent.update({v: mm.asarray(1.0)}), x)[1], 0.0)
        cosine: Any = schedules.Cosine(1.0, 10)
        descent.learning_rate = cosine
        for _ in range(3):
            descent.update({v: mm.asarray(1.0)})
        assert float(v) == pytest.approx(-(4 * 0.5 + sum(map(cosine, (4, 5, 6)))))


def in_long_loop(update: Update) -> None:
    mm.fori_loop(0, 40, lambda i, x: (update(), x)[1], mm.ones(1))


def after_a_branch(update: Update) -> None:
    mm.cond(mm.asarray(True), lambda: (update(), 0.0)[1], lambda: 0.0)
    update()


def after_the_loop(update: Update) -> None:
    in_while_loop(update)
    update()


@pytest.mark.parametrize(
    "form",
    [in_while_loop, in_long_loop, after_a_branch, after_the_loop, in_python],
)
def test_a_compiled_step_takes_the_kind_of_rate_that_is_assigned(
    form: Callable[[Update], None],
) -> None:
    """It does what a function that is compiled after the assignment does, an error included."""
    with current("inline"):
        v, descent = mm.variable("v", 0.0), mm.optim.GradientDescent(1.0)
        last = mm.compile(lambda: (form(lambda: descent.update({v: mm.asarray(1.0)})), v + 0.0)[1])

        def result(function: Callable[[], mm.Array]) -> float | str:
            v.assign(0.0)
            descent.restore_steps(0)
            try:
                return float(function())
            except TracingError as error:
                return str(error)

        rates: list[Any] = [1.0, schedules.Exponential(1.0, 0.5), 0.5, lambda step: 0.1 * step]
        for rate in rates:
            descent.learning_rate = rate
            new = mm.compile(
                lambda: (form(lambda: descent.update({v: mm.asarray(1.0)})), v + 0.0)[1]
            )
            assert result(last) == result(new)
            assert result(last) == result(new)


@pytest.mark.parametrize("form", sorted(FORMS_OF_PARTS.keys() - {"python", "cond"}))
def test_an_optimizer_of_a_traced_function_is_made_outside(form: str) -> None:
    """One that is made in it would continue, in the next run, from the states of the last one."""
    with current("inline"):
        v = mm.variable("v", np.ones(3))
        for kind in (mm.optim.GradientDescent, mm.optim.Adam):
            with pytest.raises(TracingError, match=r"update: the optimizer was made in .* outside"):
                FORMS_OF_PARTS[form](lambda kind=kind: kind(0.1).update({v: 2 * v}))
        assert v.tolist() == [1.0, 1.0, 1.0]


@pytest.mark.parametrize("form", FORMS)
def test_an_optimizer_that_outlives_the_traced_function_may_be_made_in_it(form: str) -> None:
    with current("inline"):
        v = mm.variable("v", 1.0)
        kept: dict[str, Optimizer] = {}

        def update() -> None:
            if not kept:
                kept["optimizer"] = mm.optim.Momentum(0.1)
            kept["optimizer"].update({v: mm.asarray(1.0)})

        FORMS[form](update)
        expected, velocity = 1.0, 0.0
        for _ in range(STEPS):
            velocity = 0.9 * velocity + 1.0
            expected -= 0.1 * velocity
        np.testing.assert_allclose(float(v), expected, rtol=1e-6)


@pytest.mark.parametrize("form", ["compile", "fori_loop", "cond", "fit"])
def test_a_rate_is_not_assigned_in_a_traced_function(form: str) -> None:
    """It would be assigned when the function is traced, and by no further call."""
    with current("inline"):
        v = mm.variable("v", 0.0)
        descent = mm.optim.GradientDescent(1.0)

        def step(rate: Any) -> mm.Array:
            descent.learning_rate = rate
            descent.update({v: mm.asarray(1.0)})
            return v + 0.0

        def loss(outputs: mm.Array, targets: mm.Array) -> mm.Array:
            step(0.5)
            return mm.mean(outputs)

        calls: dict[str, Callable[[], object]] = {
            "compile": lambda: mm.compile(step)(0.5),
            "fori_loop": lambda: mm.fori_loop(0, 3, lambda i, x: step(0.5), 0.0),
            "cond": lambda: mm.compile(lambda p: mm.cond(p, step, lambda x: x, 0.5))(v > 0),
            "fit": lambda: mm.train.Trainer(mm.nn.Dense(1), loss, descent).fit(
                np.ones((4, 1)), np.ones(4)
            ),
        }
        with pytest.raises(TracingError, match="learning_rate is assigned in a compiled function"):
            calls[form]()
        assert descent.learning_rate == 1.0
        assert float(v) == 0.0
        step(0.25)
        assert float(v) == -0.25


class Sum(mm.nn.Module):
    """A sum over the steps of a sequence, by a loop."""

    def __init__(self) -> None:
        self.weight = mm.nn.Parameter(1.0, (2,))

    def __call__(self, x: mm.Array) -> mm.Array:
        step = lambda h, row: (h + row * self.weight, 0.0)  # noqa: E731
        return mm.scan(step, mm.zeros(x[:, 0].shape), mm.swapaxes(x, 0, 1))[0]


class StopsAt(Callback):
    """Interrupts training after a step: as a callback each step is a run, as a reporter an epoch."""

    def __init__(self, step: int, how: Callable[[], object]) -> None:
        self._step, self._how = step, [how]

    def on_step_end(self, trainer: Any, done: int, loss: float, speed: float) -> None:
        self.step(done, loss, speed)

    def begin(self, epochs: int, steps: int) -> None: ...

    def epoch(self, record: mm.train.EpochRecord) -> None: ...

    def end(self) -> None: ...

    def step(self, done: int, loss: float, speed: float) -> None:
        if done >= self._step and self._how:
            self._how.pop()()


def raise_error() -> None:
    raise KeyboardInterrupt


def fail() -> None:
    raise ValueError("from a callback")


def press_ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


@contextmanager
def divided_loops(divides: bool) -> Iterator[None]:
    """Divide steps at short loops too."""
    with pytest.MonkeyPatch.context() as patch:
        if divides:
            patch.setattr(counted_loops, "MAX_UNROLLED", -1)
            patch.setattr(traced_loop, "MIN_TRACED_STEPS", 1)
        yield


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
@pytest.mark.parametrize("how", [raise_error, fail, press_ctrl_c])
@pytest.mark.parametrize(("divides", "alone"), [(False, False), (True, False), (True, True)])
def test_an_interrupted_epoch_counts_its_steps(
    divides: bool, alone: bool, how: Callable[[], object], kind: str, workers: int
) -> None:
    """As many as the states count; a schedule per step continues there."""
    with current(kind, workers), divided_loops(divides):
        seen: list[int] = []

        class Recorded(schedules.Schedule):
            per = "step"

            def __call__(self, step: int) -> float:
                seen.append(step)
                return 0.1

        optimizer = mm.optim.Adam(Recorded())
        loss = lambda outputs, _: mm.mean(outputs)  # noqa: E731
        net = mm.nn.NeuralNetwork(Sum(), loss=loss, optimizer=optimizer)
        x, y = np.ones((44, 3, 2), np.float32), np.zeros(44)
        for epoch in range(2):
            stop = StopsAt(4, how)
            options: Any = {"callbacks": [stop]} if alone else {"reporter": stop}
            with pytest.raises(ValueError if how is fail else KeyboardInterrupt):
                net.fit(x, y, batch_size=4, **options)
            steps, state = optimizer.steps, optimizer.state_dict()
            assert steps == int(state["steps"]) == int(state["weight.count"])
            assert 4 * (epoch + 1) <= steps <= 11 * (epoch + 1)
            if alone:
                assert steps == 4 * (epoch + 1)
        seen.clear()
        net.fit(x, y, batch_size=4)
        assert optimizer.steps == steps + 11
        assert seen[-11:] == list(range(steps, steps + 11))


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
@pytest.mark.parametrize("divides", [False, True])
def test_a_step_that_fails_for_its_data_is_not_counted(
    divides: bool, kind: str, workers: int
) -> None:
    """The steps before it are, unless the failure undoes them."""
    with current(kind, workers), divided_loops(divides):
        optimizer = mm.optim.Adam(0.1)
        loss = lambda outputs, rows: mm.mean(mm.take(outputs, rows, axis=0))  # noqa: E731
        net = mm.nn.NeuralNetwork(Sum(), loss=loss, optimizer=optimizer)
        x, rows = np.ones((16, 3, 2), np.float32), np.zeros(16, int)
        rows[9] = 4  # in the third batch
        with pytest.raises(IndexError):
            net.fit(x, rows, batch_size=4, shuffle=False)
        taken = optimizer.steps
        weight = net.module.parameters()[0]
        np.testing.assert_allclose(weight.numpy(), 1 - 0.1 * taken, rtol=1e-5)
        assert taken == (2 if divides else 0)
        net.fit(x, np.zeros(16, int), batch_size=4)
        assert optimizer.steps == taken + 4


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
@pytest.mark.parametrize("rate", [1.0, lambda step: 1.0], ids=["number", "function"])
@pytest.mark.parametrize("is_fallible", [False, True])
def test_an_interrupted_minimization_counts_its_steps(
    is_fallible: bool, rate: Any, kind: str, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within a run of many steps, or between runs of one step each."""
    report, values = CommandQueue._report_progress, RunHandle.values
    remaining = math.inf
    presses: list[Callable[[], object]] = []

    def pressed(*arguments: Any) -> bool:
        if presses:
            presses.pop()()
        return report(*arguments)

    def interrupted(run: RunHandle) -> list[float]:
        nonlocal remaining
        result = values(run)
        remaining -= 1
        if not remaining:
            raise KeyboardInterrupt
        return result

    monkeypatch.setattr(CommandQueue, "_report_progress", pressed)
    monkeypatch.setattr(RunHandle, "values", interrupted)
    with current(kind, workers):
        v = mm.variable("v", np.zeros(2))
        descent = mm.optim.GradientDescent(rate)
        index = mm.asarray(np.array([0, 1]))
        loss = mm.sum(mm.take(v, index) if is_fallible else v * 1.0)
        descent.minimize(loss, [v], 3)
        steps, remaining = (100, 7) if callable(rate) else (10**6, math.inf)
        presses.append(press_ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            descent.minimize(loss, [v], steps)
        np.testing.assert_array_equal(v.numpy(), [-descent.steps] * 2)
        assert descent.steps == 3 + 7 if callable(rate) else 3 < descent.steps < steps

"""What an error leaves behind: variables and arrays keep the values from before the failing call,
with the worker of this process and with several workers, as those of a NumPy counterpart do."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath.arrays.variables.variable import overwrite
from magmath.engine import number_checks
from magmath.engine.remote_array import remote_array_of
from magmath.optim import minimizing
from magmath.train import step_programs
from magmath.transform import uncompiled_loops

N = 4
ERRORS = (IndexError, ValueError, np.linalg.LinAlgError)
POOLS = [("inline", 1), ("planned", 1), ("shared", 2), ("messages", 3)]


def _matrix(good: bool) -> Any:
    return (2 * np.eye(N) if good else np.zeros((N, N))).astype(np.float32)


def _positions(good: bool) -> Any:
    return np.array([1, 3]) if good else np.array([1, N + 5])


def _put(lib: Any, x: Any, positions: Any) -> Any:
    made = lib.asarray(x) + 0
    made[positions] = 7
    return made


def _powers(good: bool) -> Any:
    return np.array([2, 0, 1, 3 if good else -3])


def _rates(good: bool) -> Any:
    return np.array([1.0, 0.0, 2.0, 3.0 if good else -3.0])


KINDS: dict[str, tuple[Callable[[bool], Any], Callable[[Any, Any, Any], Any]]] = {
    "take": (_positions, lambda lib, x, i: lib.zeros(N) + lib.sum(lib.take(x, i, axis=0))),
    "setitem": (_positions, _put),
    "cholesky": (_matrix, lambda lib, x, a: x + lib.linalg.cholesky(a)[0]),
    "solve": (_matrix, lambda lib, x, a: lib.linalg.solve(a, x)),
    "power": (_powers, lambda lib, x, i: x + lib.where(lib.asarray([2] * N) ** i > 0, 1.0, 0.0)),
    "poisson": (_rates, lambda lib, x, r: x + lib.where(lib.random.poisson(r) >= 0, 1.0, 0.0)),
    "inv": (_matrix, lambda lib, x, a: lib.linalg.inv(a) @ x),
}
"""For each kind of operation: its good or bad operand, and an expression of x."""


@pytest.fixture(params=POOLS, ids=lambda p: f"{p[0]}-{p[1]}")
def pool(request: pytest.FixtureRequest) -> Iterator[None]:
    with current(*request.param):
        yield


def _steps() -> list[bool]:
    """A random sequence of good and bad steps."""
    drawn = np.random.default_rng(5).random(8) < 0.6
    return [True, False, *map(bool, drawn), False, True]


def _caught(call: Callable[[], Any]) -> bool:
    try:
        made = call()
        mm.evaluate(*([] if made is None else [made]), wait=True)
    except ERRORS:
        return True
    return False


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("first", [False, True])
def test_compiled_steps_assign_all_variables_or_none(pool: None, kind: str, first: bool) -> None:
    """Variables that a compiled step assigns, before or after the operation that fails."""
    operand, expression = KINDS[kind]
    w, count = mm.variable("w", mm.arange(1.0, N + 1)), mm.variable("count", 0)
    window = mm.variable("window", mm.zeros((3, N)))

    def step(x: Any) -> Any:
        if first:
            count.assign(count + 1)
            window[0] = w * 1
        made = expression(mm, w, x)
        w.assign(made)
        if not first:
            count.assign(count + 1)
            window[0] = made * 1
        return made

    compiled, counterpart, counted, row = mm.compile(step), np.arange(1.0, N + 1), 0, np.zeros(N)
    for good in _steps():
        x = operand(good)
        assert _caught(lambda x=x: compiled(mm.asarray(x))) is not good
        if good:
            made = expression(np, counterpart, x)
            row, counterpart, counted = (counterpart if first else made), made, counted + 1
        assert int(count) == counted
        np.testing.assert_allclose(w.numpy(), counterpart, rtol=1e-5)
        np.testing.assert_allclose(window.numpy(), [row, 0 * row, 0 * row], rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("evaluated", [False, True])
def test_a_failed_result_is_not_assigned_later(pool: None, kind: str, evaluated: bool) -> None:
    """A call assigns the result of an earlier one, which may not be known to have failed."""
    operand, expression = KINDS[kind]
    w = mm.variable("w", mm.arange(1.0, N + 1))
    forward = mm.compile(lambda x: expression(mm, w, x))

    @mm.compile
    def step(y: Any) -> Any:
        w.assign(w + y)
        return mm.sum(y)

    counterpart = np.arange(1.0, N + 1)
    for good in _steps():
        x = operand(good)

        def call(x: Any = x) -> Any:
            y = forward(mm.asarray(x)) if evaluated else expression(mm, w.snapshot(), mm.asarray(x))
            return step(y)

        assert _caught(call) is not good
        if good:
            counterpart = counterpart + expression(np, counterpart, x)
        np.testing.assert_allclose(w.numpy(), counterpart, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("observed", [False, True])
def test_updates_in_place(pool: None, kind: str, known: bool, observed: bool) -> None:
    """Arrays and variables that statements update in place; `known`: from evaluated values;
    `observed`: while a pending expression reads the former value."""
    operand, expression = KINDS[kind]
    x, w = mm.arange(1.0, N + 1), mm.variable("w", mm.arange(1.0, N + 1))
    counterpart = np.arange(1.0, N + 1)
    for good in _steps():
        given = operand(good)
        if known:
            mm.evaluate(x)
        reader = x * 2 if observed else None

        def update(given: Any = given) -> Any:
            nonlocal x
            if kind == "setitem":
                x[mm.asarray(given)] = 7
            else:
                x -= expression(mm, x, mm.asarray(given))
            return x

        def assign(given: Any = given) -> Any:
            if kind == "setitem":
                w[mm.asarray(given)] = 7
            else:
                w.assign(w - expression(mm, w, mm.asarray(given)))

        for call in (update, assign):
            assert _caught(call) is not good
        former = counterpart
        if good:
            made = expression(np, counterpart, given)
            counterpart = made if kind == "setitem" else counterpart - made
        for array in (x, w):
            np.testing.assert_allclose(array.numpy(), counterpart, rtol=1e-5)
        if reader is not None:
            np.testing.assert_allclose(reader.numpy(), former * 2, rtol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_arguments_that_a_compiled_function_updates(pool: None, kind: str) -> None:
    """Arguments that a compiled function updates in place."""
    operand, expression = KINDS[kind]

    @mm.compile
    def step(y: Any, x: Any) -> Any:
        y += expression(mm, y, x)
        return mm.sum(y)

    y, counterpart = mm.arange(1.0, N + 1), np.arange(1.0, N + 1)
    for good in _steps():
        x = operand(good)
        assert _caught(lambda x=x: step(y, mm.asarray(x))) is not good
        if good:
            counterpart = counterpart + expression(np, counterpart, x)
        np.testing.assert_allclose(y.numpy(), counterpart, rtol=1e-5)


def test_training_with_a_token_out_of_the_vocabulary(pool: None) -> None:
    """A compiled training step with Adam: a failed step changes neither parameters nor states."""
    embedding = mm.nn.Embedding(10, 3)
    adam = mm.optim.Adam(0.1)
    good, bad = np.ones((4, 2), int), np.full((4, 2), 12)
    embedding(good)

    @mm.compile
    def step(tokens: Any) -> Any:
        loss, slopes = mm.value_and_grad(
            lambda: mm.mean(embedding(tokens) ** 2), embedding.trainable()
        )
        adam.update(slopes)
        return loss

    def state() -> list[Any]:
        states = {**embedding.state_dict(), **adam.state_dict()}
        return [np.asarray(x) for x in states.values()]

    losses = []
    for tokens in (good, bad, good, bad, bad, good):
        before = state()
        try:
            losses.append(float(step(tokens)))
        except IndexError:
            assert tokens is bad
            for former, now in zip(before, state(), strict=True):
                np.testing.assert_array_equal(now, former)
        else:
            assert tokens is good
            assert any((former != now).any() for former, now in zip(before, state(), strict=True))
    assert losses == sorted(losses, reverse=True)
    assert len(losses) == 3


@pytest.mark.parametrize("fails", [False, True])
def test_only_programs_that_can_fail_copy_their_variables(fails: bool) -> None:
    """Ordinary training steps wait for nothing; those with data as indices wait for the run."""
    with current("shared", 2) as pool:
        network = mm.nn.Embedding(10, 3) if fails else mm.nn.Dense(2)
        x = mm.zeros(4, dtype=mm.int64) if fails else mm.ones((4, 3))
        network(x)
        adam = mm.optim.Adam(0.1)

        @mm.compile
        def step(x: Any) -> Any:
            loss, slopes = mm.value_and_grad(lambda: mm.mean(network(x)), network.trainable())
            adam.update(slopes)
            return loss

        step(x)
        pool.finish()
        run = step._last_used.runs.last
        step(x)
        again = step._last_used.runs.last
        assert again is not run
        assert step._last_used.runs.compiled.is_fallible is fails
        assert not (fails and again.is_pending)


@pytest.mark.parametrize("is_argument", [False, True])
def test_parameters_that_are_numbers_are_checked_before_the_run(is_argument: bool) -> None:
    """The program then need not copy the variables."""
    with current("shared", 2):
        v = mm.variable("v", mm.zeros(50_000))

        @mm.compile
        def step(shape: float) -> None:
            v.assign(v + mm.random.gamma(shape if is_argument else 2.0, size=50_000))

        step(2.0)
        assert not step._last_used.runs.compiled.is_fallible
        if is_argument:
            before = v.numpy()
            with pytest.raises(ValueError, match="gamma"):
                step(-1.0)
            assert (v.numpy() == before).all()


@pytest.mark.parametrize("shuffle", [False, True])
def test_fit_waits_only_for_indices_in_the_data(shuffle: bool) -> None:
    """The indices of batches are in range, and labels are no indices; tokens are."""
    with current("shared", 2):
        for first, x in (
            (mm.nn.Dense(3), np.ones((12, 3), np.float32)),
            (mm.nn.Embedding(5, 3), np.ones(12, int)),
        ):
            module = mm.nn.Sequential(first, mm.nn.Dense(2))
            trainer = mm.train.Trainer(module, "cross_entropy", mm.optim.Adam(0.1))
            trainer.fit(x, np.arange(12) % 2, epochs=2, batch_size=5, shuffle=shuffle)
            programs = trainer.step._programs.values()
            assert {x.compiled.is_fallible for x in programs} == {type(first) is mm.nn.Embedding}


@pytest.mark.parametrize("way", ["minimize", "loop"])
def test_several_steps_are_taken_or_none(pool: None, way: str) -> None:
    """A call of `minimize`, or a loop, that assigns variables."""
    w, count = mm.variable("w", mm.arange(1.0, N + 1)), mm.variable("count", 0)
    momentum = mm.optim.Momentum(0.1, 0.9)

    def body(i: Any, x: Any) -> Any:
        count.assign(count + 1)
        w.assign(0.5 * w)
        return x * mm.linalg.cholesky(x)[0, 0]

    for good in _steps():
        before, counted = w.numpy(), int(count)

        def call(good: bool = good) -> Any:
            if way == "loop":
                return mm.fori_loop(0, 3, body, mm.asarray(_matrix(good)))
            picked = mm.take(w, mm.asarray(_positions(good)), axis=0)
            return momentum.minimize(mm.sum(picked * picked), [w], steps=3) and None

        assert _caught(call) is not good
        assert int(count) == counted + 3 * (good and way == "loop")
        if not good:
            np.testing.assert_array_equal(w.numpy(), before)
        else:
            assert (w.numpy() != before).any()


def _trainer(way: str) -> tuple[Any, Callable[[bool], Any]]:
    """A variable, and a step that draws random numbers, uses a schedule and may fail."""
    w = mm.variable("w", mm.arange(1.0, N + 1))
    rate = mm.optim.schedules.Polynomial(0.1, 40)
    descent = mm.optim.Adam(rate) if way != "minimize steps" else mm.optim.Momentum(rate, 0.5)
    rng = mm.random.Generator(3)

    def loss(positions: Any) -> Any:
        noise = mm.random.normal(size=N) + rng.uniform(size=N)
        return mm.sum(mm.take(w, positions, axis=0) ** 2) + mm.sum(w * noise)

    def update(positions: Any) -> Any:
        value, slopes = mm.value_and_grad(lambda: loss(positions), [w])
        descent.update(slopes)
        return value

    def body(i: Any, positions: Any) -> Any:
        w.assign(w - 0.1 * mm.take(w, positions, axis=0)[0] * mm.random.normal(size=N))
        return positions + 0

    expression = loss(placeholder := mm.variable("positions", _positions(True)))

    def minimize(good: bool) -> None:
        placeholder.assign(_positions(good))
        descent.minimize(expression, [w], steps=3 if way == "minimize steps" else 1)

    calls: dict[str, Callable[[bool], Any]] = {
        "minimize": minimize,
        "minimize steps": minimize,
        "loop": lambda good: mm.fori_loop(0, 3, body, mm.asarray(_positions(good))),
    }
    compiled = mm.compile(update)
    calls["compiled"] = lambda good: compiled(mm.asarray(_positions(good)))
    return w, calls[way]


@pytest.mark.parametrize("way", ["compiled", "minimize", "minimize steps", "loop"])
def test_failed_steps_leave_generators_and_schedules(pool: None, way: str) -> None:
    """With failed steps in between, the good ones draw the same numbers and use the same rates."""
    result = []
    for with_failures in (False, True):
        mm.random.seed(7)
        w, call = _trainer(way)
        values = []
        for good in _steps():
            if good or with_failures:
                assert _caught(partial(call, good)) is not good
            if good:
                values.append(w.numpy())
        values.append(mm.random.uniform(size=3).numpy())
        result.append(values)
    for alone, among_failures in zip(*result, strict=True):
        np.testing.assert_array_equal(alone, among_failures)


def test_failed_eager_updates_leave_schedules(pool: None) -> None:
    """Statements that are complete stay: the numbers were drawn, but the step was not taken."""
    w = mm.variable("w", mm.arange(1.0, N + 1))
    descent = mm.optim.Adam(mm.optim.schedules.Polynomial(0.1, 40))
    for good in _steps():
        before, steps = w.numpy(), descent.steps
        slope = mm.linalg.cholesky(mm.asarray(_matrix(good)) + 0 * mm.diag(w))[0, 0] * w
        assert _caught(lambda slope=slope: descent.update({w: slope})) is not good
        assert descent.steps == steps + good
        assert (w.numpy() != before).any() == good


def test_minimize_takes_all_steps_or_none(pool: None) -> None:
    """A step of `minimize` that fails after others undoes these."""
    w = mm.variable("w", [1.0, 1.0])
    for rate in (1.0, mm.optim.schedules.Step(1.0, 100)):
        descent, drawn = mm.optim.GradientDescent(rate), []
        for failures in (0, 2):
            mm.random.seed(5)
            expression = mm.sum(w * mm.random.uniform(1.0, 1.5, size=2)) + 0 * mm.sum(
                mm.linalg.cholesky(mm.diag(w + 2.9))
            )
            call = partial(descent.minimize, expression, [w], steps=4)
            for _ in range(failures):
                assert _caught(call)
                np.testing.assert_array_equal(w.numpy(), [1.0, 1.0])
                assert descent.steps == 0
            drawn.append(mm.random.normal(size=3).numpy())
        np.testing.assert_array_equal(*drawn)


@pytest.mark.parametrize("wrong", [N, -N - 1])
def test_a_number_that_is_no_index_changes_no_variable(pool: None, wrong: int) -> None:
    count = mm.variable("count", mm.zeros(3))

    @mm.compile
    def step(x: Any, i: int) -> Any:
        count.assign(count + 1)
        return x[i], mm.cond(i < N, lambda: x[i], lambda: x[0])

    @mm.compile
    def chosen(x: Any, i: int) -> Any:
        count.assign(count + 1)
        return mm.cond(abs(i) < N, lambda: x[i], lambda: x[0])

    x = mm.asarray(np.arange(float(N)))
    assert [float(v) for v in step(x, 1)] == [1.0, 1.0]
    with pytest.raises(IndexError, match=f"index {wrong} is out of range"):
        step(x, wrong)
    assert [float(v) for v in step(x, -1)] == [N - 1.0, N - 1.0]
    assert float(chosen(x, wrong)) == 0.0
    assert count.numpy().tolist() == [3.0] * 3


def _written(x: Any, i: Any) -> Any:
    copy = x + 0
    copy[i + 1] = 5.0
    return copy[0]


Read = Callable[[Any, Any], Any]
TABLE = np.arange(30.0).reshape(10, 3)
READS: dict[str, tuple[Read, Any]] = {
    "element": (lambda x, i: x[i], 10),
    "element of a typed number": (lambda x, i: x[i], np.int32(10)),
    "from the end": (lambda x, i: x[-i], 11),
    "sum": (lambda x, i: x[i + 1], 9),
    "product": (lambda x, i: x[2 * i - 1, 0], -5),
    "take": (lambda x, i: mm.take(x, i, axis=0), np.int64(-11)),
    "several": (lambda x, i: x[i, mm.arange(2)], 10),
    "window": (lambda x, i: x[i + mm.arange(1, 4)], 7),
    "along": (lambda x, i: mm.take_along_axis(x, mm.full((1, 3), i + 0), axis=0), 10),
    "write": (_written, 9),
    "power": (lambda x, i: mm.arange(3) ** (i + 1), -2),
    "parameter": (lambda x, i: mm.random.gamma(0.5 + i, size=3), -1),
    "row of a part": (lambda x, i: x[2:][i][1:], 8),
}
"""For each form of an operand that a number determines: an expression of a table of 10 rows, which
succeeds for 0, and a number for which it fails."""


def _expected(form: str, table: Any) -> Any:
    read, _ = READS[form]
    return np.asarray(read(mm.asarray(table), 0)) if form != "parameter" else None


@pytest.mark.parametrize("form", READS)
def test_a_number_that_makes_an_operation_fail_changes_no_variable(pool: None, form: str) -> None:
    """In any expression of numbers alone; the program needs no copies for that."""
    read, wrong = READS[form]
    first, last = mm.variable("first", mm.zeros(3)), mm.variable("last", mm.zeros(3))

    @mm.compile
    def step(x: Any, i: Any) -> Any:
        first.assign(first + 1)
        result = read(x, i)
        last.assign(last + 1 + 0 * mm.sum(result))
        return result

    x = mm.asarray(TABLE)
    for completed in (1, 2):
        result = step(x, type(wrong)(0))
        if form != "parameter":
            np.testing.assert_array_equal(result.numpy(), _expected(form, TABLE))
        for _ in range(2):
            with pytest.raises((IndexError, ValueError)):
                mm.evaluate(step(x, wrong), wait=True)
            for v in (first, last):
                assert v.numpy().tolist() == [float(completed)] * 3
    assert not step._last_used.runs.compiled.is_fallible


@pytest.mark.parametrize("form", READS)
@pytest.mark.parametrize("updates", [False, True])
def test_a_call_that_a_number_makes_fail_takes_no_random_numbers(
    pool: None, form: str, updates: bool
) -> None:
    """Whether the function changes an argument or nothing."""
    read, wrong = READS[form]

    @mm.compile
    def draw(x: Any, y: Any, i: Any) -> Any:
        drawn = mm.random.normal() + 0 * mm.sum(read(x, i))
        if updates:
            y += 1
        return drawn

    x, y = mm.asarray(TABLE), mm.zeros(3)
    draws = []
    for failures in (0, 3):
        mm.random.seed(7)
        drawn = [float(draw(x, y, type(wrong)(0)))]
        for _ in range(failures):
            with pytest.raises((IndexError, ValueError)):
                draw(x, y, wrong)
        drawn.append(float(draw(x, y, type(wrong)(0))))
        draws.append(drawn)
    assert draws[0] == draws[1]
    assert draws[0][0] != draws[0][1]
    assert y.numpy().tolist() == [4.0 * updates] * 3


COMPUTED: dict[str, Callable[[Any], Any]] = {
    "power": lambda x: x**2,
    "take": lambda x: mm.take(x, mm.arange(3) * 2, axis=0),
    "window": lambda x: x[mm.arange(3) + 1],
    "along": lambda x: mm.take_along_axis(x, mm.full((1, 3), 2), axis=0),
    "element": lambda x: mm.compile(lambda i: x[i + 1])(2),
}


@pytest.mark.parametrize("form", COMPUTED)
def test_programs_keep_no_arrays(pool: None, form: str) -> None:
    """Those of operations with operands that are checked."""

    def array() -> Any:
        x = mm.asarray(TABLE.astype(np.int64))
        mm.evaluate(COMPUTED[form](x), wait=True)
        return weakref.ref(remote_array_of(x.evaluated_leaf()))

    references = [array() for _ in range(2)]
    gc.collect()
    assert not any(reference() for reference in references)


@pytest.mark.parametrize("varies", [False, True])
def test_large_indices_are_computed_before_runs_if_they_are_fixed(
    varies: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are computed once, so they may have more bytes than what each run computes."""
    monkeypatch.setattr(number_checks, "MAX_BYTES", 64)
    with current("planned"):
        v = mm.variable("v", mm.zeros(2))

        @mm.compile
        def step(x: Any, i: int) -> None:
            indices = mm.arange(100) * 3 + (i if varies else 1)
            v.assign(v + mm.sum(mm.take(x, indices)) + i)

        step(mm.arange(400.0), 1)
        assert step._last_used.runs.compiled.is_fallible is varies
        for _ in range(2):
            with pytest.raises(IndexError):
                mm.evaluate(step(mm.arange(200.0), 1), v, wait=True)


def test_programs_keep_only_the_fixed_values_that_runs_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """And compute them once."""
    runs: list[int] = []
    run = number_checks._run

    def counted(steps: Any, values: Any) -> None:
        runs.append(len(steps))
        run(steps, values)

    monkeypatch.setattr(number_checks, "_run", counted)
    with current("planned"):
        v = mm.variable("v", mm.zeros(2))

        @mm.compile
        def step(x: Any, i: int) -> None:
            fixed, moved = mm.arange(100) * 2 + 1, mm.arange(50) * 2 * i
            v.assign(v + mm.sum(mm.take(x, fixed)) + mm.sum(mm.take(x, moved)))

        step(mm.arange(200.0), 2)
        checks = step._last_used.runs.compiled.number_checks
        assert [x.nbytes for x in checks._fixed[1].values() if x.ndim] == [50 * 8]
        assert len(runs) == 2
        step(mm.arange(200.0), 1)
        assert runs[2:] == [2]
        with pytest.raises(IndexError):
            step(mm.arange(200.0), 5)
        step(mm.arange(200.0), 0)
        assert v.numpy().tolist() == [3 * 100**2 + 3 * 49 * 50] * 2


def test_the_worker_of_this_process_checks_results_itself() -> None:
    """Its kernels fail at once, before anything is overwritten by a program without targets."""
    v = mm.variable("v", 0.0)

    def read(x: Any, i: Any) -> Any:
        return mm.sum(mm.take(x, mm.arange(3) + i))

    def step(x: Any, i: Any) -> None:
        v.assign(read(x, i))

    for pool, function, is_checked in (
        (("planned", 1), read, False), (("planned", 1), step, True), (("shared", 2), read, True)
    ):  # fmt: skip
        with current(*pool):
            v.assign(0.0)
            compiled = mm.compile(function)
            compiled(mm.arange(5.0), 1)
            with pytest.raises(IndexError):
                compiled(mm.arange(5.0), 3)
            checks = compiled._last_used.runs.compiled.number_checks
            assert (checks is not None) is is_checked


@pytest.mark.parametrize("kind", ["literal", "array", "sum"])
def test_an_index_that_is_always_out_of_range_changes_no_variable(pool: None, kind: str) -> None:
    outside = mm.asarray(N) if kind == "array" else N
    count = mm.variable("count", mm.zeros(3))

    @mm.compile
    def step(x: Any) -> Any:
        count.assign(count + 1)
        return mm.take(x, outside + mm.asarray(1) if kind == "sum" else outside)

    for _ in range(2):
        with pytest.raises(IndexError):
            mm.evaluate(step(mm.arange(float(N))), wait=True)
        assert count.numpy().tolist() == [0.0] * 3


@pytest.mark.parametrize("way", ["fit", "minimize", "loop"])
def test_steps_with_known_parameters_copy_no_variables(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Gamma numbers with a shape that is known, and powers of integers."""
    fallible: list[bool] = []

    def record(*arguments: Any, can_fail: bool) -> Any:
        fallible.append(can_fail)
        return overwrite(*arguments, can_fail=can_fail)

    for module in (step_programs, minimizing, uncompiled_loops):
        monkeypatch.setattr(module, "overwrite", record)
    with current("shared", 2):
        w = mm.variable("w", mm.ones(3))

        def loss(y: Any = 0.0, targets: Any = 0.0) -> Any:
            noise = mm.random.gamma(2.0, size=3) * mm.sum(mm.arange(3) ** 2)
            return mm.sum(mm.square(w * noise)) + mm.sum(y) + mm.sum(targets)

        def body(i: Any, x: Any) -> Any:
            w.assign(w * 0.5 + 0 * loss())
            return x + 1.0

        if way == "fit":
            net = mm.nn.NeuralNetwork([mm.nn.Dense(3)], loss=loss)
            net.fit(np.ones((8, 3), np.float32), np.ones((8, 3), np.float32), epochs=1)
        elif way == "minimize":
            mm.optim.GradientDescent(0.01).minimize(loss(), [w], steps=2)
        else:
            mm.fori_loop(0, 3, body, mm.zeros(3))
    assert fallible
    assert not any(fallible)

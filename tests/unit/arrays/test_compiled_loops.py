"""`while_loop` in compiled functions, which are divided into programs at their loops, against the
same functions in NumPy and against eager calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath.errors import MagmathError, RangeError, ShapeError, TracingError
from random_flow import numpy_value, random_function

POOLS = [("inline", 1), ("eager", 2), ("planned", 1), ("shared", 2)]
few = settings(
    max_examples=4,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


def close(actual: Any, expected: Any, rtol: float = 1e-9) -> None:
    np.testing.assert_allclose(mm.asarray(actual).numpy(), expected, rtol=rtol, atol=1e-12)


def random_loops(draw: np.random.Generator) -> Callable[[Any, Any, Any], Any]:
    """Return a function of several loops with other operations before, in and after them."""
    f, g, h = (random_function(draw, 2) for _ in range(3))
    c, limit = draw.normal(), abs(draw.normal()) * 9
    is_nested, uses_first = draw.random() < 0.5, draw.random() < 0.5

    def function(xp: Any, x: Any, w: Any) -> Any:
        before = f(xp, x, w)

        def inner(y: Any) -> Any:
            grown = xp.while_loop(lambda s: xp.sum(s * s) < limit, lambda s: s * 2 + c + w / 8, y)
            return grown / 3 + before / 8

        def body(s: Any) -> Any:
            y, n = s
            y = inner(y) if is_nested else y / 2 + xp.tanh(g(xp, y, w))
            return y, n + 1

        y, n = xp.while_loop(lambda s: s[1] < 3, body, (xp.tanh(before), xp.sum(x * 0)))
        last = xp.while_loop(lambda s: xp.sum(s) > c, lambda s: s - 0.5 - w * w, y)
        rest = before if uses_first else x
        return last + h(xp, y, w) / 4 + n * rest

    return function


@pytest.mark.parametrize(("kind", "workers"), POOLS)
@given(seed=st.integers(0, 1 << 30))
@example(seed=0)
@example(seed=2661195)  # a node of the body, of numbers alone, whose inputs are evaluated later
@example(seed=510510)  # a gradient through a loop, an input of which other operations read too
@example(seed=93264661)  # a gradient rule with an array of numbers alone, in one pool after another
@few
def test_random_functions_with_loops(kind: str, workers: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    f = random_loops(draw)
    xs, w = draw.normal(size=(3, 3)), draw.normal(size=3)
    values = [numpy_value(f, x, w)[0] for x in xs]
    with current(kind, workers):
        weight = mm.variable("w", w)
        by_argument = mm.compile(lambda x, w: f(mm, x, w))
        by_variable = mm.compile(lambda x: f(mm, x, weight))
        batch = mm.compile(mm.vmap(lambda x: f(mm, x, weight)))
        for x, value in zip(xs[:2], values[:2], strict=True):  # a trace, and a run of its programs
            a, b = mm.asarray(x), mm.asarray(w)
            close(by_argument(a, b), value)
            close(by_variable(a), value)
            eager = mm.grad(lambda x, w: mm.sum(f(mm, x, w)), (0, 1))(a, b)
            slopes = mm.grad(lambda x, w: mm.sum(by_argument(x, w)), (0, 1))(a, b)
            for one, other in zip(slopes, eager, strict=True):
                close(one, other.numpy(), 1e-7)
            result = mm.sum(by_variable(a))
            close(mm.grad(result, weight), eager[1].numpy(), 1e-7)
        close(batch(mm.asarray(xs)), np.stack(values))


def test_variables_and_random_numbers_are_states(every_pool: object) -> None:
    """A compiled function draws the numbers, and leaves the variables, of the same eager calls."""
    v, count = mm.variable("v", np.zeros(3)), mm.variable("count", 0)

    def walk(x: mm.Array, limit: float) -> mm.Array:
        start = mm.random.normal(size=(3,), dtype="float64")

        def step(y: mm.Array) -> mm.Array:
            v.assign(v + mm.abs(mm.random.normal(size=(3,), dtype="float64")))
            count.assign(count + 1)
            return y * x + v

        y = mm.while_loop(lambda y: mm.sum(v) < limit, step, start)
        v.assign(v + mm.random.uniform(dtype="float64"))
        mm.while_loop(lambda _: mm.random.uniform() < 0.7, lambda y: y, None)
        return y + v + mm.random.normal(size=(3,), dtype="float64")

    x, records = mm.asarray(np.array([0.5, -0.5, 0.25])), []
    for f in (walk, mm.compile(walk)):
        mm.random.seed(3)
        v.assign(np.zeros(3))
        count.assign(0)
        result = [f(x, limit).numpy() for limit in (9.0, 20.0, 20.0)]
        records.append([*result, v.numpy(), int(count), mm.random.normal(size=(2,)).numpy()])
    for eager, compiled in zip(*records, strict=True):
        np.testing.assert_allclose(compiled, eager, rtol=1e-12)


@pytest.mark.parametrize("name", ["GradientDescent", "Momentum", "Adam"])
def test_steps_of_optimizers(every_pool: object, name: str) -> None:
    """Training until the loss is small, in a compiled function."""
    records = []
    for run in (lambda f: f, mm.compile):
        w, optimizer = mm.variable("w", np.zeros(3)), getattr(mm.optim, name)(0.1)

        def body(loss: mm.Array, w: Any = w, optimizer: Any = optimizer) -> mm.Array:
            loss = mm.sum((w - 1) ** 2)
            optimizer.update({w: mm.grad(loss, w)})
            return loss

        def train(body: Any = body) -> mm.Array:
            start = mm.asarray(10.0, dtype="float64")
            return mm.while_loop(lambda loss: loss > 0.05, body, start)

        trained = run(train)
        records.append([float(trained()), float(trained()), w.numpy()])
    for one, other in zip(*records, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_what_functions_capture_and_update(every_pool: object) -> None:
    outside = mm.asarray(np.array([1.0, 2.0]))
    times = mm.variable("times", 2.0)

    def f(x: mm.Array, n: int, scale: float) -> Any:
        x += outside  # an argument, in place
        z = mm.while_loop(lambda s: s[0] < n, lambda s: (s[0] + 1, s[1] * scale + outside), (0, x))
        return {"same": x, "grown": z[1], "times": times, "n": z[0], "fixed": outside * 2}

    compiled = mm.compile(f)
    for add, n, scale in ((0.0, 3, 2.0), (1.0, 5, 0.5), (1.0, 0, 9.0)):
        outside += add  # traced again
        start = np.array([0.5, 0.25])
        x = mm.asarray(start.copy())
        actual = compiled(x, n, scale)
        expected = first = start + outside.numpy()
        for _ in range(n):
            expected = expected * scale + outside.numpy()
        close(x, first)
        close(actual["same"], first)
        close(actual["grown"], expected)
        close(actual["fixed"], outside.numpy() * 2)
        assert int(actual["n"]) == n
        x += 1
        times.assign(times + 1)
        close(actual["same"], first)  # a result of its own
        close(actual["times"], times.numpy() - 1)


def test_indices_of_examples_that_have_finished() -> None:
    """A step is not taken with the last states of other examples, which may be out of range."""
    following = mm.asarray(np.array([3, 0, 1, 4, -9]))

    def length(i: mm.Array) -> mm.Array:
        step = lambda s: (following[s[0]], s[1] + 1)  # noqa: E731
        return mm.while_loop(lambda s: s[0] >= 0, step, (i, mm.asarray(0)))[1]

    close(mm.compile(mm.vmap(length))(mm.arange(5)), [3, 4, 5, 2, 1])
    assert mm.compile(mm.vmap(length))(mm.arange(0)).shape == (0,)


def test_batches_of_batches_and_of_draws() -> None:
    def grow(a: mm.Array, b: mm.Array) -> mm.Array:
        return mm.while_loop(lambda s: s < a, lambda s: s * 2 + b, b)

    a, b = np.array([1.0, 5, 100]), np.array([0.5, 2])
    result = mm.compile(mm.vmap(mm.vmap(grow, (0, None)), (None, 0)))(mm.asarray(a), mm.asarray(b))
    close(result, [[1.5, 7.5, 127.5], [2, 6, 126]])

    def walk(x: mm.Array) -> tuple[mm.Array, mm.Array]:
        x = mm.while_loop(lambda s: mm.abs(s) < 3, lambda s: s + mm.random.normal(), x)
        return x, mm.random.normal()

    mm.random.seed(1)
    batch = mm.compile(mm.vmap(walk))
    result = [*batch(mm.zeros(40)), *batch(mm.zeros(40))]
    assert all(np.abs(x.numpy()).min() >= 3 for x in result[::2])
    numbers = np.concatenate([x.numpy() for x in result])
    assert len(np.unique(numbers)) == numbers.size  # no stream is drawn twice


@pytest.mark.parametrize("size", [0, 1, 3])
def test_draws_that_follow_a_batch_of_any_size(size: int) -> None:
    @mm.compile
    def f(xs: mm.Array) -> Any:
        ys = mm.vmap(
            lambda x: mm.while_loop(lambda v: v < 1, lambda v: v + 2 * mm.random.uniform(), x)
        )(xs)
        return ys, mm.random.normal(shape=3)

    results = [f(mm.zeros(size)) for _ in range(2)]
    assert all(ys.shape == (size,) and bool(mm.all(ys >= 1)) for ys, _ in results)
    assert results[0][1].tolist() != results[1][1].tolist()


def test_errors_in_a_step_change_nothing(every_pool: object) -> None:
    v, table = mm.variable("v", 0.0), mm.arange(4)

    @mm.compile
    def f(i: mm.Array) -> mm.Array:
        v.assign(v + 1)
        return mm.while_loop(lambda i: i >= 0, lambda i: table[i] + 2, i) + v

    with pytest.raises((MagmathError, IndexError), match="index"):
        f(mm.asarray(1)).numpy()
    assert float(v) == 0


@pytest.mark.parametrize("has_variable", [False, True])
@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_arguments_keep_their_values_if_the_last_program_fails(
    kind: str, workers: int, has_variable: bool
) -> None:
    with current(kind, workers):
        count = mm.variable("count", 0)

        @mm.compile
        def f(a: Any, b: Any, i: Any) -> None:
            n = mm.while_loop(lambda k: k < 2, lambda k: k + 1, mm.asarray(0))
            if has_variable:
                count.assign(count + 1)
            a += 1
            b += b[i * n]  # the indices are known after the loop

        a, b, i = mm.ones(4), mm.ones(40_000), mm.asarray(np.full(40_000, 10**6))
        with pytest.raises(IndexError):
            f(a, b, i)
        assert (int(count), float(a[0]), float(b[0])) == (0, 1.0, 1.0)
        f(a, b, i * 0)
        assert (int(count), float(a[0]), float(b[0])) == (int(has_variable), 2.0, 2.0)


def test_explanations_list_all_programs() -> None:
    @mm.compile
    def f(x: mm.Array) -> mm.Array:
        return mm.exp(mm.while_loop(lambda s: mm.sum(s) < 9, lambda s: mm.cosh(s) * x, mm.sin(x)))

    with pytest.raises(MagmathError, match="call the compiled function first"):
        f.explain()  # type: ignore[attr-defined]
    f(mm.ones(3))
    text = str(f.explain())  # type: ignore[attr-defined]
    assert "3 programs" in text
    for name in ("sin", "cosh", "exp"):
        assert f"{name}(" in text


def _loop(x: mm.Array) -> mm.Array:
    return mm.while_loop(lambda s: s < 3, lambda s: s * 2, x)


@pytest.mark.parametrize(
    ("function", "error", "text"),
    [
        (lambda x: mm.grad(_loop)(x), MagmathError, "grad: .*while_loop.*fori_loop"),
        (lambda x: mm.cond(x > 0, _loop, lambda x: x, x), TracingError, "while_loop: .*vmap"),
        (lambda x: mm.remat(_loop)(x), TracingError, "while_loop: .*vmap"),
        (
            lambda x: mm.while_loop(lambda s: s < 3, lambda s: mm.stack([s]), x),
            ShapeError,
            "while_loop: the body",
        ),
    ],
)
def test_where_loops_cannot_be(
    function: Callable[[mm.Array], Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        mm.compile(function)(mm.asarray(1.0))


def test_integers_must_fit(every_pool: object) -> None:
    def f(x: mm.Array, n: int) -> mm.Array:
        return mm.while_loop(lambda s: s[0] < 1, lambda s: s * 2 + n, x)

    x = mm.asarray(np.zeros(2, "int8"))
    assert mm.compile(f)(x, 100).numpy().tolist() == [100, 100]
    with pytest.raises(RangeError):
        mm.compile(f)(x, 1000)

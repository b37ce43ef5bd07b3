"""Long loops are nodes of the graph: their gradients are loops, and compiled functions run them as
programs of their own. Results and gradients equal those of the same loops unrolled."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import magmath as mm
from magmath.ops import counted_loops
from magmath.transform import traced_loop

STEPS, WIDTH = 4, 3


@contextmanager
def limits(operations: int) -> Iterator[None]:
    """Unroll loops of up to this many operations."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(counted_loops, "MAX_UNROLLED", operations)
        patch.setattr(traced_loop, "MIN_TRACED_STEPS", 1)
        yield


def recurrent(w: mm.Array, xs: mm.Array, h: mm.Array, reverse: bool) -> Any:
    """A state that all steps use, one that is only carried, a captured matrix, and two results."""

    def step(state: Any, x: mm.Array) -> Any:
        h, total, count = state
        following = mm.tanh(h @ w + x)
        return (following, total + mm.sum(following * x), count + 1), (following, following[0] * h)

    start = (h, mm.sum(h) * 0, mm.asarray(0))
    (last, total, count), (ys, parts) = mm.scan(step, start, xs, reverse=reverse)
    return mm.sum(last * last) + total * 0.5 + mm.sum(ys * ys * xs) + mm.sum(parts), count


def unused_state(w: mm.Array, xs: mm.Array, h: mm.Array, reverse: bool) -> Any:
    """A state that depends on nothing but what the steps read, and one that never changes."""

    def step(state: Any, x: mm.Array) -> Any:
        running, same = state
        return (running * 0.5 + x, same), running * mm.sum(same @ w)

    (last, same), ys = mm.scan(step, (mm.zeros((WIDTH,), dtype=xs.dtype), h), xs, reverse=reverse)
    return mm.sum(last**3) + mm.sum(ys) + mm.sum(same), mm.asarray(STEPS)


def counted(w: mm.Array, xs: mm.Array, h: mm.Array, reverse: bool) -> Any:
    """`fori_loop` with rows by the number of the step, and an update of a slice."""

    def body(i: Any, state: Any) -> Any:
        h, table = state
        h = mm.sin(h @ w) * (i + 1.0) + xs[i]
        table[i] = h * h
        return h, table

    last, table = mm.fori_loop(0, STEPS, body, (h, mm.zeros((STEPS, WIDTH), dtype=xs.dtype)))
    return mm.sum(last) + mm.sum(mm.cos(table)), mm.asarray(STEPS)


def nested(w: mm.Array, xs: mm.Array, h: mm.Array, reverse: bool) -> Any:
    """A loop in each step, and a second loop over the results of the first one."""

    def step(h: mm.Array, x: mm.Array) -> Any:
        inner = mm.fori_loop(0, 2, lambda i, z: mm.tanh(z @ w) + x, h)
        return inner, inner * inner

    last, ys = mm.scan(step, h, xs, reverse=reverse)
    again, zs = mm.scan(lambda c, y: (c * mm.cos(y), c), last, ys)
    return mm.sum(again) + mm.sum(zs * zs), mm.asarray(STEPS)


def recomputed(w: mm.Array, xs: mm.Array, h: mm.Array, reverse: bool) -> Any:
    """A step whose intermediate values are recomputed."""
    cell = mm.remat(lambda h, x: mm.tanh(mm.sin(h @ w) + x))
    last, ys = mm.scan(lambda h, x: (cell(h, x), h), h, xs, reverse=reverse)
    return mm.sum(last) + mm.sum(ys * xs), mm.asarray(STEPS)


Loss = Callable[..., Any]


def arguments(dtype: str) -> list[mm.Array]:
    draw = np.random.default_rng(5)
    shapes = ((WIDTH, WIDTH), (STEPS, WIDTH), (WIDTH,))
    return [mm.asarray(draw.normal(size=shape).astype(dtype)) for shape in shapes]


def values_of(loss: Loss, reverse: bool, compiled: bool) -> list[np.ndarray[Any, Any]]:
    """Return the value, the gradients, and the gradient of the squares of these."""

    def first(w: mm.Array, xs: mm.Array, h: mm.Array) -> Any:
        value, count = loss(w, xs, h, reverse)
        gradients = mm.grad(value, [w, xs, h], create_graph=True)
        penalty = sum(mm.sum(g * g) for g in gradients)
        return [value, count, *gradients, *mm.grad(penalty, [w, xs, h])]

    function = mm.compile(first) if compiled else first
    results = function(*arguments("float64"))
    mm.evaluate(*results)  # as one program
    return [x.numpy() for x in results]


FORWARDS = [("forwards", "eager"), ("forwards", "compiled")]
BACKWARDS = [("backwards", "eager"), ("backwards", "compiled")]
BOTH = [("forwards", "eager"), ("backwards", "compiled")]
WAYS: dict[Loss, list[tuple[str, str]]] = {
    recurrent: [*FORWARDS, *BACKWARDS],
    unused_state: BOTH,
    counted: FORWARDS,  # it has no direction
    nested: BOTH,
    recomputed: BOTH,
}


@pytest.mark.parametrize(
    ("loss", "direction", "way"), [(loss, *way) for loss, ways in WAYS.items() for way in ways]
)
def test_long_loops_equal_unrolled_ones(
    loss: Loss, direction: str, way: str, every_pool: object
) -> None:
    """First and second gradients, on every pool."""
    reverse, compiled = direction == "backwards", way == "compiled"
    with limits(10**9):
        expected = values_of(loss, reverse, compiled)
    with limits(-1):
        actual = values_of(loss, reverse, compiled)
    for x, y in zip(actual, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-9)


HALF_STEPS: dict[str, Callable[[mm.Array, mm.Array], mm.Array]] = {
    "product": lambda w, x: x @ mm.astype(w, x.dtype),
    "product of rearranged": lambda w, x: x @ mm.reshape(mm.astype(w, x.dtype).T, (4, 4)),
    "factor": lambda w, x: mm.astype(w, x.dtype) * x,
    "summand": lambda w, x: mm.astype(w[0], x.dtype) + x,
    "recomputed": lambda w, x: mm.remat(lambda x: x @ mm.astype(w, x.dtype))(x),
}


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("form", HALF_STEPS)
def test_gradients_of_half_types_are_added_up_in_float32(
    form: str, dtype: str, compiled: bool
) -> None:
    """The numbers of one step are exact in a half type, in which their sum overflows or stops."""

    def loss(w: mm.Array, xs: mm.Array) -> mm.Array:
        def step(total: mm.Array, x: mm.Array) -> Any:
            return total + 64 * mm.sum(mm.astype(HALF_STEPS[form](w, x), mm.float32)), None

        return mm.scan(step, mm.asarray(0.0), xs)[0]

    def gradient(dtype: str) -> np.ndarray[Any, Any]:
        function = mm.compile(mm.grad(loss)) if compiled else mm.grad(loss)
        xs = mm.asarray(np.full((40, 4, 4), 17.0)).astype(dtype)
        return function(mm.full((4, 4), 0.5, dtype="float32"), xs).numpy()

    with limits(10**9):
        np.testing.assert_array_equal(gradient(dtype), gradient("float32"))
    with limits(-1):
        np.testing.assert_array_equal(gradient(dtype), gradient("float32"))


def test_loops_add_up_gradients_by_half_types_in_float32() -> None:
    """A part of 1 in each step, by an array that has a half type itself."""
    xs, w = mm.ones((512, 3), dtype="bfloat16"), mm.ones((3,), dtype="bfloat16")

    def loss(w: mm.Array) -> mm.Array:
        return mm.scan(lambda c, x: (c + mm.sum(x * w), None), mm.zeros((), "bfloat16"), xs)[0]

    with limits(-1):
        np.testing.assert_array_equal(mm.grad(loss)(w).astype("float32").numpy(), np.full(3, 512))


def test_gradients_by_variables_and_optimizers() -> None:
    """Training by long loops, eager and compiled, equals training by unrolled ones."""

    def trained(compiled: bool) -> np.ndarray[Any, Any]:
        w, xs, h = arguments("float64")
        v = mm.variable("v", w)
        adam = mm.optim.Adam(0.1)

        def step(xs: mm.Array, h: mm.Array) -> mm.Array:
            value, gradients = mm.value_and_grad(lambda: recurrent(v, xs, h, False)[0], [v])
            adam.update(gradients)
            return value

        run = mm.compile(step) if compiled else step
        losses = [float(run(xs, h)) for _ in range(4)]
        return np.array([*losses, *v.numpy().ravel()])

    with limits(10**9):
        expected = trained(compiled=False)
    with limits(-1):
        for compiled in (False, True):
            np.testing.assert_allclose(trained(compiled), expected, rtol=1e-9)


def test_compiled_loops_draw_and_assign_as_unrolled_ones() -> None:
    def run() -> list[Any]:
        total, draw = mm.variable("total", mm.zeros((2,))), mm.random.default_rng(3)

        @mm.compile
        def f(x: mm.Array) -> mm.Array:
            def step(c: mm.Array, row: mm.Array) -> Any:
                noise = draw.normal(size=(2,))
                total.assign(total + noise)
                return c + noise * row, noise

            last, noises = mm.scan(step, mm.zeros((2,)), x)
            return last + mm.sum(noises, axis=0)

        rows = mm.asarray(np.arange(10, dtype="float32").reshape(5, 2))
        return [f(rows).tolist(), f(rows).tolist(), total.tolist(), draw.normal(size=3).tolist()]

    with limits(10**9):
        expected = run()
    with limits(-1):
        actual = run()
    for x, y in zip(actual, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-6)


@pytest.mark.parametrize("reverse", [False, True], ids=["forwards", "backwards"])
def test_batches_of_long_loops(reverse: bool, every_pool: object) -> None:
    """`vmap` of loops, of their gradients, and of random numbers and shared states within them."""

    def run() -> list[Any]:
        w, xs, h = arguments("float64")
        batch = mm.stack([xs, xs * 2, -xs, xs + 1])
        total, draw = mm.variable("total", 0.0, dtype=mm.float64), mm.random.default_rng(3)

        def one(x: mm.Array, h: mm.Array) -> Any:
            def step(state: Any, row: mm.Array) -> Any:
                carried, count, _ = state
                total.assign(total + count)
                noise = draw.uniform(size=(WIDTH,), dtype=mm.float64)
                following = mm.tanh(carried @ w + row) * noise
                return (following, count + 1.0, count * row), (following, count, mm.sum(w) * row)

            start = (h, mm.zeros((), dtype=mm.float64), mm.zeros((WIDTH,), dtype=mm.float64))
            (last, count, late), (ys, counts, zs) = mm.scan(step, start, x, reverse=reverse)
            return mm.sum(last * ys[0]) + mm.sum(late + counts[1] * zs), (last, count, ys, counts)

        @mm.compile
        def f(batch: mm.Array, h: mm.Array) -> Any:
            batched = mm.vmap(mm.value_and_grad(one, argnums=(0, 1), has_aux=True), (0, None))
            (values, parts), gradients = batched(batch, h)
            return [values, *parts, *gradients, mm.grad(mm.sum(values), h)]

        actual = [x.numpy() for _ in range(2) for x in f(batch, h)]
        return [*actual, float(total), draw.normal(size=3).numpy()]

    with limits(10**9):
        expected = run()
    with limits(-1):
        actual = run()
    for x, y in zip(actual, expected, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)


def test_bodies_that_need_python_numbers_are_unrolled() -> None:
    weights = [mm.asarray(float(i)) for i in range(4)]
    table = mm.zeros((4,))

    @mm.compile
    def f(x: mm.Array) -> mm.Array:
        out = mm.copy(table)

        def body(i: int, z: mm.Array) -> mm.Array:
            out[i] = z
            return z * weights[i] if i % 2 else z + 1

        return mm.fori_loop(0, 4, body, x) + mm.sum(out)

    with limits(-1):
        assert float(f(mm.asarray(2.0))) == 12 + (2 + 3 + 3 + 4)


def test_the_gradient_of_a_long_recurrent_network_is_a_loop() -> None:
    """A sequence of 2,000 steps: the unrolled gradient was refused, or planned for a minute."""
    net = mm.nn.Sequential(mm.nn.LSTM(4))
    x = mm.asarray(np.random.default_rng(0).normal(size=(2, 2000, 3)).astype("float32"))

    def loss() -> mm.Array:
        return mm.mean(net(x)[0] ** 2)

    loss()
    _, eager = mm.value_and_grad(loss, net.trainable())
    compiled = mm.compile(lambda: mm.value_and_grad(loss, net.trainable())[1])()
    for variable, gradient in eager.items():
        assert float(mm.max(mm.abs(gradient))) > 0
        np.testing.assert_allclose(
            gradient.numpy(), compiled[variable].numpy(), rtol=1e-3, atol=1e-7
        )


def test_gradients_by_an_array_that_was_converted_to_half_before_the_loop() -> None:
    @mm.compile
    def slopes(w: Any, xs: Any) -> Any:
        half = mm.astype(w, mm.bfloat16)

        def step(total: Any, x: Any) -> Any:
            return total + mm.sum(mm.astype(x @ half, mm.float32)), None

        total = mm.scan(step, mm.asarray(0.0, dtype=mm.float32), xs)[0]
        return mm.grad(total, half), mm.grad(total, w)

    w, xs = mm.ones((4, 4), dtype=mm.float32), mm.ones((512, 4, 4), dtype=mm.bfloat16)
    for slope, dtype in zip(slopes(w, xs), (mm.bfloat16, mm.float32), strict=True):
        assert slope.dtype is dtype
        np.testing.assert_array_equal(mm.astype(slope, mm.float32), np.full((4, 4), 2048))

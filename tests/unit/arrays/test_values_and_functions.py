"""The difference between values and functions of variables: copies, drawn data, named and printed
arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from engines import current
from magmath.errors import DTypeError, MagmathError, TracingError
from magmath.optim import Adam, GradientDescent
from magmath.runtime import Pool


def test_random_data_are_drawn_once(every_pool: Pool) -> None:
    """In steps on an expression of named arrays, which were not computed before."""
    ends = []
    for look in (False, True):
        mm.random.seed(3)
        x = mm.random.normal(0, 1, (16, 2))
        y = x @ mm.asarray([1.0, 2.0])
        if look:
            mm.evaluate(x, y)
        w = mm.variable("w", [0.0, 0.0])
        descent = GradientDescent(0.1)
        loss = mm.mean((x @ w - y) ** 2)
        values = [descent.minimize(loss, [w], steps=5), descent.minimize(loss, [w])]
        ends.append([*w.tolist(), *values])
    np.testing.assert_allclose(ends[0], ends[1], rtol=1e-5)


@pytest.mark.parametrize("look", [False, True])
def test_snapshots_of_variables_are_constants(every_pool: Pool, look: bool) -> None:
    w = mm.variable("w", 2.0)
    olds = [mm.asarray(w, copy=True), +w, w * 1, mm.stop_gradient(mm.asarray(w, copy=True))]
    w.assign(3.0)
    for old in olds:
        w.assign(3.0)
        loss = (w - old) ** 2
        assert not look or float(old) + float(loss) == 3.0
        assert GradientDescent(0.1).minimize(loss, [w]) == 1.0
        assert float(w) == pytest.approx(2.8)


def test_a_copy_of_the_present_value_is_a_constant(every_pool: Pool) -> None:
    """The proximal step: towards 1, and not too far from where it began."""
    w, theirs = mm.variable("w", 2.0), torch.tensor(2.0, requires_grad=True)
    optimizer = torch.optim.SGD([theirs], 0.1)
    old = mm.asarray(w, copy=True)
    loss = (w - 1) ** 2 + (w - old) ** 2
    assert float(mm.grad(loss, w)) == 2.0
    GradientDescent(0.1).minimize(loss, [w], steps=3)
    for _ in range(3):
        optimizer.zero_grad()
        ((theirs - 1) ** 2 + (theirs - 2.0) ** 2).backward()
        optimizer.step()
    assert float(w) == pytest.approx(theirs.item())


@pytest.mark.parametrize("look", [False, True])
def test_printing_does_not_change_what_is_minimized(every_pool: Pool, look: bool) -> None:
    v, w = mm.variable("v", 2.0), mm.variable("w", 1.0)
    h = v * 3.0
    if look:
        print(h)
    v.assign(5.0)
    loss = (h * w - 1) ** 2
    assert GradientDescent(0.01).minimize(loss, [w]) == 196.0  # with 15 for h
    assert float(h) == 6.0
    assert float(w) == pytest.approx(1 - 0.01 * 2 * 14 * 15)


@pytest.mark.parametrize("look", [False, True])
def test_printing_the_loss_changes_nothing(every_pool: Pool, look: bool) -> None:
    w, b = mm.variable("w", 2.0), mm.variable("b", 3.0)
    for _ in range(3):
        was = float(w), float(b)
        loss = mm.sum((w * b) ** 2)
        if look:
            print(float(loss))
        w -= 0.01 * mm.grad(loss, w)
        b -= 0.01 * mm.grad(loss, b)
        assert float(w) == pytest.approx(was[0] - 0.02 * was[0] * was[1] ** 2)
        assert float(b) == pytest.approx(was[1] - 0.02 * was[1] * was[0] ** 2)


def test_what_depends_on_no_variable_is_not_minimized() -> None:
    w = mm.variable("w", 2.0)
    for expression in (mm.sum(mm.ones(3)), mm.asarray(w, copy=True) * 2):
        with pytest.raises(MagmathError, match="depends on none of the variables"):
            GradientDescent(0.1).minimize(expression, [w])


@pytest.mark.parametrize("update", ["add", "write"])
def test_captured_arrays_that_are_computed_later_and_updated(every_pool: Pool, update: str) -> None:
    a = mm.ones(3) * 2
    f = mm.compile(lambda x: x + a)
    assert f(mm.ones(3)).tolist() == [3.0] * 3
    for i in range(3):
        print(a)
        if update == "add":
            a += 5
        else:
            a[:] = 2.0 + 5 * (i + 1)
        assert f(mm.ones(3)).tolist() == [8.0 + 5 * i] * 3


def test_captured_arrays_of_former_values_of_variables(every_pool: Pool) -> None:
    w = mm.variable("w", mm.ones(4))
    a, b = w * 2, w + 2
    row = b[:2]
    f = mm.compile(lambda x: x + a)

    def update(row: mm.Array) -> mm.Array:
        row += 1
        return mm.sum(b)

    g = mm.compile(update)
    for i in range(3):
        assert f(mm.ones(4)).tolist() == [3.0 + i] * 4
        assert float(g(row)) == 14.0 + 2 * i
        w.assign(w + 5.0)
        assert f(mm.ones(4)).tolist() == [3.0 + i] * 4
        a += 1


def test_one_array_given_twice_is_one_array() -> None:
    def update(a: mm.Array, b: mm.Array) -> mm.Array:
        a += b
        return a * b

    f = mm.compile(update)
    for values, expected in (((1.0, 1.0), 2.0), ((1.0, None), 4.0), ((1.0, 1.0), 2.0)):
        x = mm.asarray([values[0]])
        y = x if values[1] is None else mm.asarray([values[1]])
        assert f(x, y).tolist() == [expected]
        assert x.tolist() == [2.0]


def test_counts_of_steps_in_compiled_and_other_updates() -> None:
    """Of variables that are updated in the same steps at times, and in different steps at
    others."""
    with current("inline"):
        w, b = mm.variable("w", np.ones(2)), mm.variable("b", np.ones(2))
        adam = Adam(0.1)

        def both() -> mm.Array:
            loss = mm.sum(w * w * b) + mm.sum(b**3)
            slopes = mm.grad(loss, [w, b])
            adam.update({w: slopes[0], b: slopes[1]})
            return loss

        def single() -> mm.Array:
            loss = mm.sum(w**4)
            adam.update({w: mm.grad(loss, w)})
            return loss

        compiled = mm.compile(both), mm.compile(single)
        p, q = (torch.nn.Parameter(torch.ones(2, dtype=torch.float64)) for _ in range(2))
        theirs = torch.optim.Adam([p, q], 0.1)
        for step in range(9):
            alone = step % 3 == 1
            way = (
                (single if step % 2 else compiled[1])
                if alone
                else (both if step % 4 else compiled[0])
            )
            way()
            theirs.zero_grad()
            ((p**4).sum() if alone else (p * p * q).sum() + (q**3).sum()).backward()
            theirs.step()
            np.testing.assert_allclose(w.numpy(), p.detach().numpy(), rtol=1e-12)
            np.testing.assert_allclose(b.numpy(), q.detach().numpy(), rtol=1e-12)


def test_fit_sees_updates_in_place() -> None:
    with current("inline"):
        draw = np.random.default_rng(0)
        x = mm.asarray(draw.normal(size=(40, 3)).astype(np.float32))
        y = mm.asarray(draw.normal(size=(40, 1)).astype(np.float32))
        net = mm.nn.NeuralNetwork(
            [mm.nn.Dense(1)], loss="mean_squared_error", optimizer=GradientDescent(1e-6)
        )
        net.fit(x, y, epochs=1)
        x *= 0
        y *= 0
        y += 3
        history = net.fit(x, y, epochs=1)
        assert history.records[0].loss == pytest.approx(net.evaluate(x, y)["loss"], rel=1e-3)


def test_generators_made_in_compiled_functions_begin_anew() -> None:
    def drawn(x: mm.Array) -> mm.Array:
        return mm.random.Generator(3).normal(shape=(2,)) + x

    f, x = mm.compile(drawn), mm.zeros(2)
    assert f(x).tolist() == f(x).tolist() == drawn(x).tolist()
    with pytest.raises(TracingError, match=r"random\.seed: a compiled function"):
        mm.compile(lambda x: (mm.random.seed(5), x)[1])(x)


def test_draws_of_steps_come_in_the_order_of_the_lines() -> None:
    def loss(w: mm.Variable, first: Any, second: Any) -> mm.Array:
        z1, z2 = first.normal(shape=(2,)), second.normal(shape=(2,))
        return mm.sum((w * z2 - z1) ** 2)

    with current("inline"):
        descent = GradientDescent(0.1)
        for pair in ((0, 0), (0, 1), (1, 0)):
            ends = []
            for at_once in (True, False):
                generators = [mm.random.Generator(i) for i in range(2)]
                w = mm.variable("w", np.ones(2))
                sources = [generators[i] for i in pair]
                if at_once:
                    descent.minimize(loss(w, *sources), [w], steps=3)
                else:
                    for _ in range(3):
                        descent.minimize(loss(w, *sources), [w])
                ends.append([*w.tolist(), *generators[0].normal(shape=(2,)).tolist()])
            np.testing.assert_allclose(ends[0], ends[1], rtol=1e-6)


def test_assignment_does_not_narrow_integers() -> None:
    v = mm.variable("v", [1, 2], dtype="int8")
    with pytest.raises(DTypeError, match=r"variable v is int8, .* int64 and lose.*mm\.int8"):
        v.assign(mm.asarray([1000, 2]))
    v.assign(mm.asarray([100, 2], dtype="int8"))
    assert v.tolist() == [100, 2]


@pytest.mark.parametrize("look", ["never", "often"])
def test_long_loops_on_plain_arrays_have_gradients(look: str) -> None:
    """Two arrays, as in any descent by hand; and a recurrence of thousands of operations."""
    with current("inline"):
        a, b = mm.ones(3), mm.zeros(())
        counterpart, offset = np.ones(3), 0.0
        for k in range(500):
            loss = mm.sum((a * 2 + b - 2) ** 2)
            slope_a, slope_b = mm.grad(loss, [a, b])
            a = a - 0.01 * slope_a
            b = b - 0.01 * slope_b
            if look == "often" and k % 7 == 0:
                print(loss)
            error = counterpart * 2 + offset - 2
            counterpart, offset = counterpart - 0.04 * error, offset - 0.02 * error.sum()
        np.testing.assert_allclose(a.numpy(), counterpart, rtol=1e-4)
        w, start = mm.asarray([0.5]), mm.asarray([0.0])
        other, state = torch.tensor([0.5], dtype=torch.float64, requires_grad=True), torch.zeros(1)
        w, h = mm.astype(w, "float64"), mm.astype(start, "float64")
        for k in range(1500):
            h, state = mm.tanh(h * w + 0.1), torch.tanh(state * other + 0.1)
            if look == "often" and k % 100 == 0:
                print(h)
        state.sum().backward()
        assert other.grad is not None
        np.testing.assert_allclose(mm.grad(mm.sum(h), w).numpy(), other.grad.numpy(), rtol=1e-9)


def test_gradients_of_results_of_compiled_functions(every_pool: Pool) -> None:
    w = mm.variable("w", [2.0, 3.0])
    f = mm.compile(lambda x: mm.sum(x * w * w))
    assert mm.grad(f(mm.ones(2)), w).tolist() == [4.0, 6.0]
    result = f(mm.ones(2))
    w += 1
    assert mm.grad(result, w).tolist() == [4.0, 6.0]


def test_traced_arrays_are_printed_without_values(capsys: pytest.CaptureFixture[str]) -> None:
    """`print` is how a function is examined, so it must not stop the function."""
    w = mm.variable("w", [1.0, 2.0])

    @mm.compile
    def f(x: Any) -> Any:
        print(x)
        print(f"{mm.sum(x)} {[x, w]}")
        return 2 * x

    assert f(mm.ones(3)).numpy().tolist() == [2, 2, 2]
    shown = "<magmath.Array of shape {} float32: traced, without a value>"
    vector, scalar, pair = (shown.format(s) for s in ("(3,)", "()", "(2,)"))
    assert capsys.readouterr().out == f"{vector}\n{scalar} [{vector}, {pair}]\n"


USES: dict[str, Any] = {
    "values": lambda x: x.numpy(),
    "sum": lambda x: float(mm.sum(x)),
    "argument": lambda x: mm.compile(lambda y: 2 * y)(x),
    "captured": lambda x: mm.compile(lambda y: x + y)(mm.ones(3)),
    "gradient": lambda x: mm.grad(mm.sum(x * x), x).numpy(),
    "variable": lambda x: mm.variable("from x", x),
    "layout": lambda x: x.layout,
}


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("which", [0, 1])
def test_an_array_that_a_traced_function_has_stored_elsewhere_has_no_value(
    use: str, which: int
) -> None:
    stored: list[Any] = []

    @mm.compile
    def f(x: Any) -> Any:
        stored.extend((x, mm.sin(x)))
        return 2 * x

    f(mm.ones(3))
    twice = mm.compile(lambda y: 2 * y)
    twice(mm.ones(3))
    with pytest.raises(TracingError, match="stored outside of the function.*return it from"):
        twice(stored[which]) if use == "argument" else USES[use](stored[which])
    assert "without a value" in repr(stored[which])

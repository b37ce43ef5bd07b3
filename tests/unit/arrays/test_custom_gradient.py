"""Functions with gradients of their own, against derived gradients and PyTorch's `autograd.Function`.

`test_random_flow.py` has them in random functions with branches and loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from engines import current
from magmath.errors import DTypeError, MagmathError, ShapeError, TracingError

DRAW = np.random.default_rng(0)
X, W = DRAW.normal(size=(3, 4)), DRAW.normal(size=(4, 4))
Wrapped = Callable[[Callable[..., Any]], Callable[..., Any]]


@pytest.fixture(params=[("inline", 1), ("planned", 1), ("shared", 2), ("messages", 3)], ids=str)
def _pool(request: pytest.FixtureRequest) -> Iterator[None]:
    with current(*request.param):
        yield


@pytest.fixture(params=[False, True], ids=["eager", "compiled"])
def wrapped(request: pytest.FixtureRequest) -> Wrapped:
    return mm.compile if request.param else lambda f: f


in_all_pools = pytest.mark.usefixtures("_pool")


@mm.custom_gradient
def straight_through(x: Any) -> Any:
    return mm.round(x), lambda g: g


@mm.custom_gradient
def clipped(x: Any, bound: float = 1.0) -> Any:
    return x, lambda g: (mm.clip(g, -bound, bound), None)


@mm.custom_gradient
def turned(x: Any, *, factor: float = 1.0) -> Any:
    return x, lambda g: -factor * g


@mm.custom_gradient
def softplus(x: Any) -> Any:
    power = mm.exp(x)
    return mm.log1p(power), lambda g: g * (1 - 1 / (1 + power))


def derived_softplus(x: Any) -> Any:
    return mm.log1p(mm.exp(x))


@mm.custom_gradient
def layer(p: Any, x: Any) -> Any:
    """Nested arguments and two results, of which one may be unused."""
    y = mm.tanh(x @ p["w"]) + p["b"]

    def pullback(g: Any) -> Any:
        first, second = g
        slope = (first + 2 * second * y) * (1 - (y - p["b"]) ** 2)
        both = first + 2 * second * y
        return {"w": x.T @ slope, "b": mm.sum(both, axis=0)}, slope @ p["w"].T

    return (y, y**2), pullback


def derived_layer(p: Any, x: Any) -> Any:
    y = mm.tanh(x @ p["w"]) + p["b"]
    return y, y**2


def same(actual: Any, expected: Any) -> None:
    if isinstance(expected, dict):
        actual, expected = list(actual.values()), list(expected.values())
    if isinstance(expected, (tuple, list)):
        for one, other in zip(actual, expected, strict=True):
            same(one, other)
    else:
        np.testing.assert_allclose(actual.numpy(), np.asarray(expected), rtol=1e-9, atol=1e-11)


@in_all_pools
def test_the_rule_replaces_the_derived_gradient(wrapped: Wrapped) -> None:
    x = mm.asarray(3 * X)
    same(wrapped(straight_through)(x), np.round(3 * X))
    rules = {
        straight_through: 2 * np.round(3 * X),
        clipped: np.clip(6 * X, -1, 1),
        lambda x: clipped(x, bound=0.5): np.clip(6 * X, -0.5, 0.5),
        lambda x: turned(x, factor=2.0): -12 * X,
    }
    for function, expected in rules.items():
        slope = mm.grad(lambda x, f=function: mm.sum(f(x) ** 2))
        same(wrapped(slope)(x), expected)
        same(wrapped(mm.vmap(slope))(x), expected)
        same(wrapped(mm.vmap(mm.vmap(slope)))(x), expected)
        again = mm.grad(lambda x, f=function: mm.sum(mm.remat(f)(x) ** 2))
        same(wrapped(again)(x), expected)


@in_all_pools
@pytest.mark.parametrize("kind", ["whole", "first", "second"])
def test_nested_arguments_and_several_results(wrapped: Wrapped, kind: str) -> None:
    """To the second order, in batches that share one of the arguments."""
    p, x = {"w": mm.asarray(W), "b": mm.asarray(W[0])}, mm.asarray(X)
    batch = mm.asarray(DRAW.normal(size=(5, 3, 4)))

    def slopes(f: Any) -> list[Callable[..., Any]]:
        def loss(p: Any, x: Any) -> Any:
            y, z = f(p, x)
            parts = {"whole": y * z, "first": y * x, "second": z**2}
            return mm.sum(parts[kind])

        first = mm.grad(loss, argnums=(0, 1))

        def norm(p: Any, x: Any) -> Any:
            by_p, by_x = first(p, x)
            return mm.sum(by_p["w"] ** 2) + mm.sum(by_p["b"] ** 3) + mm.sum(by_x**2)

        second = mm.grad(norm, argnums=(0, 1))
        in_batch = mm.vmap(loss, in_axes=(None, 0))
        total = mm.grad(lambda p, x: mm.sum(in_batch(p, x) ** 2), argnums=(0, 1))
        return [
            *[lambda f=f: wrapped(f)(p, x) for f in (first, second)],
            *[
                lambda f=f: wrapped(mm.vmap(f, in_axes=(None, 0)))(p, batch)
                for f in (first, second)
            ],
            lambda: wrapped(total)(p, batch),
        ]

    for ours, derived in zip(slopes(layer), slopes(derived_layer), strict=True):
        same(ours(), derived())


@pytest.mark.parametrize("outer", [(0, None), (None, 0), (0, 0)])
@pytest.mark.parametrize("inner", [(0, None), (None, 0), (0, 0)])
@pytest.mark.parametrize("sizes", [(3, 3), (3, 2)])
def test_batches_of_batches_that_share_arguments(
    outer: Any, inner: Any, sizes: tuple[int, int], wrapped: Wrapped
) -> None:
    def derived(a: Any, b: Any) -> Any:
        return mm.sum(a * b**2)

    @mm.custom_gradient
    def ours(a: Any, b: Any) -> Any:
        return derived(a, b), lambda g: (g * b**2, 2 * g * a * b)

    draw = np.random.default_rng(1)
    batches = [
        [size for size, axes in zip(sizes, (outer, inner), strict=True) if axes[i] == 0]
        for i in (0, 1)
    ]
    a, b = (mm.asarray(draw.normal(size=(*batch, 4))) for batch in batches)
    factors = mm.asarray(draw.normal(size=sizes))

    def slopes(f: Any) -> Any:
        pairs = mm.vmap(mm.vmap(f, inner), outer)
        total = mm.grad(lambda a, b: mm.sum(pairs(a, b) * factors), argnums=(0, 1))
        squares = mm.grad(lambda a, b: sum(mm.sum(x**2) for x in total(a, b)), argnums=(0, 1))
        return lambda a, b: [*total(a, b), *squares(a, b)]

    same(wrapped(slopes(ours))(a, b), wrapped(slopes(derived))(a, b))


@in_all_pools
def test_derivatives_of_all_kinds(wrapped: Wrapped) -> None:
    """Products, matrices, loops (also long ones, which run as loops), third derivatives."""
    x = mm.asarray(X[0])

    def derivatives(f: Any) -> list[Callable[..., Any]]:
        def scanned(x: Any) -> Any:
            rows = mm.stack([x, 2 * x, x / 3])
            last, ys = mm.scan(lambda h, row: (f(h / 2 + row), h * row), x, rows)
            return mm.sum(last) + mm.sum(ys)

        def repeated(x: Any) -> Any:
            return mm.sum(mm.fori_loop(0, 400, lambda i, h: f(h / 2 + x), x))

        third = mm.jacobian(mm.jacobian(mm.jacobian(f)))
        chosen = mm.grad(
            lambda x: mm.cond(x[0] > 0, lambda: mm.sum(f(x) ** 2), lambda: mm.sum(mm.sqrt(x)))
        )
        return [
            third, lambda x: mm.jvp(f, (x,), (x**2,))[1], lambda x: mm.vjp(f, x)[1](x)[0],
            mm.grad(scanned), mm.hessian(scanned), mm.grad(repeated), chosen,
        ]  # fmt: skip

    for ours, derived in zip(derivatives(softplus), derivatives(derived_softplus), strict=True):
        same(wrapped(ours)(x), derived(x).numpy())


@in_all_pools
@pytest.mark.parametrize("steps", [3, 400])
def test_an_argument_may_be_the_same_in_all_steps_of_a_loop(wrapped: Wrapped, steps: int) -> None:
    """What the function computes from it alone still depends on it through the argument."""

    @mm.custom_gradient
    def shifted(x: Any, y: Any) -> Any:
        return x / 2 - mm.sin(y), lambda g: (g / 2, -g * mm.cos(y))

    def repeated(step: Callable[..., Any]) -> Callable[..., Any]:
        return mm.grad(lambda x: mm.sum(mm.fori_loop(0, steps, lambda i, h: step(h, x), x)))

    x = mm.asarray(X[0])
    derived = repeated(lambda h, y: h / 2 - mm.sin(y))(x)
    same(wrapped(repeated(shifted))(x), derived.numpy())


@in_all_pools
def test_gradients_of_evaluated_results() -> None:
    x, v = mm.asarray(X), mm.variable("v", X)
    slope = 1 / (1 + np.exp(-X))
    compiled = mm.compile(softplus)
    for _ in range(4):
        for given in (x, v):
            for function in (softplus, compiled):
                y = function(given)
                z = 2 * y
                z.numpy()
                y.numpy()
                same(mm.grad(mm.sum(z), given), 2 * slope)


@in_all_pools
def test_training_steps_of_pytorch(wrapped: Wrapped) -> None:
    """A network with rounded weights and binary activations."""

    class Binary(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return torch.sign(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * (x.abs() <= 1)

    class Rounded(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return torch.round(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g

    @mm.custom_gradient
    def binary(x: Any) -> Any:
        return mm.sign(x), lambda g: mm.where(mm.abs(x) <= 1, g, 0)

    first, second = W / 2, W[:, :2]
    ours = [mm.variable("first", first), mm.variable("second", second)]
    theirs = [torch.tensor(first, requires_grad=True), torch.tensor(second, requires_grad=True)]
    adam, torch_adam = mm.optim.Adam(1e-2), torch.optim.Adam(theirs, 1e-2)

    def step(x: Any) -> Any:
        def loss() -> Any:
            return mm.sum((binary(x @ (straight_through(ours[0] * 8) / 8)) @ ours[1] - 1) ** 2)

        value, gradients = mm.value_and_grad(loss, ours)
        adam.update(gradients)
        return value

    step = wrapped(step)
    for _ in range(4):
        x = DRAW.normal(size=(6, 4))
        hidden = torch.tensor(x) @ (Rounded.apply(theirs[0] * 8) / 8)
        loss = torch.sum((Binary.apply(hidden) @ theirs[1] - 1) ** 2)
        torch_adam.zero_grad()
        loss.backward()
        torch_adam.step()
        same(step(mm.asarray(x)), loss.item())
    for variable, tensor in zip(ours, theirs, strict=True):
        same(variable, tensor.detach().numpy())


@in_all_pools
def test_random_numbers_complex_numbers_and_integers() -> None:
    @mm.custom_gradient
    def dropped(x: Any) -> Any:
        kept = mm.random.uniform(size=x.shape) < 0.5
        return mm.where(kept, x, 0), lambda g: mm.where(kept, g, 0)

    slope = mm.value_and_grad(lambda x: mm.sum(dropped(x)))
    x = mm.asarray(X)
    for function in (slope, mm.compile(slope), lambda x: slope(mm.remat(lambda x: x)(x))):
        value, gradient = function(x)
        same(mm.sum(gradient * x), value.numpy())
    values, gradients = mm.vmap(slope)(x)
    same(mm.sum(gradients * x, axis=1), values.numpy())

    @mm.custom_gradient
    def exponential(z: Any) -> Any:
        y = mm.exp(z)
        return y, lambda g: g * mm.conj(y)

    z = mm.asarray(X + 1j * X[::-1])
    ours, derived = [
        mm.grad(lambda z, f=f: mm.sum(mm.abs(f(z) - 1) ** 2))(z) for f in (exponential, mm.exp)
    ]
    same(ours, derived.numpy())

    @mm.custom_gradient
    def largest(x: Any, count: Any) -> Any:
        place = mm.argmax(x, axis=-1)
        one = mm.nn.functional.one_hot(place, x.shape[-1], dtype=x.dtype)
        return (mm.max(x, axis=-1) * count, place), lambda g: (one * g[0][..., None] * count, None)

    same(mm.grad(lambda x: mm.sum(largest(x, mm.asarray(2))[0]))(x), 2 * (X.max(1)[:, None] == X))


def test_values_may_be_read_outside_of_traces() -> None:
    """An implicit function: Newton's method until it has converged."""

    @mm.custom_gradient
    def root(a: Any) -> Any:
        x = a
        while float(mm.max(mm.abs(x * x - a))) > 1e-12:
            x = (x + a / x) / 2
        return x, lambda g: g / (2 * x)

    with current("inline"):
        a = mm.asarray(np.abs(X) + 1)
        same(mm.grad(lambda a: mm.sum(root(a)))(a), 0.5 / np.sqrt(a.numpy()))
        same(mm.grad(mm.sum(root(a)), a), 0.5 / np.sqrt(a.numpy()))


def test_an_argument_without_a_gradient_is_independent() -> None:
    with current("inline"):
        v, other = mm.variable("v", X), mm.variable("other", X)
        without = mm.custom_gradient(lambda x: (2 * x, lambda g: None))
        adam = mm.optim.AdamW(0.1)
        loss = mm.sum(without(v) * other)
        adam.update(dict(zip([v, other], mm.grad(loss, [v, other]), strict=True)))
        same(v, X)
        assert not np.allclose(other.numpy(), X)


def test_what_a_rule_does_not_know_is_an_error() -> None:
    """A captured variable, also within recomputed functions; not if it counts as a constant."""
    with current("inline"):
        v, x = mm.variable("scale", np.float64(2)), mm.asarray(X)
        scaled = mm.custom_gradient(lambda x: (x * v, lambda g: g * v))
        same(mm.grad(mm.sum(scaled(x)), x), np.full(X.shape, 2.0))
        for function in (scaled, mm.remat(scaled), mm.compile(scaled)):
            with pytest.raises(MagmathError, match="variable scale through a function with"):
                mm.grad(mm.sum(function(x)), v)
        stopped = mm.custom_gradient(lambda x: (x * mm.stop_gradient(v), lambda g: g * v))
        same(mm.grad(mm.sum(stopped(x) * v), v), 2 * X.sum())
        same(mm.grad(mm.sum(mm.stop_gradient(scaled(x)) * v), v), 2 * X.sum())


@pytest.mark.parametrize(
    ("function", "error", "match"),
    [
        (lambda x: x, TypeError, "must return its value and its pullback.*returned one Array"),
        (lambda x: (x, x), TypeError, "must return its value and its pullback"),
        (lambda x: (x, lambda g: (g, g)), TypeError, "argument 0 must be nested like it"),
        (lambda x, y=1: (x, lambda g: g), TypeError, "each of the 2 positional arguments"),
        (lambda x: (x, lambda g: g[:2]), ShapeError, r"shape \(3, 4\) in argument 0"),
        (lambda x: (x, lambda g: g * 1j), DTypeError, "must be real"),
        (lambda x: (x, lambda g: g if g[0, 0] > 0 else -g), TracingError, "a value was requested"),
        (lambda x: ("a", lambda g: g), TypeError, "must return arrays"),
    ],
)
def test_errors(function: Any, error: type[Exception], match: str) -> None:
    with current("inline"), pytest.raises(error, match=match):
        mm.custom_gradient(function)(mm.asarray(X))


def test_wrong_uses() -> None:
    with current("inline"):
        with pytest.raises(TypeError, match="custom_gradient: needs a function, was given 3"):
            mm.custom_gradient(3)  # type: ignore[arg-type]
        v = mm.variable("v", 0.0)
        assigning = mm.custom_gradient(lambda x: (x, lambda g: (v.assign(1.0), g)[1]))
        with pytest.raises(MagmathError, match="the pullback assigns v"):
            assigning(mm.asarray(X))


def test_calls_are_written_to_onnx(tmp_path: Path) -> None:
    pytest.importorskip("onnx")
    with current("inline"):
        for function in (straight_through, mm.remat(straight_through)):
            model = mm.interop.to_onnx(function, tmp_path / "m.onnx", mm.asarray(X))
            assert {node.op_type for node in model.graph.node} <= {"Round", "Identity"}

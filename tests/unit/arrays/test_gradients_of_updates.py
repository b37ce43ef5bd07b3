"""Loops that use gradients in updates, as they are written for PyTorch: a gradient counts as a
constant in later ones, but for second derivatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from engines import current

RANDOM = np.random.default_rng(3)
POOLS = [("inline", 1), ("eager", 2), ("planned", 1), ("shared", 2)]
Arrays = list[np.ndarray[Any, Any]]


@pytest.fixture(autouse=True, params=POOLS, ids=lambda pool: f"{pool[0]}-{pool[1]}")
def pool(request: pytest.FixtureRequest) -> Iterator[None]:
    kind, workers = request.param
    with current(kind, workers):
        yield


class Torch:
    """PyTorch's functions under magmath's names; `grad` is that of `torch.autograd`."""

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)

    @staticmethod
    def asarray(x: Any) -> torch.Tensor:
        return torch.tensor(x, requires_grad=True)

    @staticmethod
    def grad(y: torch.Tensor, xs: Any, create_graph: bool | None = None) -> Any:
        result = torch.autograd.grad(y, xs, create_graph=bool(create_graph), retain_graph=True)
        return list(result) if isinstance(xs, list) else result[0]


def fit(xp: Any, u: Any, v: Any, x: Any) -> Any:
    return xp.mean((u @ v.T - x) ** 2)


def alternating(xp: Any, u: Any, v: Any, x: Any) -> list[Any]:
    """Two factors, each updated with the other one's new value."""
    for _ in range(4):
        u = u - 0.01 * xp.grad(fit(xp, u, v, x), u)
        v = v - 0.01 * xp.grad(fit(xp, u, v, x), v)
    return [u, v]


def momentum(xp: Any, u: Any, v: Any, x: Any) -> list[Any]:
    """Velocities and a clipped norm, read in each step."""
    a = b = 0.0
    for _ in range(4):
        g, h = xp.grad(fit(xp, u, v, x), [u, v])
        norm = xp.sqrt(xp.sum(g * g) + xp.sum(h * h))
        if float(norm) > 1:
            g, h = g / norm, h / norm
        a, b = 0.9 * a + g, 0.9 * b + h
        u = u - 0.05 * a
        v = v - 0.05 * b + 0.01 * u[: v.shape[0]]
    return [u, v]


def adversarial(xp: Any, w: Any, bias: Any, x: Any) -> list[Any]:
    """Training on inputs that were moved along the normalized gradient by them."""
    for _ in range(5):
        loss = xp.sum(xp.tanh(x @ w + bias[0]) ** 2)
        slope = xp.grad(loss, x)
        moved = x + 0.3 * slope / xp.sqrt(xp.sum(slope**2))
        loss = loss + xp.sum(xp.tanh(moved @ w + bias[0]) ** 2)
        g, h = xp.grad(loss, [w, bias])
        w = w - 0.02 * g
        bias = bias - 0.02 * h
    return [w, bias, xp.grad(xp.sum(xp.tanh(x @ w) ** 2), x)]


def two_networks(xp: Any, w: Any, bias: Any, x: Any) -> list[Any]:
    """A generator and a critic, which read each other's new parameters."""
    for _ in range(4):
        made = xp.tanh(x @ w)
        critic = xp.sum(made @ bias.T) - xp.sum((x[:, :2] @ bias.T) ** 2)
        bias = bias + 0.01 * xp.grad(critic, bias)
        w = w - 0.01 * xp.grad(xp.sum(xp.tanh(x @ w) @ bias.T), w)
    return [w, bias]


def penalized(xp: Any, w: Any, bias: Any, x: Any) -> list[Any]:
    """A penalty on the gradient by the input, as one of several terms."""
    for _ in range(3):
        value = xp.sum(xp.tanh(x @ w + bias[0]))
        slope = xp.grad(value, x, create_graph=True)
        loss = value**2 + xp.sum((xp.sqrt(xp.sum(slope**2, **_rows(xp))) - 1) ** 2)
        w = w - 0.01 * xp.grad(loss, w)
    return [w]


def _rows(xp: Any) -> dict[str, int]:
    return {"dim": 1} if isinstance(xp, Torch) else {"axis": 1}


def conjugate(xp: Any, u: Any, v: Any, x: Any) -> list[Any]:
    """Directions that are updated with products of the Hessian."""
    slope = xp.grad(xp.sum(xp.tanh(u @ v.T) * x), u, create_graph=True)
    p = u * 0.5
    for _ in range(3):
        product = xp.grad(xp.sum(slope * p), u)
        p = p - 0.1 * product
    return [p, product]


LOOPS = [conjugate, alternating, momentum, adversarial, two_networks, penalized]


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("rows", [5, 3000])
def test_loops_of_arrays(loop: Callable[..., list[Any]], rows: int) -> None:
    """The parameters are those of PyTorch, for small arrays and for larger ones."""
    draw = np.random.default_rng(3)
    given = [draw.normal(size=s) for s in ((rows, 2), (4, 2), (rows, 4))]
    if loop not in (alternating, momentum, conjugate):
        given = [draw.normal(size=s) for s in ((4, 2), (4, 2), (rows, 4))]
        given[2] /= rows
    actual = loop(mm, *map(mm.asarray, given))
    expected = loop(Torch(), *map(Torch.asarray, given))
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one.numpy(), other.detach().numpy(), rtol=1e-9, atol=1e-12)


def test_a_compiled_step() -> None:
    """The same in a compiled function."""
    given = [RANDOM.normal(size=s) for s in ((5, 2), (4, 2), (5, 4))]
    step = mm.compile(lambda u, v, x: alternating(mm, u, v, x))
    result = step(*map(mm.asarray, given))
    for one, other in zip(result, alternating(Torch(), *map(Torch.asarray, given)), strict=True):
        np.testing.assert_allclose(one.numpy(), other.detach().numpy(), rtol=1e-9)


def test_a_module_and_moved_inputs() -> None:
    """Parameters of a module, with an input that was moved along the gradient by it."""
    torch.manual_seed(0)
    theirs = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.Tanh(), torch.nn.Linear(6, 1))
    theirs.double()
    net = mm.nn.Sequential(mm.nn.Dense(6), mm.nn.Tanh(), mm.nn.Dense(1))
    x = RANDOM.normal(size=(7, 4))
    net(mm.asarray(x))
    net.astype("float64")
    ours = list(net.parameters())
    for v, p in zip(ours, theirs.parameters(), strict=True):
        v.assign(p.detach().numpy().T.reshape(v.shape))
    optimizer = mm.optim.GradientDescent(0.05)
    sgd = torch.optim.SGD(theirs.parameters(), 0.05)
    for _ in range(3):
        a = mm.asarray(x)
        slope = mm.grad(mm.sum(net(a) ** 2), a)
        loss = mm.sum(net(a + slope / mm.sqrt(mm.sum(slope**2))) ** 2)
        optimizer.update(dict(zip(ours, mm.grad(loss, ours), strict=True)))
        b = torch.tensor(x, requires_grad=True)
        (g,) = torch.autograd.grad((theirs(b) ** 2).sum(), b)
        sgd.zero_grad()
        (theirs(b + g / (g**2).sum().sqrt()) ** 2).sum().backward()
        sgd.step()
    for v, p in zip(ours, theirs.parameters(), strict=True):
        expected = p.detach().numpy().T.reshape(v.shape)
        np.testing.assert_allclose(v.numpy(), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("read", [False, True])
def test_second_derivatives(read: bool) -> None:
    """By the same array, by another one, and through an update by which the result is asked."""
    a, b = RANDOM.normal(size=(2, 3))
    x, y = mm.asarray(a), mm.asarray(b)
    value = mm.sum(x**3 * y**2)
    by_x, by_y = mm.grad(value, [x, y])
    if read:
        mm.evaluate(value, by_x, by_y)
    np.testing.assert_allclose(mm.grad(mm.sum(by_x), x).numpy(), 6 * a * b**2)
    np.testing.assert_allclose(mm.grad(mm.sum(by_x), y).numpy(), 6 * a**2 * b)
    np.testing.assert_allclose(mm.grad(mm.sum(by_y), x).numpy(), 6 * a**2 * b)
    third = mm.grad(mm.sum(mm.grad(mm.sum(by_x), x)), x)
    np.testing.assert_allclose(third.numpy(), 6 * b**2)
    slope_of_x = mm.grad(value, x, create_graph=True)
    moved = x - 0.1 * slope_of_x  # a learned start: the slope of the loss after a step
    if read:
        mm.evaluate(moved)
    outer = mm.grad(mm.sum(moved**2), x)
    expected = 2 * (a - 0.3 * a**2 * b**2) * (1 - 0.6 * a * b**2)
    np.testing.assert_allclose(outer.numpy(), expected)
    start = again = mm.asarray(a)
    for _ in range(3):  # several steps
        again = again - 0.1 * mm.grad(mm.sum(mm.sin(again)), again, create_graph=True)
        if read:
            mm.evaluate(again)
    z, slope = a, np.ones(3)
    for _ in range(3):
        z, slope = z - 0.1 * np.cos(z), slope * (1 + 0.1 * np.sin(z))
    np.testing.assert_allclose(mm.grad(mm.sum(again), start).numpy(), slope)
    for create_graph in (None, False):
        constant = mm.grad(mm.sum(x**3), x, create_graph=create_graph)
        np.testing.assert_allclose(mm.grad(mm.sum(x * constant), x).numpy(), 3 * a**2)


def test_gradients_in_differentiated_functions() -> None:
    """Those are always differentiated, as in JAX."""
    a, b = RANDOM.normal(size=(2, 3))

    def penalty(y: mm.Array) -> mm.Array:
        x = mm.asarray(a)
        slope = mm.grad(mm.sum(x**3 * y), x)
        return mm.sum(slope**2) + mm.sum(y)

    np.testing.assert_allclose(mm.grad(penalty)(mm.asarray(b)).numpy(), 18 * a**4 * b + 1)


@pytest.mark.parametrize("offset", range(0, 12, 3))
def test_long_loops(offset: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain of records is shortened far behind the operations of a step, wherever it reaches its limit;
    and what the removed part depends on directly is not what its gradients depend on."""
    for module in ("provenance_chains", "provenance"):
        monkeypatch.setattr(f"magmath.graph.provenance.{module}.MAX_LENGTH", 200)
    x, target = RANDOM.normal(size=(2, 6, 3))
    w, x_ = np.full((3, 1), 0.5), mm.asarray(x)
    ours, m, goal = mm.asarray(w), mm.zeros((3, 1), dtype="float64"), mm.asarray(target[:, :1])
    v = np.zeros((3, 1))
    for _ in range(offset):
        ours = ours * 1.0
    for _ in range(60):
        by_x = mm.grad(mm.mean((x_ @ ours - goal) ** 2), x_)
        moved = x_ + 0.1 * by_x
        m = 0.9 * m + mm.grad(mm.mean((moved @ ours - goal) ** 2), ours)
        ours = ours - 0.05 * m
        error = x @ w - target[:, :1]
        shifted = x + 0.1 * (2 / 6) * error @ w.T
        v = 0.9 * v + shifted.T @ (shifted @ w - target[:, :1]) * 2 / 6
        w = w - 0.05 * v
    np.testing.assert_allclose(ours.numpy(), w, rtol=1e-8)

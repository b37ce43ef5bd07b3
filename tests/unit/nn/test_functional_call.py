"""Modules called with other values of their variables equal PyTorch's `functional_call`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch.func import functional_call as torch_call

import magmath as mm
from engines import current
from magmath import nn
from magmath.errors import OptionError, StateError, WeightsError

FORMS = [("inline", 1, False), ("inline", 1, True), ("shared", 2, False), ("shared", 2, True)]
DRAW = np.random.default_rng(0)
X, Y = DRAW.normal(size=(5, 3)), DRAW.normal(size=(5, 2))
STATE = {
    "0.weight": DRAW.normal(size=(3, 4)),
    "0.bias": DRAW.normal(size=4),
    "2.weight": DRAW.normal(size=(4, 2)),
    "2.bias": DRAW.normal(size=2),
}
THEIRS = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).double()


def network() -> nn.Module:
    return nn.Sequential(nn.Dense(4), nn.Tanh(), nn.Dense(2)).build((1, 3)).astype("float64")


def arrays(state: dict[str, np.ndarray]) -> dict[str, mm.Array]:
    return {path: mm.asarray(value) for path, value in state.items()}


def torch_outputs(state: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """Return the outputs of PyTorch's network with weights in the orientation of ours."""
    return torch_call(THEIRS, {path: value.mT if value.ndim > 1 else value
                               for path, value in state.items()}, (x,))  # fmt: skip


def assert_equal(actual: dict[str, Any], expected: dict[str, Any]) -> None:
    assert actual.keys() == expected.keys()
    for path, value in expected.items():
        np.testing.assert_allclose(actual[path], value.detach(), atol=1e-10, err_msg=path)


@pytest.mark.parametrize(("kind", "workers", "compiled"), FORMS)
def test_outputs_and_gradients(kind: str, workers: int, compiled: bool) -> None:
    """Of all variables, and of one; the module keeps its values."""
    tensors = {path: torch.from_numpy(x).requires_grad_() for path, x in STATE.items()}
    expected = torch_outputs(tensors, torch.from_numpy(X))
    (expected**2).sum().backward()
    with current(kind, workers):
        module = network()
        former = {path: x.numpy() for path, x in module.state_dict().items()}

        def results(state: Any, x: Any) -> Any:
            def loss(p: Any) -> mm.Array:
                return mm.sum(nn.functional_call(module, p, x) ** 2)

            some = nn.functional_call(module, {"2.bias": state["2.bias"]}, x)
            return nn.functional_call(module, state, x), mm.grad(loss)(state), some, module(x)

        run = mm.compile(results) if compiled else results
        outputs, slopes, some, own = run(arrays(STATE), mm.asarray(X))
        np.testing.assert_allclose(outputs, expected.detach(), atol=1e-12)
        assert_equal(slopes, {path: x.grad for path, x in tensors.items()})
        np.testing.assert_allclose(some, own + STATE["2.bias"] - former["2.bias"], atol=1e-12)
        for path, value in module.state_dict().items():
            np.testing.assert_array_equal(value, former[path])


@pytest.mark.parametrize(("kind", "workers", "compiled"), FORMS)
def test_gradients_through_inner_updates(kind: str, workers: int, compiled: bool) -> None:
    """Model-agnostic meta-learning: second derivatives of two inner steps."""
    tensors = {path: torch.from_numpy(x).requires_grad_() for path, x in STATE.items()}
    adapted = dict(tensors)
    for _ in range(2):
        inner = ((torch_outputs(adapted, torch.from_numpy(X)) - torch.from_numpy(Y)) ** 2).mean()
        slopes = torch.autograd.grad(inner, list(adapted.values()), create_graph=True)
        adapted = {p: v - 0.1 * g for (p, v), g in zip(adapted.items(), slopes, strict=True)}
    (torch_outputs(adapted, torch.from_numpy(X + 1)) ** 2).mean().backward()
    with current(kind, workers):
        module = network()

        def inner_loss(p: Any, x: Any) -> mm.Array:
            return mm.mean((nn.functional_call(module, p, x) - Y) ** 2)

        def outer_loss(p: Any, x: Any) -> mm.Array:
            for _ in range(2):
                slopes = mm.grad(inner_loss)(p, x)
                p = {path: value - 0.1 * slopes[path] for path, value in p.items()}
            return mm.mean(nn.functional_call(module, p, x + 1) ** 2)

        run = mm.grad(outer_loss)
        run = mm.compile(run) if compiled else run
        assert_equal(run(arrays(STATE), mm.asarray(X)), {p: v.grad for p, v in tensors.items()})


@pytest.mark.parametrize(("kind", "workers", "compiled"), FORMS)
def test_ensembles(kind: str, workers: int, compiled: bool) -> None:
    """Stacked parameters of several networks, and their gradients."""
    stacked = {path: np.stack([x, 2 * x, x - 1]) for path, x in STATE.items()}
    tensors = {path: torch.from_numpy(x).requires_grad_() for path, x in stacked.items()}
    expected = torch.vmap(torch_outputs, (0, None))(tensors, torch.from_numpy(X))
    (expected**2).sum().backward()
    with current(kind, workers):
        module = network()

        def outputs(p: Any, x: Any) -> mm.Array:
            return mm.vmap(lambda p, x: nn.functional_call(module, p, x), (0, None))(p, x)

        def results(p: Any, x: Any) -> Any:
            return outputs(p, x), mm.grad(lambda p: mm.sum(outputs(p, x) ** 2))(p)

        run = mm.compile(results) if compiled else results
        values, slopes = run(arrays(stacked), mm.asarray(X))
        np.testing.assert_allclose(values, expected.detach(), atol=1e-12)
        assert_equal(slopes, {path: x.grad for path, x in tensors.items()})


@pytest.mark.parametrize(("kind", "workers", "compiled"), FORMS)
@pytest.mark.parametrize("are_replaced", [False, True])
def test_running_moments(are_replaced: bool, kind: str, workers: int, compiled: bool) -> None:
    """Two calls of one layer assign its moments as PyTorch's do, unless other values replace
    them."""
    theirs = torch.nn.BatchNorm1d(3).double()
    with current(kind, workers):
        norm = nn.BatchNorm().build((2, 3)).astype("float64")
        twice = nn.Sequential(norm, nn.Lambda(lambda x: 2 * x + 1), norm)
        buffers = dict(twice.named_buffers())
        given = {path: mm.ones(3) for path in buffers if "num" not in path} if are_replaced else {}
        former = {path: x.numpy() for path, x in twice.state_dict().items()}

        def call(x: Any) -> mm.Array:
            return nn.functional_call(twice, {"0.weight": 3 * mm.ones(3), **given}, x)

        outputs = (mm.compile(call) if compiled else call)(mm.asarray(X))
        weights = {"weight": 3 * torch.ones(3, dtype=torch.float64)}
        middle = 2 * torch_call(theirs, weights, (torch.from_numpy(X),)) + 1
        expected = torch_call(theirs, weights, (middle,))
        np.testing.assert_allclose(outputs, expected.detach(), atol=1e-12)
        moments = [theirs.running_mean, theirs.running_var]
        for (path, value), moment in zip(buffers.items(), moments, strict=False):
            wanted = former[path] if are_replaced else moment
            np.testing.assert_allclose(value, wanted, atol=1e-12, err_msg=path)


def test_loops_and_random_numbers_of_compiled_calls() -> None:
    """A recurrent layer with dropout: a new mask in each call, and replaced weights in a loop."""
    with current("inline", 1):
        layer = nn.LSTM(4).build((1, 1, 3)).astype("float64")
        module = nn.Sequential(nn.Lambda(lambda x: layer(x)[0]), nn.Dropout(0.5))
        module.memory = layer
        state = {path: 2 * value for path, value in module.state_dict().items() if "weight" in path}
        x = mm.asarray(DRAW.normal(size=(2, 40, 3)))
        call = mm.compile(lambda p, x: nn.functional_call(module, p, x))
        first, second = call(state, x), call(state, x)
        assert not bool(mm.all(first == second))
        module.eval()
        actual = call(state, x)
        for path, value in module.named_parameters():
            value.assign(state.get(path, value))
        np.testing.assert_allclose(actual, module(x), atol=1e-12)


def test_paths_of_shared_variables_and_arguments_by_keyword() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            self.first, self.second = nn.Dense(3), nn.Dense(3)
            self.second.weight = self.first.weight

        def __call__(self, x: mm.Array, *, scale: float, names: str) -> Any:
            assert names == "plain"
            return {"y": self.second(self.first(x)) * scale, "none": None}

    with current("inline", 1):
        module = Tied()
        x = mm.asarray(X.astype("float32"))
        module(x, scale=1.0, names="plain")
        state = {"second.weight": np.eye(3) * 2}
        result = nn.functional_call(module, state, x, scale=3.0, names="plain")
        np.testing.assert_allclose(result["y"], 12 * x, rtol=1e-6)
        assert result["none"] is None


def test_errors() -> None:
    with current("inline", 1):
        module = network()
        wrong = {"0.weigth": 1.0, "0.bias": np.zeros(3), "2.bias": np.zeros(2, complex)}
        with pytest.raises(WeightsError) as caught:
            nn.functional_call(module, wrong, X)
        message = str(caught.value)
        assert message.startswith("functional_call: ")
        assert "0.weigth is not in the module, did you mean '0.weight'?" in message
        assert "0.bias has shape (4,), was given (3,)" in message
        assert "2.bias is float64, was given complex128" in message
        with pytest.raises(TypeError, match=r"functional_call: needs a dictionary of arrays by p"):
            nn.functional_call(module, [1.0], X)
        with pytest.raises(StateError, match=r"functional_call: the layer .*Dense.* no weight yet"):
            nn.functional_call(nn.Dense(2), {}, X)
        with pytest.raises(OptionError, match=r"functional_call: .* is not a module"):
            nn.functional_call(mm.relu, {}, X)

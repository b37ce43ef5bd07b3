"""Every optimizer, with every setting, takes the steps that PyTorch (for LARS: the paper) takes, in
every kind of training loop, and continues from a saved state."""

from __future__ import annotations

import copy
import json
import operator
import pickle
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from arrays import programs
from engines import current
from executors import only, use_native_code
from magmath.errors import DTypeError, MagmathError, OptionError, ShapeError, StateError
from magmath.ops.elementwise import call, sqrt
from magmath.optim import (
    LARS,
    OPTIMIZERS,
    Adadelta,
    Adagrad,
    Adam,
    AdamW,
    GradientDescent,
    Momentum,
    Optimizer,
    RMSprop,
    schedules,
)

Torch = Callable[[Any], torch.optim.Optimizer]
T = torch.optim
STEPS = 30


class TorchLARS(torch.optim.Optimizer):
    """Algorithm 1 of You et al. (2017), line by line, for one global learning rate."""

    def __init__(self, parameters: Any, lr: float, trust: float, decay: float = 0.0) -> None:
        super().__init__(parameters, {"lr": lr, "trust": trust, "decay": decay})

    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                w, g, decay = p.detach().numpy(), p.grad.numpy(), group["decay"]
                v = self.state[p].setdefault("v", np.zeros_like(w))
                bottom = np.linalg.norm(g) + decay * np.linalg.norm(w)
                local = group["trust"] * np.linalg.norm(w) / bottom
                v[...] = 0.9 * v + group["lr"] * local * (g + decay * w)
                w -= v


PAIRS: dict[str, tuple[Callable[[], Optimizer], Torch]] = {
    "sgd": (lambda: GradientDescent(0.05), lambda p: T.SGD(p, 0.05)),
    "sgd, decay": (
        lambda: GradientDescent(0.05, weight_decay=0.1),
        lambda p: T.SGD(p, 0.05, weight_decay=0.1),
    ),
    "momentum": (
        lambda: Momentum(0.02, 0.8, weight_decay=0.1),
        lambda p: T.SGD(p, 0.02, momentum=0.8, weight_decay=0.1),
    ),
    "nesterov": (
        lambda: Momentum(0.02, nesterov=True, weight_decay=0.03),
        lambda p: T.SGD(p, 0.02, momentum=0.9, nesterov=True, weight_decay=0.03),
    ),
    "adagrad": (lambda: Adagrad(0.1), lambda p: T.Adagrad(p, 0.1)),
    "adadelta": (lambda: Adadelta(), lambda p: T.Adadelta(p)),
    "adadelta with decay": (
        lambda: Adadelta(0.5, 0.8, 1e-5, weight_decay=0.1),
        lambda p: T.Adadelta(p, 0.5, 0.8, 1e-5, weight_decay=0.1),
    ),
    "adagrad, decays": (
        lambda: Adagrad(0.1, 0.2, 1e-6, weight_decay=0.1),
        lambda p: T.Adagrad(p, 0.1, lr_decay=0.2, eps=1e-6, weight_decay=0.1),
    ),
    "rmsprop": (lambda: RMSprop(0.01), lambda p: T.RMSprop(p, 0.01)),
    "rmsprop, centered": (
        lambda: RMSprop(0.01, 0.9, 1e-6, centered=True, weight_decay=0.1),
        lambda p: T.RMSprop(p, 0.01, 0.9, 1e-6, centered=True, weight_decay=0.1),
    ),
    "rmsprop, momentum": (
        lambda: RMSprop(0.01, momentum=0.7), lambda p: T.RMSprop(p, 0.01, momentum=0.7)
    ),
    "rmsprop, all": (
        lambda: RMSprop(0.01, centered=True, momentum=0.7),
        lambda p: T.RMSprop(p, 0.01, centered=True, momentum=0.7),
    ),
    "adam": (lambda: Adam(0.05), lambda p: T.Adam(p, 0.05)),
    "adam, settings": (
        lambda: Adam(0.03, 0.8, 0.95, 1e-4, weight_decay=0.1),
        lambda p: T.Adam(p, 0.03, (0.8, 0.95), 1e-4, weight_decay=0.1),
    ),
    "adam, amsgrad": (
        lambda: Adam(0.05, 0.5, 0.6, amsgrad=True),
        lambda p: T.Adam(p, 0.05, (0.5, 0.6), amsgrad=True),
    ),
    "adamw": (lambda: AdamW(0.05), lambda p: T.AdamW(p, 0.05)),
    "adamw, settings": (
        lambda: AdamW(0.05, 0.8, 0.9, 1e-6, amsgrad=True, weight_decay=0.3),
        lambda p: T.AdamW(p, 0.05, (0.8, 0.9), 1e-6, amsgrad=True, weight_decay=0.3),
    ),
    "lars": (lambda: LARS(0.5, trust_coefficient=0.05), lambda p: TorchLARS(p, 0.5, 0.05)),
    "lars, decay": (
        lambda: LARS(0.5, trust_coefficient=0.05, weight_decay=0.1), lambda p: TorchLARS(p, 0.5, 0.05, 0.1)
    ),
}  # fmt: skip
DRAW = np.random.default_rng(7)
X, Y = DRAW.normal(size=(60, 5)), DRAW.normal(size=(60, 3))
W, B = DRAW.normal(size=(5, 3)), DRAW.normal(size=3)
BATCHES = [slice(i % 60, i % 60 + 12) for i in range(0, 12 * STEPS, 12)]
POOLS = [("inline", 1), ("shared", 2), ("messages", 4)]
# Others try `minimize` on one worker: in float32, with complex parameters, and from a state.
WAYS = [
    ("minimize", "shared", 2),
    ("update", "inline", 1),
    ("compiled", "inline", 1),
    ("compiled", "messages", 4),
]


def of_torch(
    make: Torch, dtype: str = "float64", clip: Callable[[Any], object] = lambda p: None
) -> tuple[list[float], list[Any]]:
    """The losses and the last weights of PyTorch's loop."""
    w, b = (torch.nn.Parameter(torch.from_numpy(v.astype(dtype))) for v in (W, B))
    optimizer, losses = make([w, b]), []
    x, y = (torch.from_numpy(v.astype(dtype)) for v in (X, Y))
    for rows in BATCHES:
        optimizer.zero_grad()
        loss = ((torch.tanh(x[rows] @ w + b) - y[rows]) ** 2).mean()
        loss.backward()
        clip([w, b])
        optimizer.step()
        losses.append(loss.item())
    return losses, [w.detach().numpy(), b.detach().numpy()]


class Loop:
    """The same loop here; the rows of w are divided over the workers."""

    def __init__(self, optimizer: Optimizer, dtype: str = "float64") -> None:
        self.w = mm.variable("net.weight", W.astype(dtype), layout=mm.Layout.split(0))
        self.b = mm.variable("net.bias", B.astype(dtype))
        self.optimizer, self.dtype = optimizer, dtype
        self.compiled = mm.compile(self.update)

    def loss(self, x: Any, y: Any) -> mm.Array:
        return mm.mean((mm.tanh(x @ self.w + self.b) - y) ** 2)

    def minimize(self, x: mm.Array, y: mm.Array) -> float:
        return self.optimizer.minimize(self.loss(x, y), [self.w, self.b])

    def update(self, x: mm.Array, y: mm.Array) -> mm.Array:
        loss = self.loss(x, y)
        slopes = mm.grad(loss, [self.w, self.b])
        self.optimizer.update({self.w: slopes[0], self.b: slopes[1]})
        return loss

    def run(self, way: str, batches: list[slice] = BATCHES) -> list[float]:
        step = {"minimize": self.minimize, "update": self.update, "compiled": self.compiled}[way]
        x, y = X.astype(self.dtype), Y.astype(self.dtype)
        return [float(step(mm.asarray(x[rows]), mm.asarray(y[rows]))) for rows in batches]

    def check(self, weights: list[Any], limit: float) -> None:
        for v, value in zip((self.w, self.b), weights, strict=True):
            np.testing.assert_allclose(v.numpy(), value, rtol=limit, atol=limit)


def test_every_optimizer_is_compared() -> None:
    made = [ours() for ours, _ in PAIRS.values()]
    for name, make in OPTIMIZERS.items():
        assert any(type(one) is type(make()) for one in made), name
    for kind in {type(one) for one in made}:
        ours = [one for one in made if type(one) is kind]
        for f in fields(kind):
            if f.name not in (
                "learning_rate",
                "clip_value",
                "clip_norm",
                "groups",
                "trust_coefficient",
            ):
                tried = {getattr(one, f.name) for one in ours}
                assert len(tried) > 1 or kind in (LARS,), f"{kind.__name__}.{f.name} is not tried"


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(("way", "kind", "workers"), WAYS)
def test_thirty_steps_are_those_of_pytorch(way: str, name: str, kind: str, workers: int) -> None:
    ours, theirs = PAIRS[name]
    losses, weights = of_torch(theirs)
    with current(kind, workers):
        loop = Loop(ours())
        np.testing.assert_allclose(loop.run(way), losses, rtol=1e-12)
        loop.check(weights, 1e-12)


@pytest.mark.parametrize("way", ["minimize", "compiled"])
@pytest.mark.parametrize("name", PAIRS)
def test_thirty_steps_in_float32(way: str, name: str) -> None:
    ours, theirs = PAIRS[name]
    losses, weights = of_torch(theirs, "float32")
    with current("inline"):
        loop = Loop(ours(), "float32")
        np.testing.assert_allclose(loop.run(way), losses, rtol=1e-5)
        loop.check(weights, 1e-5)


def in_fit(optimizer: Optimizer, epochs: int = 6) -> tuple[list[float], dict[str, Any]]:
    """The losses and weights of a network of one dense layer, in float64."""
    former = mm.get_default_dtype()
    mm.set_default_dtype("float64")
    try:
        net = mm.nn.NeuralNetwork(
            [mm.nn.Dense(3, activation="tanh")], loss="mean_squared_error", optimizer=optimizer
        )
        net.build((1, 5))
        net.parameters["0.weight"].assign(W)
        net.parameters["0.bias"].assign(B)
        steps = net.fit(X, Y, batch_size=12, epochs=epochs, shuffle=False).step_losses
        return steps, {name: v.numpy() for name, v in net.parameters.items()}
    finally:
        mm.set_default_dtype(former)


@pytest.mark.parametrize(
    ("name", "kind", "workers"),
    [(name, *pool) for i, name in enumerate(PAIRS) for pool in (POOLS[0], POOLS[1 + i % 2])],
)
def test_fit_takes_the_steps_of_pytorch(name: str, kind: str, workers: int) -> None:
    ours, theirs = PAIRS[name]
    losses, (w, b) = of_torch(theirs)
    with current(kind, workers):
        steps, actual = in_fit(ours())
        np.testing.assert_allclose(steps, losses, rtol=1e-12)
        np.testing.assert_allclose(actual["0.weight"], w, rtol=1e-11, atol=1e-12)
        np.testing.assert_allclose(actual["0.bias"], b, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("name", ["rmsprop, all", "adam, amsgrad", "adamw", "lars"])
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_types_are_updated_in_float32(name: str, dtype: str) -> None:
    """The same steps as in float32, of gradients that are exact in half types."""
    make, _ = PAIRS[name]
    with current("inline"):
        ends = []
        for element in (dtype, "float32"):
            v = mm.variable("v", mm.asarray([1.0, -2.0, 0.5], dtype=element))
            optimizer = replace(make(), learning_rate=1e-4)
            for _ in range(100):
                optimizer.update({v: mm.asarray([0.5, -0.25, 1.0], dtype=element)})
            ends.append(optimizer.state_dict()["v.master"] if element == dtype else v)
        np.testing.assert_allclose(ends[0].numpy(), ends[1].numpy(), rtol=1e-6)


# complex parameters ---------------------------------------------------------------------------


def complex_loss(lib: Any, w: Any, b: Any, x: Any, y: Any) -> Any:
    """A real loss of complex w and real b, by magmath or PyTorch."""
    real, imaginary = lib.real(w), lib.imag(w)
    return lib.mean((lib.abs(x @ w + 0.5j) + b - y) ** 2) + lib.sum(real * imaginary**2) / 50


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize(
    ("way", "kind", "workers"),
    [("minimize", "inline", 1), ("update", "inline", 1), ("compiled", "shared", 2)],
)
def test_steps_of_complex_parameters_are_those_of_pytorch(
    way: str, kind: str, workers: int, name: str
) -> None:
    """Together with a real parameter, also clipped, from a saved state, and with a loss scale."""
    (ours, theirs), clips = PAIRS[name], way == "compiled"
    first, x = W + 1j * np.roll(W, 1), X + 0j
    w, b = (torch.nn.Parameter(torch.from_numpy(v)) for v in (first.copy(), B.copy()))
    optimizer = theirs([w, b])
    for rows in BATCHES[:6]:
        optimizer.zero_grad()
        complex_loss(torch, w, b, *map(torch.from_numpy, (x[rows], Y[rows]))).backward()
        if clips:
            torch.nn.utils.clip_grad_norm_([w, b], 0.1)
        optimizer.step()
    limit = 0.1 if clips else None
    with current(kind, workers):
        actual = [
            mm.variable("net.weight", first, layout=mm.Layout.split(0)),
            mm.variable("net.bias", B),
        ]
        rule, scale = replace(ours(), clip_norm=limit), mm.optim.LossScale(8.0)

        def update(x: Any, y: Any) -> None:
            _, gradients = scale.value_and_grad(lambda: complex_loss(mm, *actual, x, y), actual)
            rule.update(gradients, scale)

        def minimize(x: Any, y: Any) -> None:
            rule.minimize(complex_loss(mm, *actual, x, y), actual)

        steps = {"minimize": minimize, "update": update, "compiled": mm.compile(update)}
        for i, rows in enumerate(BATCHES[:6]):
            if i == 3 and way == "update":
                state = {key: value.numpy() for key, value in rule.state_dict().items()}
                rule = replace(ours(), clip_norm=limit)
                rule.load_state_dict(state)
            steps[way](mm.asarray(x[rows]), mm.asarray(Y[rows]))
        for v, value in zip(actual, (w, b), strict=True):
            np.testing.assert_allclose(v.numpy(), value.detach().numpy(), rtol=1e-11, atol=1e-12)


def test_a_real_parameter_has_no_complex_gradient() -> None:
    v, optimizer = mm.variable("v", [1.0, 2.0]), GradientDescent(0.1)
    with pytest.raises(DTypeError, match=r"variable v is float32, so its gradient must be real"):
        optimizer.update({v: mm.asarray([1j, 2.0])})
    z = mm.variable("z", np.array([1.0 + 1j, 2.0]))
    optimizer.update({z: mm.asarray([1.0, 2.0])})
    np.testing.assert_allclose(z.numpy(), [0.9 + 1j, 1.8])


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_variables_of_integers_are_not_updated(name: str, dtype: str) -> None:
    """Steps, and learning rates, would be truncated."""
    with current("inline"):
        v, optimizer = mm.variable("v", [1, 1], dtype=dtype), OPTIMIZERS[name]()
        update = {v: mm.asarray([4.0, 4.0])}
        for form, step in (
            ("update", lambda: optimizer.update(update)),
            ("update", mm.compile(lambda: optimizer.update(update))),
            ("minimize", lambda: optimizer.minimize(mm.sum(v * 1.5), [v])),
        ):
            with pytest.raises(DTypeError, match=f"^{form}: variable v is {dtype}, steps need flo"):
                step()
        assert optimizer.steps == 0
        assert v.tolist() == [1, 1]


# clipping -------------------------------------------------------------------------------------

CLIPS: dict[str, tuple[dict[str, float], Callable[[Any], object]]] = {
    "norm": ({"clip_norm": 0.3}, lambda p: torch.nn.utils.clip_grad_norm_(p, 0.3)),
    "large norm": ({"clip_norm": 1e3}, lambda p: torch.nn.utils.clip_grad_norm_(p, 1e3)),
    "value": ({"clip_value": 0.05}, lambda p: torch.nn.utils.clip_grad_value_(p, 0.05)),
}


@pytest.mark.parametrize("clip", CLIPS)
@pytest.mark.parametrize("way", ["minimize", "compiled", "fit"])
@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_clipping_is_that_of_pytorch(clip: str, way: str, kind: str, workers: int) -> None:
    settings, theirs = CLIPS[clip]
    losses, weights = of_torch(lambda p: T.SGD(p, 0.5, momentum=0.9, weight_decay=0.1), clip=theirs)
    optimizer = Momentum(0.5, weight_decay=0.1, **settings)
    with current(kind, workers):
        if way == "fit":
            np.testing.assert_allclose(in_fit(optimizer)[0], losses, rtol=1e-12)
            return
        loop = Loop(optimizer)
        np.testing.assert_allclose(loop.run(way), losses, rtol=1e-12)
        loop.check(weights, 1e-12)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_the_norm_of_half_types_does_not_overflow(dtype: str) -> None:
    with current("inline"):
        v = mm.variable("v", mm.asarray([0.0, 0.0], dtype=dtype))
        GradientDescent(1.0, clip_norm=1.0).update({v: mm.asarray([3e4, 4e4], dtype=dtype)})
        np.testing.assert_allclose(mm.astype(v, "float32").numpy(), [-0.6, -0.8], rtol=1e-2)


NATIVE: dict[str, Callable[[], Optimizer]] = {
    "rmsprop": lambda: RMSprop(0.01, centered=True, momentum=0.7, clip_norm=0.1),
    "adamw": lambda: AdamW(schedules.OneCycle(0.1, 30), amsgrad=True, clip_value=0.05),
    "lars": lambda: LARS(0.5, trust_coefficient=0.05, weight_decay=0.1),
    "adagrad": lambda: Adagrad(0.1, 0.2, groups={"*.bias": {"learning_rate": 0.01}}),
}


@pytest.mark.parametrize("name", NATIVE)
@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
@pytest.mark.timeout(300)  # the compiler's time
def test_native_code_takes_the_same_steps(
    name: str, kind: str, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    selector = only(0)
    with current(kind, workers):
        expected, _ = in_fit(NATIVE[name]())
    use_native_code(monkeypatch, selector)
    with current(kind, workers):  # with another program, which has no selector yet
        steps, _ = in_fit(NATIVE[name]())
    np.testing.assert_allclose(steps, expected, rtol=1e-10)
    assert set(selector.used) == {"native"}


# groups ---------------------------------------------------------------------------------------


def grouped(p: list[Any]) -> torch.optim.Optimizer:
    return T.AdamW(
        [{"params": p[:1]}, {"params": p[1:], "weight_decay": 0.0, "lr": 0.02, "betas": (0.5, 0.9)}],
        0.05, weight_decay=0.2,
    )  # fmt: skip


@pytest.mark.parametrize("way", ["minimize", "update", "compiled", "fit"])
@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_groups_have_settings_of_their_own(way: str, kind: str, workers: int) -> None:
    losses, weights = of_torch(grouped)
    own = {"weight_decay": 0.0, "learning_rate": 0.02, "beta1": 0.5, "beta2": 0.9}
    optimizer = AdamW(0.05, weight_decay=0.2, groups={"*.bias": own, "*.weight": {}})
    with current(kind, workers):
        if way == "fit":
            np.testing.assert_allclose(in_fit(optimizer)[0], losses, rtol=1e-12)
            return
        loop = Loop(optimizer)
        np.testing.assert_allclose(loop.run(way), losses, rtol=1e-12)
        loop.check(weights, 1e-12)


def test_a_group_without_parameters_is_refused() -> None:
    message = r"no parameter matches 'dense\.\*'; the names are 0\.weight"
    with current("inline"):
        net = mm.nn.NeuralNetwork([mm.nn.Dense(1)], optimizer=Adam(groups={"dense.*": {}}))
        with pytest.raises(OptionError, match=message):
            net.fit(X, np.zeros(len(X), int), batch_size=8)


class Affine(mm.nn.Module):
    """x · weight + bias, whose bias is made at the first call if `defers`, the weight always."""

    weight: mm.nn.Parameter | None = None

    def __init__(self, defers: bool) -> None:
        ones = lambda shape, dtype: mm.ones(shape, dtype=dtype)  # noqa: E731
        self.bias = mm.nn.deferred(ones) if defers else mm.nn.Parameter(1.0, (3,))

    def __call__(self, x: mm.Array) -> mm.Array:
        self.materialize(bias=(3,))
        if self.weight is None:
            self.weight = mm.nn.Parameter(1.0, (3,))
        return x * self.weight + self.bias


@pytest.mark.parametrize("defers", [False, True])
@pytest.mark.parametrize("is_compiled", [False, True])
@pytest.mark.parametrize("is_known", [False, True])
def test_groups_of_parameters_that_a_loop_lists(
    is_known: bool, is_compiled: bool, defers: bool
) -> None:
    """A call names the parameters of the module, also those that it makes."""
    with current("inline"):
        net = Affine(defers)
        if is_known:
            assert net.is_built is not defers
        optimizer = Momentum(0.1, weight_decay=0.5, groups={"*bias": {"weight_decay": 0.0}})

        def step(x: mm.Array) -> mm.Array:
            loss = mm.sum(net(x))
            parameters = [net.weight, net.bias]
            slopes = mm.grad(loss, parameters)
            optimizer.update(dict(zip(parameters, slopes, strict=True)))
            return loss

        (mm.compile(step) if is_compiled else step)(mm.zeros((2, 3)))
        np.testing.assert_allclose(net.bias.numpy(), np.full(3, 1 - 0.1 * 2))
        np.testing.assert_allclose(net.weight.numpy(), np.full(3, 1 - 0.1 * 0.5))
        states = ["bias.velocity", "steps", "weight.velocity"]
        assert sorted(optimizer.state_dict()) == states


@pytest.mark.parametrize("strategy", ["data", "weight-averaging:2:1"])
def test_groups_match_the_paths_of_the_module_that_is_trained(strategy: str) -> None:
    """An encoder that was a part of another module keeps the names of its variables there."""

    class Pretrained(mm.nn.Module):
        def __init__(self, encoder: mm.nn.Module) -> None:
            self.body, self.out = encoder, mm.nn.Dense(3)

        def __call__(self, x: mm.Array) -> mm.Array:
            return self.out(self.body(x))

    class Classifier(mm.nn.Module):
        def __init__(self, encoder: mm.nn.Module) -> None:
            self.encoder, self.head = encoder, mm.nn.Dense(3)

        def __call__(self, x: mm.Array) -> mm.Array:
            return self.head(self.encoder(x))

    mm.init(workers=0)
    x, encoder = np.ones((4, 3), np.float32), mm.nn.Dense(3)
    mm.train.Trainer(Pretrained(encoder), "mean_squared_error").fit(x, x, epochs=1)
    former = encoder.weight.numpy()
    adam = Adam(1e-2, groups={"encoder.*": {"learning_rate": 0.0}})
    model = Classifier(encoder)
    mm.train.Trainer(model, "mean_squared_error", adam, strategy=strategy).fit(x, 2 * x, epochs=1)
    np.testing.assert_array_equal(encoder.weight.numpy(), former)
    adam = Adam(1e-2, groups={"*coder.bias": {}})
    mm.train.Trainer(model, "mean_squared_error", adam, strategy=strategy).fit(x, 2 * x, epochs=1)
    assert (encoder.weight.numpy() != former).any()
    adam = Adam(1e-2, groups={"base.*": {}})
    trainer = mm.train.Trainer(model, "mean_squared_error", adam, strategy=strategy)
    with pytest.raises(OptionError, match="no parameter matches 'base"):
        trainer.fit(x, x, epochs=1)


def test_groups_match_the_names_that_variables_have_in_an_update() -> None:
    """They change when a layer that was trained before becomes a part of another module."""
    mm.init(workers=0)
    x, encoder = np.ones((4, 3), np.float32), mm.nn.Sequential(mm.nn.Dense(3))
    rule = GradientDescent(0.1, groups={"encoder.*": {"learning_rate": 0.0}})

    def update(module: mm.nn.Module) -> None:
        module(x)
        rule.update(mm.value_and_grad(lambda: mm.mean(module(x) ** 2), module.trainable())[1])

    class Classifier(mm.nn.Module):
        def __init__(self) -> None:
            self.encoder, self.head = encoder, mm.nn.Dense(2)

        def __call__(self, x: mm.Array) -> mm.Array:
            return self.head(self.encoder(x))

    update(encoder)
    former = encoder[0].weight.numpy()
    model = Classifier()
    update(model)
    np.testing.assert_array_equal(encoder[0].weight.numpy(), former)


def test_a_variable_that_changes_its_group_has_the_states_of_that_group() -> None:
    mm.init(workers=0)
    w = mm.variable("w", np.ones(3, np.float32))
    rule = Adam(0.1, groups={"late.*": {"amsgrad": True}})
    for name in ("w", "late.w", "w"):
        w.name = name
        other = mm.variable("other", 1.0)
        rule.update({w: mm.ones(3), other: mm.ones(())})
        states = rule.state_dict()
        assert float(states[f"{name}.count"]) >= 1
        assert (f"{name}.largest" in states) == (name == "late.w")


def test_groups_may_have_schedules_and_other_states() -> None:
    """A rate of its own that changes, and amsgrad for one variable only."""
    with current("inline"):
        own = {"learning_rate": schedules.Step(0.1, 4, 0.5), "amsgrad": True}
        loop = Loop(Adam(0.05, groups={"*.bias": own}))
        loop.run("compiled", BATCHES[:15])
        w, b = (torch.nn.Parameter(torch.from_numpy(v.copy())) for v in (W, B))
        one, other = T.Adam([w], 0.05), T.Adam([b], 0.1, amsgrad=True)
        halving = torch.optim.lr_scheduler.StepLR(other, 4, 0.5)
        for rows in BATCHES[:15]:
            one.zero_grad(), other.zero_grad()
            x, y = torch.from_numpy(X[rows]), torch.from_numpy(Y[rows])
            ((torch.tanh(x @ w + b) - y) ** 2).mean().backward()
            one.step(), other.step(), halving.step()
        loop.check([w.detach().numpy(), b.detach().numpy()], 1e-12)
        assert {"net.bias.largest", "net.weight.first"} <= set(loop.optimizer.state_dict())
        assert "net.weight.largest" not in loop.optimizer.state_dict()


# what is refused ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Adam("a"), TypeError, "learning_rate must be a number of at least 0.*'a'"),
        (lambda: Adam(-0.1), MagmathError, "learning_rate must be at least 0, was given -0.1"),
        (lambda: Adam(weight_decay=-1), MagmathError, "weight_decay must be a number of at least 0.*-1"),
        (lambda: Adam(clip_norm=0), MagmathError, "clip_norm must be positive, was given 0"),
        (lambda: Adam(clip_norm=1, clip_value=1), MagmathError, "give clip_value or clip_norm, not both"),
        (lambda: Adam(groups={"*": {"momentum": 1}}), MagmathError,
         r"groups: '\*' sets momentum; the settings of a group of Adam are learning_rate, .*beta1"),
        (lambda: Adam(groups={"*": {"clip_norm": 1}}), MagmathError, "sets clip_norm"),
        (lambda: setattr(Adam(), "beta1", 0.5), MagmathError,
         r"only learning_rate may be assigned, beta1.*replace\(optimizer, beta1=0.5\)"),
        (lambda: setattr(Adam(), "learning_rate", -1), MagmathError, "must be at least 0"),
        (lambda: operator.setitem(Adam(groups={"b": {"beta1": 0.5}}).groups["b"], "beta1", 0.4),
         MagmathError, r"beta1 cannot be assigned.*replace\(optimizer, groups="),
        (lambda: operator.setitem(Adam().groups, "b", {"beta1": 0.4}), MagmathError, "cannot be"),
    ],
)  # fmt: skip
def test_settings_that_are_no_settings(
    make: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        make()


@pytest.mark.parametrize(
    "change",
    [
        lambda groups: operator.delitem(groups, "b"),
        lambda groups: operator.ior(groups, {"c": {}}),
        lambda groups: groups.update(c={}),
        lambda groups: groups.setdefault("c", {}),
        lambda groups: groups.pop("b"),
        lambda groups: groups.popitem(),
        lambda groups: groups.clear(),
        lambda groups: groups["b"].clear(),
    ],
)
def test_settings_of_groups_are_dictionaries_that_do_not_change(
    change: Callable[[Any], object],
) -> None:
    settings = {"b": {"beta1": 0.5}}
    optimizer = Adam(groups=settings)
    with pytest.raises(StateError, match=r"part of compiled steps.*replace\(optimizer, groups="):
        change(optimizer.groups)
    assert optimizer.groups == settings


def test_settings_of_groups_can_be_merged_copied_and_written() -> None:
    optimizer = Adam(groups={"b": {"beta1": 0.5}})
    merged = replace(optimizer, groups=optimizer.groups | {"c": {"beta1": 0.4}})
    assert merged.groups == {"b": {"beta1": 0.5}, "c": {"beta1": 0.4}}
    assert json.loads(json.dumps(asdict(optimizer)))["groups"] == optimizer.groups
    for copied in (
        copy.copy(optimizer.groups),
        copy.deepcopy(optimizer.groups),
        pickle.loads(pickle.dumps(optimizer.groups)),
        asdict(optimizer)["groups"],
    ):
        assert copied == optimizer.groups
        assert type(copied["b"]) is type(optimizer.groups)


def test_the_print_shows_what_was_set() -> None:
    assert repr(GradientDescent(0.1)) == "GradientDescent(learning_rate=0.1)"
    assert repr(Adam(amsgrad=True, clip_norm=1.0)) == (
        "Adam(learning_rate=0.001, clip_norm=1.0, beta1=0.9, beta2=0.999, epsilon=1e-08, amsgrad=True)"
    )
    assert repr(AdamW(groups={"b": {"beta1": 0.5}}, weight_decay=0.0)).endswith(
        "weight_decay=0.0, groups={'b': {'beta1': 0.5}}, beta1=0.9, beta2=0.999, epsilon=1e-08, "
        "amsgrad=False)"
    )
    for name, make in OPTIMIZERS.items():
        made = make()
        assert eval(repr(made), vars(mm.optim)).__getstate__() == made.__getstate__(), name


# state ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("way", "kind", "workers"),
    [
        *[(way, "inline", 1) for way in ("minimize", "update", "compiled")],
        *[("compiled", "shared", 2), ("minimize", "messages", 4)],
    ],
)
@pytest.mark.parametrize("name", ["momentum", "rmsprop, all", "adam, amsgrad", "adagrad, decays"])
def test_another_optimizer_goes_on_from_the_state(
    way: str, name: str, kind: str, workers: int
) -> None:
    make, theirs = PAIRS[name]
    losses, weights = of_torch(theirs)
    with current(kind, workers):
        first = Loop(make())
        first.run(way, BATCHES[:11])
        state = {k: np.asarray(v) for k, v in first.optimizer.state_dict().items()}
        second = Loop(make())
        second.run(way, BATCHES[:3])  # its own state, and programs, are given up
        second.w.assign(first.w), second.b.assign(first.b)
        second.optimizer.load_state_dict(pickle.loads(pickle.dumps(state)))
        assert second.optimizer.steps == 11
        np.testing.assert_allclose(second.run(way, BATCHES[11:]), losses[11:], rtol=1e-12)
        second.check(weights, 1e-12)


@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_fit_goes_on_from_a_state(kind: str, workers: int) -> None:
    """In another network, and in the same one after more steps."""

    def network() -> mm.nn.NeuralNetwork:
        return mm.nn.NeuralNetwork(
            [mm.nn.Dense(3)], loss="mean_squared_error", optimizer=Adam(0.05), seed=1
        )

    def train(net: mm.nn.NeuralNetwork, epochs: int) -> list[float]:
        return net.fit(x, y, batch_size=20, epochs=epochs, shuffle=False).step_losses

    with current(kind, workers):
        x, y = mm.asarray(X.astype("float32")), mm.asarray(Y.astype("float32"))
        net = network()
        train(net, 2)
        state = net.optimizer.state_dict()
        weights = {name: v.numpy() for name, v in net.parameters.items()}
        expected = train(net, 2)
        other = network()
        other.build((1, 5))
        for again in (net, other):
            for name, v in again.parameters.items():
                v.assign(weights[name])
            again.optimizer.load_state_dict(state)
            assert again.optimizer.steps == 6
            np.testing.assert_allclose(train(again, 2), expected, rtol=1e-5)


def test_a_state_is_kept_until_it_is_used() -> None:
    with current("inline"):
        loop = Loop(Adam(0.05))
        loop.run("update", BATCHES[:4])
        state = loop.optimizer.state_dict()
        assert sorted(state) == [
            "net.bias.count", "net.bias.first", "net.bias.second",
            "net.weight.count", "net.weight.first", "net.weight.second", "steps",
        ]  # fmt: skip
        other = Adam(0.05)
        other.load_state_dict(state)
        result = other.state_dict()
        assert sorted(result) == sorted(state)
        for name, value in state.items():
            np.testing.assert_array_equal(np.asarray(result[name]), np.asarray(value))
        loop.run("update", BATCHES[:1])
        assert int(state["net.bias.count"]) == 4, "a snapshot"


def test_variables_whose_counts_differ_keep_them() -> None:
    """One was updated more often: so it is after loading, in one compiled step of both."""
    with current("inline"):
        v, w = mm.variable("v", [1.0]), mm.variable("w", [1.0])
        adam = Adam(0.1)
        for step in range(6):
            adam.update({v: mm.asarray([0.5]), **({w: mm.asarray([0.25])} if step % 2 else {})})
        other = Adam(0.1)
        other.load_state_dict(adam.state_dict())
        a, b = mm.variable("v", v), mm.variable("w", w)
        for one, (p, q) in ((adam, (v, w)), (other, (a, b))):
            mm.compile(lambda: one.update({p: mm.asarray([1.0]), q: mm.asarray([1.0])}) or p)()  # noqa: B023
        assert (a.tolist(), b.tolist()) == (v.tolist(), w.tolist())
        counts = other.state_dict()
        assert (int(counts["v.count"]), int(counts["w.count"])) == (7, 4)


def test_states_that_do_not_fit() -> None:
    with current("inline"):
        v = mm.variable("v", [1.0, 2.0])
        momentum = Momentum(0.1)
        with pytest.raises(MagmathError, match="load_state_dict: needs the result of state_dict"):
            momentum.load_state_dict({"v.velocity": np.zeros(2)})
        momentum.load_state_dict({"v.velocity": np.zeros(3), "steps": 1})
        with pytest.raises(
            ShapeError, match=r"v.velocity has shape \(3,\), variable v needs \(2,\)"
        ):
            momentum.update({v: mm.asarray([1.0, 1.0])})


def test_states_of_another_optimizer() -> None:
    with current("inline"):
        v = mm.variable("v", [1.0, 2.0])
        gradient = mm.asarray([1.0, 1.0])
        momentum, adam = Momentum(0.1), Adam(0.1)
        momentum.update({v: gradient})
        adam.load_state_dict(momentum.state_dict())
        with pytest.raises(OptionError, match="states of variable v are velocity, this optimizer"):
            adam.update({v: gradient})
        others = mm.variable("v.b", [0.0])  # its states are not those of v
        adam = Adam(0.1)
        adam.update({v: gradient, others: mm.asarray([1.0])})
        again = Adam(0.1)
        again.load_state_dict(adam.state_dict())
        again.update({v: gradient})


@pytest.mark.parametrize("together", [True, False])
def test_one_optimizer_of_two_networks(together: bool) -> None:
    """Their parameters have the same names; a saved state continues for each of them."""

    def networks() -> list[mm.nn.Sequential]:
        mm.random.seed(2)
        made = [mm.nn.Sequential(mm.nn.Dense(4, activation="tanh"), mm.nn.Dense(1)) for _ in "ab"]
        for net in made:
            net.build((8, 3))
        return made

    def run(nets: list[mm.nn.Sequential], optimizer: Adam, steps: int) -> None:
        def loss(net: mm.nn.Sequential) -> mm.Array:
            return mm.mean((net(inputs) - targets) ** 2)

        for _ in range(steps):
            if together:
                variables = [*nets[0].trainable(), *nets[1].trainable()]
                total = lambda: loss(nets[0]) + 2 * loss(nets[1])  # noqa: E731
                optimizer.update(mm.value_and_grad(total, variables)[1])
                continue
            for net in nets:
                gradients = mm.value_and_grad(lambda: loss(net), net.trainable())[1]  # noqa: B023
                optimizer.update(gradients)

    draw = np.random.default_rng(0)
    inputs, targets = draw.normal(size=(8, 3)), draw.normal(size=(8, 1))
    with current("inline"):
        whole = networks()
        run(whole, Adam(0.05), 6)
        nets, adam = networks(), Adam(0.05)
        run(nets, adam, 3)
        state = adam.state_dict()
        assert len(state) == 2 * 4 * 3 + 1
        names = {name.split(".")[-2] for name in state if name != "steps"}
        assert names == {"weight", "bias", "weight#2", "bias#2"}
        again, other = networks(), Adam(0.05)
        for net, former in zip(again, nets, strict=True):
            net.load_state_dict(former.state_dict())
        other.load_state_dict({name: np.asarray(value) for name, value in state.items()})
        run(again, other, 3)
        for actual, expected in zip(again, whole, strict=True):
            for v, w in zip(actual.parameters(), expected.parameters(), strict=True):
                np.testing.assert_allclose(v.numpy(), w.numpy(), rtol=1e-5, atol=1e-7)
        assert sorted(other.state_dict()) == sorted(state)


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda x: pickle.loads(pickle.dumps(x))])
@pytest.mark.parametrize("name", PAIRS)
def test_copies_have_the_settings(name: str, way: Callable[[Any], Any]) -> None:
    settings = {"*.bias": {"learning_rate": schedules.Cosine(0.1, 10)}}
    rate = schedules.WarmUp(schedules.Step(0.1, 5), 3)
    optimizer = replace(PAIRS[name][0](), groups=settings, learning_rate=rate, clip_norm=1.0)
    made = way(optimizer)
    for f in fields(optimizer):
        assert getattr(made, f.name) == getattr(optimizer, f.name)
    assert made.rates(4) == optimizer.rates(4)


def test_rates_compile_nothing() -> None:
    with current("inline") as pool:
        loop = Loop(Momentum(schedules.Cosine(0.1, 30), groups={"*.bias": {"learning_rate": 0.1}}))
        loop.run("compiled", BATCHES[:2])
        loop.run("minimize", BATCHES[:2])
        before = programs(pool)
        loop.run("compiled")
        loop.run("minimize")
        loop.optimizer.learning_rate = 0.03
        loop.run("compiled")
        assert programs(pool) == before


@dataclass(eq=False, repr=False)
class OwnAdam(Optimizer):
    """Adam in PyTorch's order of operations, with Python's operators."""

    beta1: float = 0.9
    beta2: float = 0.999

    @property
    def states(self) -> tuple[str, ...]:
        return ("m", "v")

    @property
    def has_step_count(self) -> bool:
        return True

    def rule(self, value: Any, gradient: Any, state: Any, rate: Any, count: Any) -> Any:
        m = self.beta1 * state["m"] + (1 - self.beta1) * gradient
        v = self.beta2 * state["v"] + (1 - self.beta2) * gradient * gradient
        factor = sqrt(1 - self.beta2**count) / (1 - call("power", self.beta1, count))
        root = sqrt(v) + 1e-8 * (1 - self.beta2**count) ** 0.5
        return value - rate * factor * m / root, {"m": m, "v": v}


@pytest.mark.parametrize("way", ["minimize", "update", "compiled"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_the_step_count_of_a_rule_combines_with_every_type(dtype: str, way: str) -> None:
    for first in ([1.0, -2.0, 0.5], 0.5):
        with current("inline"):
            values = []
            for optimizer in (OwnAdam(0.1), Adam(0.1)):
                v = mm.variable("v", first, dtype=dtype)

                def update(v: Any = v, optimizer: Any = optimizer) -> None:
                    optimizer.update({v: mm.grad(mm.sum(v * v), v)})

                def minimize(v: Any = v, optimizer: Any = optimizer) -> None:
                    optimizer.minimize(mm.sum(v * v), [v])

                ways = {"minimize": minimize, "update": update, "compiled": mm.compile(update)}
                for _ in range(6):
                    ways[way]()
                values.append(mm.astype(v, mm.float64).numpy())
            limit = {"float64": 1e-12, "float32": 2e-6}.get(dtype, 1e-2)
            np.testing.assert_allclose(*values, rtol=limit)


def sum_of(x: Any) -> Any:
    return mm.sum(mm.Array(x)).node


RESULTS: dict[str, tuple[Callable[[Any, Any], Any], str]] = {
    "missing": (lambda value, state: (value, {}), "the next states, moment; has .* .none."),
    "unknown": (lambda value, state: (value, {**state, "norm": value}), "has .* moment, norm"),
    "other name": (lambda value, state: (value, {"moments": value}), "has .* states moments"),
    "state": (
        lambda value, state: (value, {"moment": sum_of(value)}),
        r"moment .* \(3,\), .* \(\);",
    ),
    "value": (lambda value, state: (sum_of(value), state), r"next value .* \(3,\), .* \(\);"),
}


@pytest.mark.parametrize("case", RESULTS)
def test_rules_that_return_other_states_are_errors(case: str) -> None:
    result, message = RESULTS[case]

    @dataclass(eq=False, repr=False)
    class Own(Optimizer):
        @property
        def states(self) -> tuple[str, ...]:
            return ("moment",)

        def rule(self, value: Any, gradient: Any, state: Any, rate: Any, count: Any) -> Any:
            return result(value - rate * gradient, state)

    with current("inline"):
        v = mm.variable("v", [1.0, 2.0, 3.0])
        for step in (
            lambda: Own(0.1).update({v: mm.ones(3)}),
            lambda: Own(0.1).minimize(mm.sum(v * v), [v]),
        ):
            with pytest.raises((OptionError, ShapeError), match=f"Own.rule: .*{message}"):
                step()
        np.testing.assert_array_equal(v.numpy(), [1.0, 2.0, 3.0])

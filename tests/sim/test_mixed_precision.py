"""Mixed precision: the roundings of PyTorch, GradScaler's rule, every strategy, resumption."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import magmath as mm
from engines import current
from magmath import nn
from magmath.errors import DTypeError, MagmathError, NonFiniteLoss, ShapeError, WeightsError
from magmath.nn import zoo
from magmath.nn.forward_hooks import forward_hook
from magmath.nn.zoo.resnet import BasicBlock, ResNet
from magmath.optim import LossScale
from magmath.parallel import CompiledStep, DataParallel
from magmath.train import Trainer

POOLS = [("inline", 1), ("shared", 2), ("messages", 4)]
MIXED = ["mixed-bfloat16", "mixed-float16"]
DRAW = np.random.default_rng(4)
X = DRAW.normal(size=(64, 12)).astype(np.float32)
Y = DRAW.integers(0, 5, 64)


def network() -> nn.Module:
    return nn.Sequential(nn.Dense(16, "relu"), nn.BatchNorm(), nn.Dense(5))


def state(of: nn.Module) -> dict[str, Any]:
    return {name: v.numpy() for name, v in of.state_dict().items()}


def check_same(actual: dict[str, Any], expected: dict[str, Any], limit: float = 0.0) -> None:
    assert actual.keys() == expected.keys()
    for name, value in expected.items():
        np.testing.assert_allclose(actual[name], value, rtol=limit, atol=limit, err_msg=name)


# the types of modules -------------------------------------------------------------------------


class Recorder(nn.Module):
    """Records the types that it reads, and returns the product of input and weight."""

    def __init__(self) -> None:
        self.weight = nn.Parameter(np.eye(12, dtype=np.float32))
        self.scale = nn.Buffer(np.ones(12, np.float32))
        self.seen: list[Any] = []

    def __call__(self, x: mm.Array) -> mm.Array:
        self.seen = [x.dtype, self.weight.dtype, self.scale.dtype]
        return x @ self.weight


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize("compiled", [False, True])
def test_modules_compute_in_the_half_type(name: str, compiled: bool) -> None:
    half = getattr(mm, name.removeprefix("mixed-"))
    with current("inline"):
        inner, norm = Recorder(), nn.LayerNorm()
        model = nn.Sequential(inner, norm)
        outputs: dict[int, Any] = {}
        call = mm.compile(model) if compiled else model
        with nn.precision(name), forward_hook(lambda m, y: outputs.update({id(m): y.dtype})):
            y = call(mm.asarray(X))
        assert inner.seen == [half, half, mm.float32]
        assert outputs[id(inner)] is half
        assert outputs[id(norm)] is half
        assert y.dtype is mm.float32
        assert {p.dtype for p in model.parameters()} == {mm.float32}
        rounded = mm.astype(mm.asarray(X), half)
        own = mm.astype(nn.LayerNorm()(rounded), mm.float32).numpy()
        np.testing.assert_allclose(y.numpy(), own, rtol=0, atol=2.0**-10)
        call(mm.asarray(X))  # outside of the block it is another trace
        assert inner.seen == [mm.float32] * 3


def test_blocks_nest_and_end_with_an_error() -> None:
    with current("inline"):
        inner = Recorder()
        with nn.precision("mixed-float16"):
            with nn.precision("float32"):
                inner(mm.asarray(X))
                assert inner.seen[1] is mm.float32
            with pytest.raises(ShapeError):
                inner(mm.asarray(X[:, :3]))
            inner(mm.asarray(X))
            assert inner.seen[1] is mm.float16
        inner(mm.asarray(X))
        assert inner.seen[1] is mm.float32


@pytest.mark.parametrize("function", [mm.softmax, mm.log_softmax])
@pytest.mark.parametrize("half", [mm.float16, mm.bfloat16])
def test_softmax_of_half_types_rounds_once(function: Any, half: Any) -> None:
    with current("inline"):
        x = mm.astype(mm.asarray(30 * X), half)
        exact = mm.astype(function(mm.astype(x, mm.float32)), half)
        assert function(x).dtype is half
        np.testing.assert_array_equal(
            *(mm.astype(v, mm.float32).numpy() for v in (function(x), exact))
        )


# counterparts ----------------------------------------------------------------------------------------


def torch_losses(weights: list[Any], half: torch.dtype, scale: float, steps: int) -> list[float]:
    """The losses of gradient descent on float32 weights, with layers that compute in `half`."""
    masters = [torch.from_numpy(w.copy()).requires_grad_() for w in weights]
    result = []
    for _ in range(steps):
        w1, b1, _, _, w2, b2 = (w.to(half) for w in masters)
        y = F.relu(torch.from_numpy(X).to(half) @ w1 + b1)
        y = F.layer_norm(y.float(), (16,), masters[2], masters[3]).to(half)
        loss = F.cross_entropy((y @ w2 + b2).float(), torch.from_numpy(Y))
        slopes = torch.autograd.grad(scale * loss, masters)
        with torch.no_grad():
            for w, slope in zip(masters, slopes, strict=True):
                w -= 0.5 * slope / scale
        result.append(loss.item())
    return result


@pytest.mark.parametrize("name", MIXED)
@pytest.mark.parametrize(("kind", "workers"), POOLS)
def test_losses_are_those_of_torch(name: str, kind: str, workers: int) -> None:
    """Of a loop of PyTorch with the same conversions; a float32 loop is further away."""
    with current(kind, workers):
        model = nn.Sequential(nn.Dense(16, "relu"), nn.LayerNorm(), nn.Dense(5)).build((1, 12))
        weights = [np.asarray(p) for p in model.parameters()]
        trainer = Trainer(model, optimizer=mm.optim.GradientDescent(0.5), precision=name)
        losses = trainer.fit(X, Y, batch_size=64, epochs=8, shuffle=False).step_losses
    half = getattr(torch, name.removeprefix("mixed-"))
    expected = np.array(torch_losses(weights, half, 1024.0, 8))
    exact = np.array(torch_losses(weights, torch.float32, 1.0, 8))
    rounding = float(torch.finfo(half).eps)
    np.testing.assert_allclose(losses, expected, rtol=rounding)
    assert np.abs(expected - exact).max() > 0


@pytest.mark.parametrize("rule", [torch.optim.SGD, torch.optim.Adam])
def test_scale_follows_gradscaler(rule: Any) -> None:
    """Step by step: scale, skipped steps, and parameters, whose step counts skipped steps omit."""
    draw = np.random.default_rng(8)
    slopes = np.where(draw.random(24) < 0.3, np.inf, draw.normal(size=24)).astype(np.float32)
    w = torch.zeros(3, requires_grad=True)
    optimizer, counterpart = rule([w], lr=0.1), torch.amp.GradScaler(
        "cpu", init_scale=2.0**10, growth_interval=3
    )  # fmt: skip
    with current("inline"):
        v = mm.variable("w", np.zeros(3, np.float32))
        own = {torch.optim.SGD: mm.optim.GradientDescent, torch.optim.Adam: mm.optim.Adam}[rule](
            0.1
        )
        scale, skipped = LossScale(2.0**10, growth_interval=3), 0

        @mm.compile
        def step(c: mm.Array) -> mm.Array:
            loss, gradients = scale.value_and_grad(lambda: mm.sum(v * c), [v])
            own.update(gradients, scale)
            return loss

        for c in slopes:
            optimizer.zero_grad()
            counterpart.scale((w * float(c)).sum()).backward()
            counterpart.step(optimizer)
            counterpart.update()
            step(mm.asarray(np.float32(c)))
            skipped += not np.isfinite(c)
            assert scale.value == counterpart.get_scale()
            assert scale.skipped == skipped
            np.testing.assert_allclose(v.numpy(), w.detach().numpy(), rtol=1e-5, atol=1e-7)
    assert 3 < skipped < 20


# strategies -----------------------------------------------------------------------------------

STRATEGIES: dict[str, Any] = {
    "auto": lambda: "auto",
    "model": lambda: "model",
    "sharded": lambda: "sharded",
    "server": lambda: "parameter-server",
    "half messages": lambda: DataParallel("ring", messages="float16"),
    "half sharded": lambda: DataParallel("sharded", messages="bfloat16", accumulate=2),
    "1-bit": lambda: DataParallel(messages="1-bit"),
}


def trained(
    strategy: Any, name: str, scale: float = 2.0**12, make: Any = network, **options: Any
) -> Trainer:
    loss_scale = LossScale(scale, growth_interval=5) if name == "mixed-float16" else None
    trainer = Trainer(
        make(), optimizer="adam", precision=name, loss_scale=loss_scale, seed=3,
        strategy=strategy,
    )  # fmt: skip
    trainer.fit(X, Y, **{"batch_size": 16, "epochs": 3, "shuffle": False, **options})
    return trainer


def layers() -> nn.Module:
    """Without statistics of a batch, which differ where gradients of its parts are added."""
    return nn.Sequential(nn.Dense(16, "relu"), nn.LayerNorm(), nn.Dense(5))


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    """The losses of one worker in float32."""
    with current("inline"):
        return {"float32": trained("data", "float32", make=layers).history.step_losses}


@pytest.mark.parametrize(
    ("kind", "workers", "name"), [("shared", 2, MIXED[1]), ("messages", 4, MIXED[0])]
)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_strategies_train_as_one_worker(
    kind: str, workers: int, name: str, strategy: str, alone: dict[str, Any]
) -> None:
    with current(kind, workers):
        result = trained(STRATEGIES[strategy](), name, make=layers)
        assert {p.dtype for p in result.module.parameters()} == {mm.float32}
        limit = 0.2 if strategy == "1-bit" else 0.02
        np.testing.assert_allclose(result.history.step_losses, alone["float32"], rtol=limit)


@pytest.mark.parametrize("strategy", ["data", "sharded"])
def test_messages_have_half_the_bytes(strategy: str) -> None:
    """Gradients, and the copies of parameters that the forward pass reads; sums of products, which
    are float32, remain."""
    moved = {}
    with current("messages", 2):
        for name in ("float32", "mixed-bfloat16"):
            model = nn.Sequential(nn.Dense(512, "relu"), nn.Dense(512, "relu"), nn.Dense(5))
            trainer = Trainer(model, optimizer="sgd", strategy=strategy, precision=name)
            trainer.fit(X, Y, batch_size=64, epochs=0)
            moved[name] = trainer.explain().total.nbytes
    assert moved["mixed-bfloat16"] < 0.65 * moved["float32"]


@pytest.mark.parametrize("strategy", ["data", "1-bit", "half messages", "replicas"])
def test_overflow_changes_nothing_but_the_scale(strategy: str) -> None:
    """Also no residual of one-bit messages, and no replica."""
    with current("shared", 2):
        made = STRATEGIES.get(strategy, lambda: strategy)()
        if strategy == "replicas":
            made = mm.parallel.WeightAveraging(2)
        trainer = trained(made, "mixed-float16", 2.0**100, epochs=0)
        before = {k: v for k, v in state(trainer.module).items() if "running" not in k}
        history = trainer.fit(X, Y, batch_size=16, epochs=2, shuffle=False)
        after = {k: v for k, v in state(trainer.module).items() if "running" not in k}
        check_same(after, before)
        assert history.skipped_steps == [4, 4]
        assert history.loss_scale == [2.0**96, 2.0**92]
        assert all(np.isfinite(v).all() for v in state(trainer.module).values())
        trainer.loss_scale.state()["scale"].assign(2.0**8)
        finite = trainer.fit(X, Y, batch_size=16, epochs=4, shuffle=False)
        assert finite.skipped_steps == [0] * 4
        assert finite.loss[-1] < finite.loss[0] < 10


@pytest.mark.parametrize("other", [None, "float32", "mixed-bfloat16"])
def test_another_precision_drops_the_default_scale(other: str | None, tmp_path: Path) -> None:
    """So that another trainer of that precision continues from the checkpoint; a given one stays."""
    with current("inline"):
        first = Trainer(nn.Dense(2), precision="mixed-float16", seed=1)
        scale = first.loss_scale
        first.precision = "mixed-float16"
        assert first.loss_scale is scale is not None
        first.precision = other
        assert first.loss_scale is None
        x, y = np.ones((8, 4), np.float32), np.arange(8) % 2
        first.fit(x, y, checkpoint=tmp_path)
        second = Trainer(nn.Dense(2), precision=other, seed=1)
        second.fit(x, y, epochs=2, checkpoint=tmp_path, resume=True)
        assert second.epochs_done == 2
        first.precision = "mixed-float16"
        assert first.loss_scale is not None
        given = LossScale()
        third = Trainer(nn.Dense(2), precision="mixed-float16", loss_scale=given)
        third.precision = other
        assert third.loss_scale is given


def test_scale_descends_to_one_that_fits() -> None:
    with current("inline"):
        trainer = trained("data", "mixed-float16", 2.0**40, epochs=12)
        history = trainer.history
        assert 20 < sum(history.skipped_steps) < 40
        assert history.skipped_steps[-1] <= 1
        assert history.loss[-1] < history.loss[0]


@pytest.mark.parametrize(("name", "counts"), [(MIXED[0], (1, 3)), (MIXED[1], (1, 2))])
def test_deterministic_mode_has_equal_bits(name: str, counts: tuple[int, ...]) -> None:
    ends = []
    for workers in counts:
        with current("exact", workers):
            ends.append(state(trained("auto", name).module))
    for result in ends[1:]:
        check_same(result, ends[0])


@pytest.mark.parametrize("strategy", ["data", "replicas"])
def test_resumed_training_has_equal_bits(strategy: str, tmp_path: Path) -> None:
    """The scale grows within the epochs and is lowered by overflow before the checkpoint."""

    def made() -> Any:
        return "data" if strategy == "data" else mm.parallel.WeightAveraging(2)

    with current("shared", 2):
        whole = trained(made(), "mixed-float16", 2.0**26, epochs=6, checkpoint=tmp_path / "whole")
        trained(made(), "mixed-float16", 2.0**26, epochs=3, checkpoint=tmp_path / "parts")
        end = trained(
            made(), "mixed-float16", 1.0, epochs=6, checkpoint=tmp_path / "parts", resume=True
        )
        check_same(state(end.module), state(whole.module))
        assert end.loss_scale.value == whole.loss_scale.value
        assert end.loss_scale.skipped == whole.loss_scale.skipped > 0
        assert end.history.skipped_steps == whole.history.skipped_steps
        with pytest.raises(WeightsError, match="written with loss scaling"):
            trained(made(), "float32", checkpoint=tmp_path / "parts", resume=True)


# loops of users -------------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "workers"), [("inline", 1), ("shared", 2)])
def test_loops_of_ones_own_are_fit(kind: str, workers: int) -> None:
    """Eager, compiled, `CompiledStep` and fit."""
    with current(kind, workers):
        ends = []
        for way in ("eager", "compiled", "step", "fit"):
            mm.random.seed(1)
            model, rule, scale = network().build((1, 12)), mm.optim.Momentum(0.05), LossScale(64.0)

            def loop(
                x: Any, y: Any, model: Any = model, rule: Any = rule, scale: Any = scale
            ) -> Any:
                with nn.precision("mixed-float16"):
                    loss, slopes = scale.value_and_grad(
                        lambda: nn.cross_entropy(model(x), y), model.trainable()
                    )
                rule.update(slopes, scale)
                return loss

            def loss_of(x: Any, y: Any, model: Any = model) -> Any:
                return nn.cross_entropy(model(x), y)

            options: Any = {"precision": "mixed-float16", "loss_scale": scale, "strategy": "data"}
            calls = {
                "eager": loop,
                "compiled": mm.compile(loop),
                "step": CompiledStep(loss_of, model, rule, **options),
            }
            if way == "fit":
                Trainer(model, "cross_entropy", rule, **options).fit(
                    X, Y, batch_size=16, epochs=2, shuffle=False
                )
            else:
                for i in (0, 16, 32, 48) * 2:
                    calls[way](mm.asarray(X[i : i + 16]), mm.asarray(Y[i : i + 16]))
            assert scale.skipped == 0
            ends.append(state(model))
        for result in ends[1:]:
            check_same(result, ends[0], 2e-3)


def test_scale_changes_in_loops_on_workers() -> None:
    with current("inline"):
        v, scale = mm.variable("v", 3.0), LossScale(8.0, growth_interval=2)
        rule = mm.optim.GradientDescent(0.25)

        def body(i: Any, carry: Any) -> Any:
            loss, slopes = scale.value_and_grad(lambda: v * v, [v])
            rule.update(slopes, scale)
            return carry + loss

        mm.fori_loop(0, 6, body, mm.asarray(0.0))
        assert float(v) == 3 * 0.5**6
        assert scale.value == 64


def test_copies_of_a_scale_keep_its_state() -> None:
    scale = LossScale(8.0)
    with mm.init(0):
        scale.state()["scale"].assign(4.0)
        assert copy.deepcopy(scale).value == 4
        assert LossScale(8.0).value == 8
    with mm.init(0):  # another pool has none of the former variables
        assert scale.value == 8


# half modules ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "workers", "half"),
    [
        ("inline", 1, "float16"),
        ("inline", 1, "bfloat16"),
        ("shared", 2, "float16"),
        ("messages", 4, "bfloat16"),
    ],
)
def test_converted_modules_infer_and_train(half: str, kind: str, workers: int) -> None:
    with current(kind, workers):
        trainer = trained("data", "float32", epochs=20)
        model, full = trainer.module, trainer.predict(X).numpy()
        scores = trainer.evaluate(X, Y)
        size = sum(p.nbytes for p in model.parameters())
        call = mm.compile(model)
        model.eval()
        call(mm.asarray(X))
        model.astype(half)
        types = {path: v.dtype.name for path, v in model.named_parameters() + model.named_buffers()}
        assert {t for path, t in types.items() if path.startswith("1.")} == {"float32"}
        assert {t for path, t in types.items() if not path.startswith("1.")} == {half}
        assert sum(p.nbytes for p in model.parameters()) < 0.6 * size
        whole = Trainer(model)
        assert whole.predict(X).dtype.name == half
        assert call(mm.astype(mm.asarray(X), half)).dtype.name == half
        np.testing.assert_allclose(mm.astype(whole.predict(X), "float32").numpy(), full, atol=0.1)
        result = whole.evaluate(X, Y)
        assert abs(result["accuracy"] - scores["accuracy"]) <= 2 / len(X)
        assert result["loss"] == pytest.approx(scores["loss"], rel=0.03)
        # The optimizer goes on from its states, with master copies now.
        history = Trainer(model, optimizer=trainer.optimizer).fit(X, Y, batch_size=16, epochs=10)
        assert history.loss[-1] < scores["loss"] * 1.1
        model.astype("float32")
        assert {p.dtype for p in model.parameters()} == {mm.float32}


# accuracy -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "data", "epochs", "least", "margin"),
    [
        (lambda: zoo.mlp(classes=10), "digits", 5, 0.93, 0.01),
        (lambda: zoo.lenet5(classes=10), "mnist-5k", 1, 0.9, 0.02),
        (lambda: ResNet(BasicBlock, (1, 1, 1), 10, "small", 8), "digits", 2, 0.9, 0.03),
    ],
    ids=["mlp", "lenet5", "resnet8"],
)
def test_trained_accuracy(
    make: Callable[[], nn.Module], data: str, epochs: int, least: float, margin: float
) -> None:
    images = mm.data.load(data)
    normalized = mm.data.normalize(*mm.data.pixel_statistics(images.train_images))
    train, test = (normalized(x, DRAW) for x in (images.train_images, images.test_images))
    result = {}
    with current("inline"):
        for precision in ("float32", *MIXED):
            module = make()
            trainer = Trainer(module, optimizer=mm.optim.Adam(1e-3), precision=precision, seed=0)
            trainer.fit(train, images.train_labels, batch_size=32, epochs=epochs)
            result[precision] = trainer.evaluate(test, images.test_labels)["accuracy"]
        for half in ("bfloat16", "float16"):  # the last network, and inference in half
            trainer = Trainer(module.astype(half))
            result[half] = trainer.evaluate(test, images.test_labels)["accuracy"]
            module.astype("float32")
    assert min(result.values()) > least
    for precision in (*MIXED, "bfloat16", "float16"):
        assert abs(result[precision] - result["float32"]) <= margin, result


# bad input ------------------------------------------------------------------------------------


def test_bad_input() -> None:
    known = "there are float32, mixed-bfloat16, mixed-float16"
    with current("inline"):
        for make in (
            lambda name: Trainer(network(), precision=name),
            lambda name: nn.NeuralNetwork(network(), precision=name),
            lambda name: nn.precision(name).__enter__(),
        ):
            for name in ("bfloat16", "half", 16, mm.float16):
                with pytest.raises(MagmathError, match=known):
                    make(name)
        wide = network().build((1, 12)).astype(mm.float64)
        for name in ("float32", *MIXED):
            with pytest.raises(DTypeError, match=r"0\.weight is float64; convert the module"):
                Trainer(wide, precision=name).fit(X, Y)
        with nn.precision("mixed-float16"), pytest.raises(DTypeError, match="is float64"):
            wide(mm.asarray(X))
        with pytest.raises(DTypeError, match="needs a floating point type, was given int32"):
            wide.astype("int32")
        with pytest.raises(MagmathError, match="has received no input"):
            network().astype("float16")
        for bad in ({"initial": 0.0}, {"growth_factor": 1.0}, {"backoff_factor": 1.5}):
            with pytest.raises(MagmathError, match="LossScale: initial must be positive"):
                LossScale(**bad)
        with pytest.raises(MagmathError, match="growth_interval"):
            LossScale(growth_interval=0)
        scale = LossScale(8.0)
        with pytest.raises(MagmathError, match=r"growth_interval.* LossScale\(growth_interval=7\)"):
            scale.growth_interval = 7
        assert copy.copy(scale).growth_interval == 2000


def test_gradients_that_no_scale_helps() -> None:
    with current("inline"):
        trainer = trained("data", "mixed-float16", 2.0**-30, epochs=0)
        huge = X.copy()
        huge[0, 0] = 6e4
        trainer.loss = lambda outputs, targets: mm.mean(outputs) * 1e30
        with pytest.raises(NonFiniteLoss, match="use precision='mixed-bfloat16'"):
            trainer.fit(huge, Y, batch_size=64, epochs=1)


# losses that are modules ----------------------------------------------------------------------


class SquaredError(nn.Module):
    """A loss with a parameter of its own; records the types that it reads."""

    def __init__(self) -> None:
        self.factor = nn.Parameter(1.0, ())
        self.seen: list[Any] = []

    def __call__(self, outputs: mm.Array, targets: mm.Array) -> mm.Array:
        self.seen = [outputs.dtype, targets.dtype, self.factor.dtype]
        return mm.mean((outputs - targets) ** 2) * self.factor


class PreciseError(SquaredError):
    keeps_float32 = True


@pytest.mark.parametrize("target", [1000.3, 1e5])
@pytest.mark.parametrize("kind", [SquaredError, PreciseError])
@pytest.mark.parametrize("name", MIXED)
def test_fit_computes_losses_in_float32(name: str, kind: Any, target: float) -> None:
    """Those that are modules, and those that call modules, as evaluation does."""
    x, y = np.ones((8, 1), np.float32), np.full((8, 1), target, np.float32)
    expected = (np.float32(1000.0) - np.float32(target)) ** 2
    with current("inline"):
        own = kind()
        for loss in (own, lambda outputs, targets: own(outputs, targets)):
            trainer = Trainer(
                nn.Dense(1, weight_init=1000.0), loss, mm.optim.GradientDescent(0.0), metrics=[],
                precision=name,
            )  # fmt: skip
            found = trainer.fit(x, y).loss[0]
            assert own.seen == [mm.float32] * 3
            assert found == pytest.approx(expected, rel=1e-5)
            assert trainer.evaluate(x, y)["loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", MIXED)
def test_an_outermost_module_that_keeps_float32_receives_its_inputs(
    name: str, compiled: bool
) -> None:
    class Distance(PreciseError):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Recorder()

        def __call__(self, outputs: mm.Array, targets: mm.Array) -> mm.Array:
            return super().__call__(self.inner(outputs), targets)

    half = getattr(mm, name.removeprefix("mixed-"))
    with current("inline"):
        distance, targets = Distance(), np.full((64, 12), 1000.3, np.float32)
        call = mm.compile(distance) if compiled else distance
        with nn.precision(name):
            found = call(mm.asarray(X), mm.asarray(targets))
        assert distance.seen == [mm.float32] * 3
        assert distance.inner.seen == [half, half, mm.float32]
        rounded = mm.astype(mm.astype(mm.asarray(X), half), mm.float32).numpy()
        assert float(found) == pytest.approx(np.mean((rounded - targets) ** 2), rel=1e-5)

"""Modules, with the behaviour of PyTorch's: paths, sharing, modes, freezing, states, copies,
files."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath import nn
from magmath.errors import MagmathError, OptionError, ShapeError, WeightsError

POOLS = [("inline", 1), ("shared", 2), ("processes", 2)]


@pytest.fixture(autouse=True, params=POOLS, ids=lambda pool: f"{pool[0]}-{pool[1]}")
def _pool(request: pytest.FixtureRequest) -> Iterator[None]:
    with current(*request.param):
        yield


class Inner(nn.Module):
    def __init__(self) -> None:
        self.dense = nn.Dense(3)
        self.scale = nn.Parameter(2.0, (3,))
        self.calls = nn.Buffer(0, dtype="int64")

    def __call__(self, x: mm.Array) -> mm.Array:
        self.calls += 1
        return self.dense(x) * self.scale


class Outer(nn.Module):
    def __init__(self) -> None:
        self.blocks = [Inner(), {"a": Inner(), "b": (nn.Dropout(0.5), nn.LayerNorm())}]
        self.again = self.blocks[0]
        self.head = nn.Sequential(nn.Dense(4, activation="relu"), nn.Dense(2))

    def __call__(self, x: mm.Array) -> mm.Array:
        x = self.again(self.blocks[1]["a"](self.blocks[0](x)))
        drop, norm = self.blocks[1]["b"]
        return self.head(norm(drop(x)))


PATHS = [
    "blocks.0.dense.weight", "blocks.0.dense.bias", "blocks.0.scale", "blocks.1.a.dense.weight",
    "blocks.1.a.dense.bias", "blocks.1.a.scale", "blocks.1.b.1.weight", "blocks.1.b.1.bias",
    "head.0.weight", "head.0.bias", "head.1.weight", "head.1.bias",
]  # fmt: skip
X = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32)


def outer() -> Outer:
    module = Outer()
    module.build((8, 3))
    return module


def test_paths_are_names() -> None:
    module = Outer()
    assert not module.is_built
    with pytest.raises(
        MagmathError, match=r"layer 'blocks\.0\.dense' \(Dense\) has no weight.*build\(shape\)"
    ):
        module.parameters()
    with pytest.raises(MagmathError, match=r"build\(shape\)"):
        module.state_dict()
    assert module.build((8, 3)) is module
    assert [path for path, _ in module.named_parameters()] == PATHS
    assert [p.name for p in module.parameters()] == PATHS
    assert [path for path, _ in module.named_buffers()] == ["blocks.0.calls", "blocks.1.a.calls"]
    assert module.aliases()["again.dense.weight"] == "blocks.0.dense.weight"
    assert dict(module.named_modules())["blocks.1.b.0"] is module.blocks[1]["b"][0]
    assert module.blocks[0].calls.tolist() == 0, "an abstract call assigns nothing"
    with pytest.raises(ShapeError, match=r"variable head\.0\.weight has shape \(3, 4\)"):
        module.head[0].weight.assign(np.zeros(3))


def test_the_walk_is_kept_until_parts_change() -> None:
    module = outer()
    result = module._current_inventory()
    module(mm.asarray(X))
    module.training = False
    assert module._current_inventory() is result
    module.blocks.append(nn.Parameter(1.0, (2,)))
    assert [p for p, _ in module.named_parameters()][8] == "blocks.2"
    module.head = nn.Dense(7)
    assert not module.is_built
    module.head = nn.Identity()
    assert "head.0.weight" not in dict(module.named_parameters())


def test_calls_that_store_results_do_not_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a recurrent module that stores its state in a tuple."""

    class Stateful(nn.Module):
        def __init__(self) -> None:
            self.dense = nn.Dense(3)
            self.state: tuple[mm.Array, ...] = ()

        def __call__(self, x: mm.Array) -> mm.Array:
            self.state = (self.dense(x),)
            return self.state[0]

    module, x = Stateful(), mm.asarray(X)
    module(x)
    with monkeypatch.context() as patch:
        patch.setattr("magmath.nn.module.Inventory", None)
        module(x)
    assert [v.name for v in module.parameters()] == ["dense.weight", "dense.bias"]


def test_two_parts_of_one_path_are_refused() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            self.parts_by_key = {1: nn.Parameter(1.0), "1": nn.Parameter(2.0)}

    with pytest.raises(MagmathError, match=r"two different parts have the path 'parts_by_key\.1'"):
        Twice().parameters()


def test_modes_and_compiled_functions() -> None:
    """A compiled function is traced again when a mode, a part, or what is frozen changes."""
    module = nn.Sequential(nn.Dense(3), nn.Dropout(0.5, seed=1)).build((8, 3))
    f = mm.compile(module)
    x = mm.asarray(X)
    assert not np.array_equal(f(x).numpy(), f(x).numpy())
    module.eval()
    assert not any(m.training for m in module.modules())
    np.testing.assert_array_equal(f(x).numpy(), f(x).numpy())
    np.testing.assert_allclose(f(x).numpy(), module(x).numpy(), rtol=1e-6)
    module.layers = (nn.Identity(), module.layers[1])
    np.testing.assert_array_equal(f(x).numpy(), X)
    count = []
    dense = nn.Dense(2).build((8, 3))
    g = mm.compile(lambda x: (count.append(len(dense.trainable())), dense(x))[1])
    g(x)
    dense.freeze("bias")
    g(x)
    g(x)
    dense.unfreeze()
    g(x)
    assert count == [2, 1, 2]


def test_freeze_takes_paths_patterns_and_functions() -> None:
    module = outer()
    assert module.freeze("blocks.*.dense") is module
    frozen = {path for path, p in module.named_parameters() if not p.trainable}
    assert frozen == {"blocks.0.dense.weight", "blocks.0.dense.bias"}
    module.freeze("head").freeze(lambda path, p: p.ndim == 2)
    assert [p.name for p in module.trainable()] == [
        "blocks.0.scale", "blocks.1.a.dense.bias", "blocks.1.a.scale", "blocks.1.b.1.weight",
        "blocks.1.b.1.bias",
    ]  # fmt: skip
    assert len(module.unfreeze().trainable()) == len(PATHS)
    with pytest.raises(MagmathError, match=r"no parameter has the path 'encoder'.*head\.1\.bias"):
        module.freeze("encoder")


def test_freeze_needs_only_the_layers_that_it_may_select() -> None:
    module = outer()
    module.extra = mm.nn.Dense(3)
    module.freeze("blocks.*.dense")
    assert not module.blocks[0].dense.weight.trainable
    module.unfreeze("blocks")
    assert module.blocks[0].dense.weight.trainable
    for which in (None, "extra", "*", "*.weight", lambda path, p: False):
        with pytest.raises(
            MagmathError, match=r"freeze: the layer 'extra' \(Dense\) has no weight yet"
        ):
            module.freeze(which)


def test_states_round_trip(tmp_path: Path) -> None:
    module = outer()
    module(mm.asarray(X))
    state = module.state_dict()
    outputs = module.eval()(mm.asarray(X)).numpy()
    assert int(state["blocks.0.calls"]) == 2
    for p in module.parameters():
        p += 1.0
    assert not np.array_equal(state["head.1.bias"].numpy(), module.head[1].bias.numpy())
    other = outer().eval()
    assert other.load_state_dict(state) == ([], [])
    np.testing.assert_allclose(other(mm.asarray(X)).numpy(), outputs, rtol=1e-6)
    module.load_state_dict(state)
    path = tmp_path / "module.safetensors"
    module.save(path)
    third = outer().eval()
    third.load(path)
    np.testing.assert_allclose(third(mm.asarray(X)).numpy(), outputs, rtol=1e-6)


def test_what_does_not_fit_is_listed() -> None:
    module = outer()
    state: dict[str, Any] = {k: v.numpy() for k, v in module.state_dict().items()}
    before = state["blocks.0.scale"]
    state["head.0.bias"] = np.zeros(5, np.float32)
    state["blocks.0.scale"] = before + 1
    del state["head.1.bias"], state["head.1.weight"]
    state["tail.weight"] = np.zeros(3)
    with pytest.raises(WeightsError) as error:
        module.load_state_dict(state)
    for text in (r"head.0.bias has shape (4,), was given (5,)",
                 "missing: head.1.weight, head.1.bias", "not in the module: tail.weight"):  # fmt: skip
        assert text in str(error.value)
    np.testing.assert_array_equal(module.blocks[0].scale.numpy(), before)
    del state["head.0.bias"]
    missing, unexpected = keys = module.load_state_dict(state, strict=False)
    assert missing == keys.missing_keys == ["head.0.bias", "head.1.weight", "head.1.bias"]
    assert unexpected == keys.unexpected_keys == ["tail.weight"]
    np.testing.assert_array_equal(module.blocks[0].scale.numpy(), before + 1)


def test_shared_parts_of_files(tmp_path: Path) -> None:
    """What a file's module shares, one that does not share finds under both paths."""
    layer = nn.Dense(3)
    tied = nn.Sequential(layer, layer).build((2, 3))
    apart = nn.Sequential(nn.Dense(3), nn.Dense(3)).build((2, 3))
    tied.save(tmp_path / "tied.safetensors")
    apart.load(tmp_path / "tied.safetensors")
    np.testing.assert_array_equal(apart[1].weight.numpy(), layer.weight.numpy())
    assert len(tied.parameters()) == 2
    tied.load_state_dict(apart.state_dict())  # under the further path too


@pytest.mark.parametrize("way", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy])
def test_copies_share_nothing_but_what_is_shared_in_them(way: Any) -> None:
    module = outer()
    module.freeze("head")
    made = way(module)
    assert made.again is made.blocks[0]
    assert [p.trainable for p in made.parameters()] == [p.trainable for p in module.parameters()]
    x = mm.asarray(X)
    expected = module.eval()(x).numpy()
    for p in module.parameters():
        p += 1.0
    np.testing.assert_allclose(made.eval()(x).numpy(), expected, rtol=1e-6)
    assert [type(v) for v in made.buffers()] == [nn.Buffer] * 2


def test_text() -> None:
    module = Outer()
    text = repr(module)
    assert text.startswith("Outer(\n  (blocks.0): Inner(\n    (dense): Dense(units=3")
    assert "  (head): Sequential(\n    (0): Dense(units=4, activation='relu')" in text
    table = module.summary((8, 3))
    assert table.splitlines()[-1] == f"{sum(p.size for p in module.parameters()):,} parameters"
    (line,) = [line for line in table.splitlines() if line.startswith("head.0:")]
    assert "(8, 4)" in line
    assert line.endswith("16")
    module.freeze("head")
    assert module.summary((8, 3)).endswith("26 of them frozen")


def test_random_states_are_saved_and_go_on() -> None:
    """A stream of a layer's own: eager, compiled, and after its state was restored."""
    layer = nn.Dropout(0.5, seed=3)
    x = mm.ones((4, 5))
    first = layer(x).numpy()
    state = layer.state_dict()
    second = layer(x).numpy()
    assert not np.array_equal(first, second)
    other = nn.Dropout(0.5, seed=3)
    f = mm.compile(other)
    np.testing.assert_array_equal(f(x).numpy(), first)
    np.testing.assert_array_equal(f(x).numpy(), second)
    other.load_state_dict(state)
    np.testing.assert_array_equal(f(x).numpy(), second)
    generator = mm.random.Generator(3)
    kept = generator.uniform(shape=(4, 5)).numpy() >= 0.5
    np.testing.assert_array_equal(first != 0, kept)


@pytest.mark.parametrize("kind", ["layer", "module", "built"])
def test_random_states_are_saved_before_the_first_call(kind: str) -> None:
    class Noisy(nn.Module):
        def __init__(self) -> None:
            self.scale, self.drops = nn.Parameter(1.0), [nn.Dropout(0.5, seed=3)]

        def __call__(self, x: mm.Array) -> mm.Array:
            return self.scale * self.drops[0](x)

    make: Any = {
        "layer": lambda: nn.Dropout(0.5, seed=3),
        "module": Noisy,
        "built": lambda: nn.Sequential(nn.Dense(2), nn.Dropout(0.5, seed=3)).build((4, 5)),
    }[kind]
    x, layer, fresh = mm.ones((4, 5)), make(), make()
    state = layer.state_dict()
    path = {"layer": "rng", "module": "drops.0.rng", "built": "1.rng"}[kind]
    assert path in state
    assert [name for name, _ in layer.named_buffers()] == [path]
    first = layer(x).numpy()
    fresh.load_state_dict(layer.state_dict())  # of a module that was called
    np.testing.assert_array_equal(fresh(x).numpy(), layer(x).numpy())
    layer.load_state_dict(state)
    np.testing.assert_array_equal(layer(x).numpy(), first)


def test_initial_values_take_no_number_of_the_sequence() -> None:
    """So it does not matter whether a layer is built before, or by the first call."""
    draws = []
    for early in (True, False):
        mm.random.seed(5)
        module = nn.Sequential(nn.Dense(4), nn.Dropout(0.5), nn.Dense(2))
        if early:
            module.build((8, 3))
        draws.append((module(mm.asarray(X)).numpy(), mm.random.uniform(shape=(3,)).numpy()))
    np.testing.assert_array_equal(draws[0][0], draws[1][0])
    np.testing.assert_array_equal(draws[0][1], draws[1][1])


@pytest.mark.parametrize("make", [lambda: nn.Dense(3, activation="tanh"), Outer])
def test_modules_are_compiled_as_they_are(make: Any) -> None:
    """The first call makes the parameters, which exist outside of the function that is traced."""
    x, module = mm.asarray(X), make().eval()
    f = mm.compile(module)
    np.testing.assert_allclose(f(x).numpy(), module(x).numpy(), rtol=1e-5, atol=1e-6)
    for p in module.parameters():
        p *= 0.5
    np.testing.assert_allclose(f(x).numpy(), module(x).numpy(), rtol=1e-5, atol=1e-6)


def test_a_compiled_step_builds_the_module() -> None:
    module, optimizer = Outer(), mm.optim.Adam(1e-2)

    @mm.compile
    def step(x: mm.Array) -> mm.Array:
        loss = mm.mean(mm.square(module(x)))
        parameters = module.trainable()
        optimizer.update(dict(zip(parameters, mm.grad(loss, parameters), strict=True)))
        return loss

    losses = [float(step(mm.asarray(X))) for _ in range(10)]
    assert losses[-1] < losses[0]
    assert int(module.blocks[0].calls) == 20


def test_mistakes() -> None:
    with pytest.raises(MagmathError, match=r"mm\.nn\.Dense\(…\), with parentheses"):
        nn.Sequential(nn.Dense)
    with pytest.raises(
        ShapeError, match=r"Dense: 1\.weight \(4, 2\) takes 4 inputs, was given \(2, 5\)"
    ):
        nn.Sequential(nn.Dense(4), nn.Dense(2)).build((1, 3))[1](mm.ones((2, 5)))
    with pytest.raises(ShapeError, match=r"needs the shape of each input.*given 3"):
        nn.Dense(3).build(3)
    with pytest.raises(NotImplementedError, match=r"Empty: a module needs a method __call__"):
        type("Empty", (nn.Module,), {})()(1)
    with pytest.raises(ShapeError, match=r"needs a value of shape \(2,\), was given \(3,\)"):
        nn.Parameter([1.0, 2.0, 3.0], (2,))


def test_arrays_of_other_libraries_are_inputs_and_targets() -> None:
    """Modules, losses and metrics take arrays of NumPy; modules also tensors of PyTorch."""
    import torch

    module, labels = nn.Sequential(nn.Dense(4, activation="tanh"), nn.Dense(3)), np.arange(8) % 3
    expected = module(mm.asarray(X))
    for given in (X, torch.from_numpy(X)):
        np.testing.assert_array_equal(module(given).numpy(), expected.numpy())
    own = mm.asarray(labels)
    for loss in (nn.cross_entropy, nn.hinge):
        given = loss(expected.numpy(), labels), loss(expected, labels)
        np.testing.assert_allclose([float(x) for x in given], float(loss(expected, own)), rtol=1e-6)
    for metric in (nn.metrics.accuracy, nn.metrics.f1):
        assert float(metric(expected.numpy(), labels)) == float(metric(expected, own))


def test_arguments_of_compiled_steps_in_another_order() -> None:
    module, adam = mm.nn.Dense(2), mm.optim.Adam(0.1)
    with pytest.raises(MagmathError, match=r"CompiledStep\(loss, module, optimizer\): 'cross"):
        mm.parallel.CompiledStep(module, "cross_entropy", adam)  # type: ignore[arg-type]
    with pytest.raises(MagmathError, match="CompiledStep: the loss is a name or a function"):
        mm.parallel.CompiledStep(3, module, adam)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="loss 'entropy' is not known; there are cross_entropy"):
        mm.parallel.CompiledStep("entropy", module, adam)
    step = mm.parallel.CompiledStep("cross_entropy", module.build((2, 3)), adam)
    with pytest.raises(MagmathError, match=r"takes inputs and targets, was given 1 arguments"):
        step(np.ones((2, 3), np.float32))


@pytest.mark.parametrize("precision", [None, "mixed-bfloat16"])
def test_compiled_steps_take_names_of_losses(precision: str | None) -> None:
    x, y = np.random.default_rng(1).normal(size=(8, 3)), np.arange(8) % 2
    losses = []
    for loss in ("cross_entropy", None):
        mm.random.seed(2)
        module = mm.nn.Sequential(mm.nn.Dense(4, activation="relu"), mm.nn.Dense(2)).build((8, 3))
        given: Any = loss or (lambda x, y, module=module: mm.nn.cross_entropy(module(x), y))
        step = mm.parallel.CompiledStep(given, module, mm.optim.Adam(0.1), precision=precision)
        losses.append([float(step(mm.asarray(x, dtype=mm.float32), y)) for _ in range(3)])
    np.testing.assert_allclose(losses[0], losses[1], rtol=1e-2 if precision else 1e-6)
    assert losses[0][-1] < losses[0][0]


def test_mistakes_of_states_and_training() -> None:
    module = nn.Sequential(nn.Dense(2)).build((1, 3))
    for wrong, message in (
        ([1, 2], r"load_state_dict: needs a dictionary of arrays by path, was given a list"),
        ({"0.weight": None, "0.bias": np.zeros(2)}, r"load_state_dict: 0\.weight has no valid"),
    ):
        with pytest.raises((TypeError, WeightsError), match=message):
            module.load_state_dict(wrong)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"freeze: needs a path, a function .*, was given 3"):
        module.freeze(3)  # type: ignore[arg-type]
    with pytest.raises(MagmathError, match=r"freeze: the layer '0' \(Dense\) has no weight yet"):
        nn.Sequential(nn.Dense(2)).freeze()
    with pytest.raises(AttributeError, match=r"shape: weight of Dense does not exist yet"):
        _ = nn.Dense(2).weight.shape
    weight, loss = nn.Dense(2).weight, mm.sum(mm.ones(3))
    for use in (
        lambda: mm.sum(weight),
        lambda: len(weight),
        lambda: mm.grad(loss, weight),
        lambda: mm.optim.Adam().update({weight: mm.ones(2)}),
        lambda: mm.optim.Adam().minimize(loss, [weight]),
        lambda: mm.value_and_grad(lambda: loss, [weight]),
    ):
        with pytest.raises((TypeError, MagmathError), match=r"yet.* module\.build\(shape\)"):
            use()
    module.freeze()
    step = mm.parallel.CompiledStep(lambda x: mm.sum(module(x)), module, mm.optim.Adam(0.1))
    with pytest.raises(MagmathError, match=r"CompiledStep: .* frozen; call module\.unfreeze"):
        step(X)
    with pytest.raises(MagmathError, match=r"fit: .* frozen; call module\.unfreeze\(\)"):
        mm.train.Trainer(module).fit(X, np.zeros(8, np.int64))


class _Factor(mm.nn.Module):
    """A setting that another module reads."""

    factor = 1.0


class _Scaled(mm.nn.Module):
    """Reads a number, an array, a function and a part's number, and counts its calls."""

    def __init__(self) -> None:
        self.dense, self.drop = mm.nn.Dense(3), mm.nn.Dropout(0.5, seed=1)
        self.factor, self.mask, self.act = 1.0, mm.ones(3), mm.tanh
        self.calls, self.last, self.rest = 0, None, _Factor()

    def __call__(self, x: Any) -> Any:
        self.calls += 1
        self.last = x
        return self.drop(self.act(self.dense(x)) * self.factor * self.mask) * self.rest.factor


def test_compiled_functions_see_assigned_attributes() -> None:
    net = _Scaled()
    x = mm.asarray(np.random.default_rng(0).normal(size=(4, 2)))
    net.build(x.shape)
    net.eval()
    compiled = mm.compile(lambda x: net(x))

    def change(name: str, value: Any) -> None:
        setattr(net, name, value)

    compiled(x)
    for name, value in [
        ("factor", 3.0), ("mask", mm.asarray([1.0, 0.0, 2.0])), ("act", mm.relu), ("factor", 0),
    ]:  # fmt: skip
        change(name, value)
        np.testing.assert_allclose(compiled(x).numpy(), net(x).numpy(), rtol=1e-6)
    net.factor = 2.0
    net.train()
    net.drop.rate = 0.0
    np.testing.assert_allclose(compiled(x).numpy(), net(x).numpy(), rtol=1e-6)
    net.rest.factor = 0.5
    np.testing.assert_allclose(compiled(x).numpy(), net(x).numpy(), rtol=1e-6)
    calls = net.calls
    for _ in range(3):
        compiled(x)
        net.factor = 2.0  # the same
    assert net.calls == calls, "the function was traced again"


def test_training_and_prediction_see_assigned_attributes() -> None:
    net = _Scaled()
    net.drop.rate = 0.0
    x, y = np.ones((4, 2), np.float32), np.zeros((4, 3), np.float32)
    trainer = mm.train.Trainer(net, "mean_squared_error", mm.optim.GradientDescent(0.0))
    first = trainer.fit(x, y).loss[0]
    assert trainer.evaluate(x, y)["loss"] == pytest.approx(first)
    predicted = trainer.predict(x)
    net.factor = 10.0
    assert trainer.fit(x, y).loss[-1] == pytest.approx(100 * first)
    assert trainer.evaluate(x, y)["loss"] == pytest.approx(100 * first)
    np.testing.assert_allclose(trainer.predict(x), 10 * predicted, rtol=1e-5)


class Listed(mm.nn.Module):
    """Layers in a list and in a dictionary, and a list of results, which may grow."""

    def __init__(self) -> None:
        self.layers = [mm.nn.Dense(8), mm.nn.Dense(3)]
        self.heads = {"a": mm.nn.Dense(2)}
        self.losses: list[float] = []

    def __call__(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return self.heads["a"](x)


def _replaced(net: Listed) -> None:
    net.layers[1] = mm.nn.Dense(3).build((1, 8))


def _appended(net: Listed) -> None:
    net.layers.append(mm.nn.Dense(4).build((1, 3)))
    net.heads["a"] = mm.nn.Dense(2).build((1, 4))


def _other_head(net: Listed) -> None:
    net.heads["a"] = mm.nn.Dense(5).build((1, 3))


def _popped(net: Listed) -> None:
    net.layers.pop()
    net.heads["a"] = mm.nn.Dense(2).build((1, 8))


@pytest.mark.parametrize("change", [_replaced, _appended, _other_head, _popped])
def test_changes_in_lists_of_modules_are_seen(change: Any) -> None:
    draw = np.random.default_rng(0)
    x, y = draw.normal(size=(24, 6)).astype("float32"), draw.integers(0, 2, 24)
    net = Listed().build((1, 6))
    trainer = mm.train.Trainer(net, optimizer="adam", seed=0)
    trainer.fit(x, y, epochs=1)
    compiled = mm.compile(lambda x: net(x))
    compiled(x), trainer.predict(x), trainer.evaluate(x, y)
    change(net)
    assert _close(compiled(x), net(x))
    assert _close(trainer.predict(x), net(x))
    head = net.heads["a"].weight.numpy().copy()
    trainer.fit(x, y, epochs=2)
    assert (head != net.heads["a"].weight.numpy()).any()
    assert trainer.evaluate(x, y)["loss"] == pytest.approx(
        float(mm.nn.cross_entropy(net(x), y)), rel=1e-4
    )


def _close(some: Any, others: Any) -> bool:
    return some.shape == others.shape and np.allclose(some.numpy(), others.numpy(), atol=1e-5)


def test_lists_of_results_do_not_trace_again() -> None:
    net, traces = Listed().build((1, 6)), []

    @mm.compile
    def loss(x: Any) -> Any:
        traces.append(1)
        return mm.sum(net(x))

    for _ in range(4):
        net.losses.append(float(loss(mm.ones((2, 6)))))
    assert len(traces) == 1


@pytest.mark.parametrize("name", ["parts", "parameters", "state_dict"])
def test_attributes_do_not_replace_methods(name: str) -> None:
    with pytest.raises(AttributeError, match=f"{name} is a method of mm.nn.Module"):
        setattr(Listed(), name, [])


def test_layers_of_a_sequence_are_replaced_inserted_and_removed() -> None:
    net = nn.Sequential([nn.Dense(4), nn.ReLU(), nn.Dense(3)])
    net(mm.ones((2, 5)))
    net[1] = mm.tanh
    net.insert(0, nn.LayerNorm())
    net.extend([nn.Softmax(), nn.Identity()])
    del net[-1]
    assert [type(layer).__name__ for layer in net] == [
        "LayerNorm", "Dense", "Lambda", "Dense", "Softmax",
    ]  # fmt: skip
    assert net(mm.ones((2, 5))).shape == (2, 3)
    assert [path for path, _ in net.named_parameters()][:3] == ["0.weight", "0.bias", "1.weight"]
    with pytest.raises(IndexError):
        net[7] = nn.ReLU()


def test_buffers_of_a_file_may_be_infinite(tmp_path: Path) -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            self.mask = nn.Buffer(np.array([0.0, -np.inf], np.float32))
            self.scale = nn.Parameter(np.ones(2, np.float32))

    module, path = Masked(), tmp_path / "masked.safetensors"
    module.save(path)
    other = Masked()
    other.mask.assign(np.zeros(2, np.float32))
    other.load(path)
    assert other.mask.tolist() == [0.0, -np.inf]
    module.scale.assign([1.0, np.inf])
    module.save(path)
    with pytest.raises(WeightsError, match="parameter scale holds nan or infinite values"):
        other.load(path)


class Scaled(nn.Sequential):  # type: ignore[misc]
    """A sequence with a parameter and a module of its own, as users of PyTorch write it."""

    def __init__(self) -> None:
        super().__init__(nn.Dense(4))
        self.scale, self.drop = nn.Parameter(1.0, (4,)), nn.Dropout(0.5)

    def __call__(self, x: mm.Array) -> Any:
        return self.drop(super().__call__(x) * self.scale)


def test_attributes_of_containers_are_parts() -> None:
    net = Scaled().build((1, 8)).eval()
    assert [name for name, _ in net.named_parameters()] == ["0.weight", "0.bias", "scale"]
    assert not net.drop.training
    branches = nn.Parallel(nn.Dense(2), nn.Dense(3))
    branches.extra = nn.Dense(1)
    assert [path for path, _ in branches.named_modules()] == ["", "0", "1", "extra"]


class FrozenMoments(nn.Module):
    """A module whose batch normalization stays in evaluation mode."""

    def __init__(self) -> None:
        self.norm = nn.BatchNorm()

    def train(self, mode: bool = True) -> nn.Module:
        super().train(mode)
        self.norm.eval()
        return self

    def __call__(self, x: mm.Array) -> Any:
        return self.norm(x)


def test_inner_modules_may_choose_their_mode() -> None:
    x, y = np.random.default_rng(0).normal(size=(8, 3)).astype(np.float32), np.arange(8) % 3
    net = nn.Sequential(FrozenMoments(), nn.Dense(3), nn.Dropout(0.5)).build((4, 3))
    net.eval().train()
    assert [m.training for m in net.modules()] == [True, True, False, True, True]
    net(x)
    trainer = mm.train.Trainer(net, "cross_entropy")
    trainer.fit(x, y, epochs=2)
    trainer.fit(x, y, epochs=1)
    np.testing.assert_array_equal(net[0].norm.running_mean, np.zeros(3))
    assert [m.training for m in net.modules()] == [True, True, False, True, True]


def test_compiled_functions_see_the_flags_of_parameters() -> None:
    net, rule = nn.Dense(1).build((1, 3)), mm.optim.GradientDescent(0.1)

    @mm.compile
    def step(x: Any) -> None:
        rule.update(mm.value_and_grad(lambda: mm.mean(net(x) ** 2), net.trainable())[1])

    x = np.ones((4, 3), np.float32)
    step(x)
    weight, bias = net.weight.numpy(), net.bias.numpy()
    net.weight.trainable = False
    step(x)
    np.testing.assert_array_equal(net.weight.numpy(), weight)
    assert (net.bias.numpy() != bias).all()


def test_a_freeze_that_fails_freezes_nothing() -> None:
    class Tempered(nn.Module):
        def __init__(self) -> None:
            self.dense, self.temperature = nn.Dense(1), mm.variable("temperature", 1.0)

        def __call__(self, x: mm.Array) -> Any:
            return self.dense(x) * self.temperature

    net = Tempered().build((1, 3))
    with pytest.raises(OptionError, match="always trained"):
        net.freeze()
    assert len(net.trainable()) == 3


@pytest.mark.parametrize("way", ["build", "call", "fit"])
def test_an_input_that_does_not_fit_leaves_layers_without_a_shape(way: str) -> None:
    """So the right input is accepted afterwards, and has the initial values of a new network."""
    layers = lambda: [nn.Conv2d(2, 3), nn.Flatten(), nn.Dense(3)]  # noqa: E731
    net, other = (nn.NeuralNetwork(layers(), seed=0) for _ in range(2))
    wrong = np.zeros((2, 4, 4, 1), np.float32)
    attempts = {
        "build": lambda: net.build(wrong.shape),
        "call": lambda: net.module(wrong),
        "fit": lambda: net.fit(wrong, np.zeros(2, int)),
    }
    with pytest.raises(ShapeError):
        attempts[way]()
    net.build((2, 1, 4, 4))
    other.build((2, 1, 4, 4))
    for name, value in net.state_dict().items():
        np.testing.assert_array_equal(value, other.state_dict()[name])


def test_another_module_of_a_network_is_that_of_its_trainer() -> None:
    x, y = np.ones((6, 4), np.float32), np.arange(6) % 3
    net = nn.NeuralNetwork([nn.Dense(8), nn.Dense(3)])
    net.fit(x, y)
    net.module = nn.Sequential(net.layers[0], nn.Dense(5))
    assert net.predict(x).shape == (6, 5)
    net.trainer.module = nn.Sequential(nn.Dense(3)).build((1, 2))
    assert net.input_shape is None
    assert net.predict(x[:, :2]).shape == (6, 3)
    net.fit(x[:, :2], y)
    assert net.input_shape == (2,)


def test_only_the_variables_of_the_failed_call_are_deferred_again() -> None:
    class Late(nn.Module):
        """A module that fails after its layer was called."""

        def __init__(self) -> None:
            self.dense = nn.Dense(2)

        def __call__(self, x: mm.Array, fails: bool = False) -> Any:
            y = self.dense(x)
            if fails:
                raise ValueError("of the user")
            return y

    x = np.ones((1, 3), np.float32)
    net = Late()
    with pytest.raises(ValueError, match="of the user"):
        net(x, True)
    weight = net.dense.weight
    with pytest.raises(ShapeError):
        nn.Dense(2).build((1, 2))(x)
    assert net.dense.weight is weight
    encoder, decoder = nn.Dense(3, bias=False), nn.Dense(3, bias=False)
    decoder.weight = encoder.weight
    encoder(x)
    with pytest.raises(ShapeError):
        decoder(np.ones((1, 4), np.float32))
    decoder(x)
    assert decoder.weight is encoder.weight


def test_overrides_of_train_set_the_former_mode_again() -> None:
    class Tempered(nn.Module):
        def __init__(self) -> None:
            self.dense, self.temperature = nn.Dense(1), 1.0

        def train(self, mode: bool = True) -> nn.Module:
            super().train(mode)
            self.temperature = 1.0 if mode else 0.5
            return self

        def __call__(self, x: mm.Array) -> Any:
            return self.dense(x) / self.temperature

    net, x = Tempered().build((1, 3)), np.ones((2, 3), np.float32)
    trainer = mm.train.Trainer(net, "mean_squared_error")
    np.testing.assert_allclose(trainer.predict(x), 2 * np.asarray(net(x)), rtol=1e-6)
    assert (net.training, net.temperature) == (True, 1.0)
    outer = nn.Sequential(net, nn.Dense(1)).build((1, 3))
    net.eval()
    mm.train.Trainer(outer, "mean_squared_error").fit(x, np.ones((2, 1), np.float32))
    assert (outer.training, net.training, net.temperature) == (True, False, 0.5)


def test_copies_of_a_network_do_not_trace_again() -> None:
    net, traces = nn.Dense(1).build((1, 3)), []

    @mm.compile
    def step(x: Any) -> Any:
        traces.append(1)
        return mm.value_and_grad(lambda: mm.mean(net(x) ** 2), net.trainable())[0]

    for _ in range(3):
        step(np.ones((2, 3), np.float32))
        copy.deepcopy(net)
    assert len(traces) == 1

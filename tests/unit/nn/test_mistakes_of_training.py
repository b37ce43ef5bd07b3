"""Mistakes in training loops: each message names the operation, what it needs, what it was given,
and the remedy."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from engines import current
from magmath.errors import (
    DataError,
    DTypeError,
    MagmathError,
    OptionError,
    RangeError,
    ShapeError,
    TracingError,
    WeightsError,
)


def case() -> Any:
    """A network, its loss, an optimizer, and a variable."""
    net = mm.nn.Sequential(mm.nn.Dense(4, activation="relu"), mm.nn.Dense(2)).build((1, 8))
    x, y = mm.ones((3, 8)), mm.asarray([0, 1, 0])
    return SimpleNamespace(
        net=net, x=x, loss=lambda: mm.nn.cross_entropy(net(x), y), optimizer=mm.optim.Adam(0.1),
        v=mm.variable("v", np.ones(3)), state=net.state_dict(), gradient=mm.ones(3),
    )  # fmt: skip


class Lazy(mm.nn.Module):
    """A module that makes no `weight` in its call."""

    def __init__(self, reads: bool) -> None:
        self.weight = mm.nn.deferred(mm.zeros)
        self.reads = reads

    def __call__(self, x: mm.Array) -> mm.Array:
        return x * self.weight if self.reads else x


class Unused(mm.nn.Module):
    def __init__(self) -> None:
        self.used, self.head = mm.nn.Dense(2), mm.nn.Dense(3)

    def __call__(self, x: mm.Array) -> mm.Array:
        return self.used(x)


DATA = np.ones((4, 8), dtype=np.float32), np.zeros(4, dtype=np.int64)


def mean_of_values(outputs: mm.Array, targets: mm.Array) -> mm.Array:
    return mm.mean(outputs) + np.asarray(targets).mean()


class NeedsValue(mm.nn.Module):
    def __call__(self, x: mm.Array) -> mm.Array:
        return x / float(mm.sum(x))


def called(module: Any) -> Any:
    """Return the module after a call."""
    module(mm.ones((3, 8)))
    return module


def trainer(t: Any, *args: Any, **options: Any) -> mm.train.Trainer:
    return mm.train.Trainer(t.net, *args, **options)


def torch_layer() -> torch.nn.Linear:
    return torch.nn.Linear(8, 2)


def loaded(t: Any, value: Any) -> object:
    return t.net.load_state_dict({**t.state, "0.weight": value})


MISTAKES: list[tuple[Callable[[Any], object], type[Exception], str]] = [
    (lambda t: t.optimizer.update({}), MagmathError,
     r"update: needs the gradient of at least one variable.*empty dictionary; .*module\.unfreeze\(\)"),
    (lambda t: t.optimizer.update({}, mm.optim.LossScale()), MagmathError, r"update: needs.*at least one"),
    (lambda t: t.optimizer.minimize(t.loss(), []), MagmathError,
     r"minimize: needs at least one variable, was given an empty list; .*unfreeze"),
    (lambda t: mm.value_and_grad(t.loss, t.net), TypeError, r"value_and_grad: .*given Sequential; .*module\.trainable\(\)"),
    (lambda t: mm.value_and_grad(t.loss, t.net[0]), TypeError, r"value_and_grad: .*given Dense; .*module\.trainable\(\)"),
    (lambda t: mm.value_and_grad(t.loss, [t.net]), TypeError, r"value_and_grad: .*given Sequential; .*trainable"),
    (lambda t: mm.value_and_grad(t.loss, t.x), TypeError, r"value_and_grad: .*given Array; .*value_and_grad\(f\)\(x\)"),
    (lambda t: mm.value_and_grad(t.loss, "v"), TypeError, r"value_and_grad: .*given str; give the variable itself"),
    (lambda t: mm.grad(t.loss(), t.net), TypeError, r"grad: needs magmath arrays, was given Sequential; .*trainable"),
    (lambda t: t.optimizer.minimize(t.loss(), t.net), TypeError, r"minimize: needs a list.*given Sequential; .*trainable"),
    (lambda t: t.optimizer.minimize(t.loss(), t.v), TypeError, r"minimize: .*given Variable; put it in a list: \[v\]"),
    (lambda t: t.optimizer.minimize(t.loss(), {"v": t.v}), TypeError, r"minimize: .*given dict; .*list\(d\.values\(\)\)"),
    (lambda t: t.optimizer.minimize(t.loss(), (v for v in [t.v])), TypeError, r"minimize: .*generator; .*list\(x\)"),
    (lambda t: t.optimizer.update([t.gradient]), TypeError,
     r"update: needs a dictionary of gradients by variable, was given list; .*dict\(zip\(variables, gradients\)\)"),
    (lambda t: t.optimizer.update(t.gradient), TypeError, r"update: needs a dictionary.*given Array; "),
    (lambda t: t.optimizer.update(None), TypeError, r"update: needs a dictionary.*given NoneType; "),
    (lambda t: t.optimizer.update(mm.value_and_grad(t.loss, t.net.trainable())), TypeError,
     r"update: needs a dictionary.*given tuple; mm\.value_and_grad returns .*second element"),
    (lambda t: t.optimizer.update(t.net), TypeError, r"update: needs a dictionary.*Sequential; .*value_and_grad"),
    (lambda t: t.optimizer.update({"v": t.gradient}), TypeError, r"update: the keys .*given str; give the variable itself"),
    (lambda t: t.optimizer.update({t.v: None}), TypeError, r"update: the gradient of variable v .*given None; leave"),
    (lambda t: t.optimizer.update({t.v: "a"}), TypeError, r"update of variable v: needs .*given str; convert text"),
    (lambda t: t.optimizer.update({t.v: 1j * t.gradient}), DTypeError,
     r"update: variable v is float64, so its gradient must be real, was given complex64; "),
    (lambda t: t.optimizer.update({t.v: mm.ones(4)}), ShapeError,
     r"update: variable v has shape \(3,\), its gradient \(4,\); .*mm\.grad\(loss, v\)"),
    (lambda t: t.optimizer.load_state_dict(t.optimizer), TypeError, r"load_state_dict: .*given Adam; give x\.state_dict\(\)"),
    (lambda t: mm.nn.Parameter(None), TypeError, r"Parameter: needs an array.*None; .*mm\.nn\.deferred\(function\)"),
    (lambda t: mm.nn.Buffer(None), TypeError, r"Buffer: needs an array.*None; .*deferred\(function, mm\.nn\.Buffer\)"),
    (lambda t: t.net(mm.ones((64, 5))), ShapeError, r"layer 0 .*takes 8 inputs, was given \(64, 5\); give 8 features"),
    (lambda t: t.net(mm.ones((64, 2, 4))), ShapeError, r"takes 8 inputs, was given \(64, 2, 4\); put Flatten\(\)"),
    (lambda t: t.net(mm.ones((64, 2, 5))), ShapeError, r"takes 8 inputs, was given \(64, 2, 5\); give 8 features"),
    (lambda t: Lazy(True).build((1, 3)), MagmathError,
     r"multiply: weight of Lazy does not exist yet.*in Lazy\.__call__ first call self\.materialize\(weight=shape\)"),
    (lambda t: Lazy(True)(mm.ones((1, 3))), MagmathError, r"multiply: weight of Lazy .*self\.materialize\(weight=shape\)"),
    (lambda t: Lazy(False).build((1, 3)), MagmathError,
     r"build: the layer \(Lazy\) has no weight after its call; call self\.materialize\(weight=shape\) in Lazy"),
    (lambda t: mm.nn.Sequential(Lazy(False)).summary((1, 3)), MagmathError, r"summary: the layer '0' \(Lazy\) .*after its call"),
    (lambda t: Lazy(False).parameters(), MagmathError, r"parameters: .*Lazy.*self\.materialize\(weight=shape\)"),
    (lambda t: Unused().build((1, 3)), MagmathError,
     r"build: the layer 'head' \(Dense\) has no \w+ because the call of Unused does not call this layer; "),
    (lambda t: called(Unused()).parameters(), MagmathError,
     r"parameters: the layer 'head' \(Dense\) has no \w+ yet.*; if Unused has been called, its call does not use "
     r"this layer: call it in __call__, or remove it"),
    (lambda t: called(Unused()).state_dict(), MagmathError, r"state_dict: .*'head'.*does not use this layer"),
    (lambda t: called(Unused()).freeze("head"), MagmathError, r"freeze: .*'head'.*does not use this layer"),
    (lambda t: called(Unused()).freeze("*.weight"), MagmathError, r"freeze: the layer 'head' \(Dense\) has no weight"),
    (lambda t: called(Unused()).unfreeze(lambda path, p: True), MagmathError, r"unfreeze: the layer 'head' "),
    (lambda t: mm.train.Trainer(Unused()).fit(t.x, mm.asarray([0, 1, 0])), MagmathError,
     r"'head' \(Dense\) has no .*does not use this layer"),
    (lambda t: t.net.build(), ShapeError, r"build: Dense takes the inputs \(x\), was given 0 shapes; .*build\(\(1, 784\)\)"),
    (lambda t: t.net.summary(), ShapeError, r"summary: Dense takes the inputs \(x\), .*summary\(\(1, 784\)\)"),
    (lambda t: t.net.build((1, 8), (1, 8)), ShapeError, r"build: Dense takes the inputs \(x\), was given 2 shapes; "),
    (lambda t: mm.nn.Add().build(), ShapeError, r"build: Add takes the inputs \(\*inputs\), was given 0 shapes; "),
    (lambda t: t.net.load_state_dict(t.net), TypeError, r"load_state_dict: .*given a Sequential; give x\.state_dict\(\)"),
    (lambda t: t.net.load_state_dict(torch.nn.Linear(8, 4)), TypeError, r"load_state_dict: .*Linear; give x\.state_dict"),
    (lambda t: t.net.load_state_dict("a.safetensors"), TypeError, r"load_state_dict: .*given a str; module\.load\(path\)"),
    (lambda t: trainer(t, metrics=[mean_of_values]).fit(*DATA), TracingError,
     r"^a value was requested while fit compiles the metric 'mean_of_values': .*functions of mm .*a callback of fit$"),
    (lambda t: trainer(t, partial(mean_of_values)).fit(*DATA), TracingError, r"while fit compiles the loss 'mean_of_values': "),
    (lambda t: mm.train.Trainer(NeedsValue()).fit(*DATA), TracingError, r"while magmath compiles the module NeedsValue: "),
    (lambda t: NeedsValue().build((1, 8)), TracingError, r"while magmath compiles the module NeedsValue: "),
    (lambda t: trainer(t, metrics=[mean_of_values]).evaluate(*DATA), TracingError,
     r"while evaluate compiles the metric 'mean_of_values': "),
    (lambda t: trainer(t, mean_of_values).evaluate(*DATA), TracingError, r"while evaluate compiles the loss 'mean_of_values': "),
    (lambda t: mm.compile(NeedsValue())(t.x), TracingError, r"while mm\.compile traces a function"),
    (lambda t: trainer(t, optimizer=SimpleNamespace(beta=0.9)), OptionError,
     r"optimizer namespace\(beta=0.9\) is not known; there are sgd, .*; for an optimizer of your own derive a class from "
     r"mm\.optim\.Optimizer that defines `states` and `rule`$"),
    (lambda t: trainer(t, optimizer=torch.optim.Adam(torch_layer().parameters())), OptionError,
     r"^optimizer: Adam of PyTorch is none of magmath; write mm\.optim\.Adam\(learning_rate\)$"),
    (lambda t: trainer(t, optimizer=torch.optim.SGD(torch_layer().parameters())), OptionError,
     r"^optimizer: SGD of PyTorch .*; write mm\.optim\.GradientDescent\(learning_rate\), or mm\.optim\.Momentum"),
    (lambda t: trainer(t, optimizer=torch.optim.ASGD(torch_layer().parameters())), OptionError,
     r"^optimizer: ASGD of PyTorch .*; for an optimizer of your own derive a class from mm\.optim\.Optimizer"),
    (lambda t: mm.train.Trainer(torch.nn.Sequential(torch_layer())), MagmathError,  # type: ignore[arg-type]
     r"^Trainer: Sequential of PyTorch is not a module of magmath; .* mm\.interop\.from_torch\(module, example\)$"),
    (lambda t: trainer(t, "mean_squared_error", metrics=["accuracy"]).fit(np.ones((64, 8)), np.ones((64, 2, 1))),
     DataError, r"the outputs are float32\[32, 2\], the targets float32\[32, 2, 1\]; leave `metrics` out"),
    (lambda t: mm.nn.binary_cross_entropy(mm.asarray([0.5, 3.0]), mm.ones(2)), RangeError,
     r"binary_cross_entropy: outputs are probabilities in \[0, 1\], was given 3\.0; .*binary_cross_entropy_with_logits"),
    (lambda t: mm.nn.binary_cross_entropy(np.asarray([-0.1, np.nan]), np.ones(2)), RangeError, r"was given -0\.1; "),
    (lambda t: mm.nn.mean_squared_error(mm.ones((32, 1)), mm.ones(32)), ShapeError,
     r"outputs \(32, 1\) and targets \(32,\) differ; give mm\.reshape\(targets, \(32, 1\)\)"),
    (lambda t: mm.nn.mean_squared_error(mm.ones((32, 2)), mm.ones(32, dtype="int64")), ShapeError, r"one_hot\(targets, 2\)"),
    (lambda t: mm.nn.mean_squared_error(mm.ones((32, 2)), mm.ones((16, 2))), ShapeError, r"a target for each sample"),
    (lambda t: mm.nn.mean_squared_error(mm.ones((32, 2)), mm.ones((32, 3))), ShapeError, r"must return \(3,\) numbers"),
]  # fmt: skip


@pytest.mark.parametrize(("make", "kind", "words"), MISTAKES)
def test_a_mistake_names_the_remedy(
    make: Callable[[Any], object], kind: type[Exception], words: str
) -> None:
    with current("inline"), pytest.raises(kind, match=words):
        make(case())


@pytest.mark.parametrize("form", ["update", "compiled", "minimize"])
def test_frozen_parameters_are_not_updated(form: str) -> None:
    """PyTorch's loops give an optimizer all parameters, and those that are frozen stay."""
    with current("inline"):
        t = case()
        loss, rule = t.loss, t.optimizer

        def step() -> mm.Array:
            value, gradients = mm.value_and_grad(loss, t.net.parameters())
            rule.update(gradients)
            return value

        steps: dict[str, Callable[[], object]] = {
            "update": step, "compiled": mm.compile(step),
            "minimize": lambda: rule.minimize(loss(), t.net.parameters()),
        }  # fmt: skip
        for _ in range(2):
            steps[form]()
            before = {path: v.numpy() for path, v in t.net.named_parameters()}
            t.net.freeze("0")
            with pytest.raises(MagmathError, match=r"0\.weight is frozen; .*module\.trainable\(\)"):
                steps[form]()
            for path, v in t.net.named_parameters():
                np.testing.assert_array_equal(v.numpy(), before[path])
            t.net.unfreeze()
        steps[form]()
        assert np.abs(t.net[0].weight.numpy() - before["0.weight"]).max() > 0


def test_a_frozen_network_has_a_value_and_no_gradients() -> None:
    with current("inline"):
        t = case()
        for step in (mm.value_and_grad, mm.optim.LossScale().value_and_grad):
            for call in (step, lambda *args, step=step: mm.compile(lambda: step(*args)[0])()):
                result = call(t.loss, t.net.freeze().trainable())
                value, gradients = result if isinstance(result, tuple) else (result, {})
                assert float(value) == float(t.loss())
                assert gradients == {}
        assert mm.grad(t.loss(), t.net.trainable()) == []
        t.net.unfreeze("1")
        value, gradients = mm.value_and_grad(t.loss, t.net.trainable())
        t.optimizer.update(gradients)
        assert [v.name for v, _ in gradients.items()] == ["1.weight", "1.bias"]


VALUES: list[tuple[Any, str]] = [
    (np.ones((8, 4)) * 1j, r"0\.weight is float32, was given complex128.*mm\.real"),
    ("a", r"0\.weight has no valid value: needs arrays, numbers .*given 'a'"),
    (np.array([["a"] * 4] * 8), r"0\.weight has no valid value: NumPy type <U1"),
    (None, r"0\.weight has no valid value: needs arrays.*given None"),
    (object(), r"0\.weight has no valid value: needs arrays.*given <object"),
    ([[1.0], [1.0, 2.0]], r"0\.weight has no valid value: nested sequences"),
    (np.ones((4, 8)), r"0\.weight has shape \(8, 4\), was given \(4, 8\)"),
]


@pytest.mark.parametrize(("value", "words"), VALUES)
def test_all_values_that_do_not_fit_are_listed_and_none_is_assigned(value: Any, words: str) -> None:
    with current("inline"):
        t = case()
        state = {"1.bias": np.ones(2), "1.weight": np.ones(5), "0.weight": value, "x": 1}
        with pytest.raises(WeightsError, match=words) as caught:
            t.net.load_state_dict(state)
        for other in ("1.weight has shape (4, 2)", "missing: 0.bias", "not in the module: x"):
            assert other in str(caught.value)
        assert not t.net[1].bias.numpy().any()


REPLACEMENTS: dict[str, Callable[[], Any]] = {
    "array": lambda: mm.ones((8, 4)),
    "numpy": lambda: np.ones((8, 4)),
    "torch": lambda: torch.ones(8, 4),
    "number": lambda: 0.0,
    "function": lambda: mm.zeros,
}


@pytest.mark.parametrize("name", REPLACEMENTS)
@pytest.mark.parametrize("attribute", ["weight", "mean", "lazy", "plain"])
def test_a_variable_of_a_module_is_not_replaced_by_a_value(name: str, attribute: str) -> None:
    """It would silently not be trained nor saved any more."""

    class Own(mm.nn.Module):
        def __init__(self) -> None:
            self.weight, self.mean = mm.nn.Parameter(1.0, (8, 4)), mm.nn.Buffer(0.0, (8, 4))
            self.plain = mm.variable("plain", np.ones((8, 4)))
            self.lazy = mm.nn.deferred(mm.zeros)

        def __call__(self, x: mm.Array) -> mm.Array:
            self.materialize(lazy=(8, 4))
            return x

    with current("inline"):
        own = Own()
        message = rf"Own: {attribute} is a \w+, was given .*module\.{attribute}\.assign\(x\), or"
        for _ in range(2):
            with pytest.raises(TypeError, match=message):
                setattr(own, attribute, REPLACEMENTS[name]())
            own.build((1,))
        getattr(own, attribute).assign(np.full((8, 4), 2.0))
        own.weight -= 1.0
        assert len(own.state_dict()) == 4
        setattr(own, attribute, mm.nn.Parameter(3.0, (8, 4)))
        assert own.state_dict()[attribute].tolist() == [[3.0] * 4] * 8
        setattr(own, attribute, None)
        assert len(own.state_dict()) == 3


def test_variables_in_lists_and_dictionaries_are_not_replaced_either() -> None:
    class Own(mm.nn.Module):
        def __init__(self) -> None:
            self.weights = [mm.nn.Parameter(1.0), mm.nn.Parameter(2.0)]
            self.table = {"a": {"b": mm.nn.Parameter(3.0)}}

        def __call__(self, x: mm.Array) -> mm.Array:
            return x

    with current("inline"):
        own = Own()
        with pytest.raises(TypeError, match=r"Own: weights is a parameter, was given list"):
            own.weights = [2 * w for w in own.weights]
        assert len(own.parameters()) == 3
        own.weights[1] = own.weights[1] * 2  # type: ignore[call-overload]
        with pytest.raises(TypeError, match=r"Own: weights\[1\] is a parameter, was given Array"):
            own.parameters()
        own.weights[1] = mm.nn.Parameter(4.0)
        own.table["a"]["b"] = mm.ones(())  # type: ignore[assignment]
        with pytest.raises(TypeError, match=r"Own: table\.a\['b'\] is a parameter"):
            own.state_dict()
        own.table["a"] = {}
        own.weights = own.weights[:1]
        assert len(own.parameters()) == 1

"""Compiled functions and training steps read what names are bound to at the time of the call."""

from __future__ import annotations

import gc
import pickle
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath.transform import traced_call

X = np.random.default_rng(0).normal(size=(16, 4)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)
scale: Any = 1.0
network: Any = None
optimizer: Any = None


@pytest.fixture(params=[("inline", 1), ("shared", 2)], autouse=True)
def pool(request: pytest.FixtureRequest) -> Iterator[None]:
    with current(*request.param):
        yield


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that gets an item with each trace."""
    made: list[int] = []
    original = traced_call.TracedCall.__init__

    def counted(self: Any, *args: Any) -> None:
        made.append(1)
        original(self, *args)

    monkeypatch.setattr(traced_call.TracedCall, "__init__", counted)
    return made


def new_network() -> mm.nn.Module:
    return mm.nn.Dense(2).build((1, 4))


def test_another_network_and_optimizer_are_trained() -> None:
    """As in cross-validation, or from a new start."""
    global network, optimizer

    @mm.compile
    def step(x: Any, y: Any) -> mm.Array:
        loss, gradients = mm.value_and_grad(
            lambda: mm.nn.cross_entropy(network(x), y), network.trainable()
        )
        optimizer.update(gradients)
        return loss

    kept = []
    for make in (partial(mm.optim.GradientDescent, 0.5), partial(mm.optim.Adam, 0.1)) * 2:
        network, optimizer = new_network(), make()
        counterpart = float(mm.nn.cross_entropy(network(X), Y))
        kept.append(network)
        losses = [float(step(X, Y)) for _ in range(3)]
        assert losses[0] == pytest.approx(counterpart, rel=1e-6)
        assert losses[2] < losses[0]
    optimizer = mm.optim.GradientDescent(0.0)  # the former one is gone
    assert float(step(X, Y)) == pytest.approx(float(step(X, Y)))


def test_numbers_arrays_and_functions(traces: list[int]) -> None:
    global scale
    array = mm.ones(3)

    def scaled(x: mm.Array) -> mm.Array:
        return x * scale

    helper = scaled

    @mm.compile
    def f(x: mm.Array) -> mm.Array:
        return helper(x) + array

    x = mm.ones(3)
    for scale in (1.0, 2.0, 2.0, 3.0, 1.0):
        assert f(x).tolist() == [scale + 1] * 3
    count = len(traces)
    scale = 0.5 + 0.5  # an equal number
    for _ in range(5):
        f(x)
    assert len(traces) == count
    array = mm.ones(3) * 5
    assert f(x).tolist() == [6.0] * 3

    helper = partial(mm.multiply, 100.0)
    assert f(x).tolist() == [105.0] * 3


def test_a_name_that_is_bound_to_none() -> None:
    mask, owner = mm.asarray([1.0, 0.0]), Owner()

    def masked(x: mm.Array) -> mm.Array:
        return x if mask is None else x * mask

    def owned(x: mm.Array) -> mm.Array:
        return x if owner is None else x * 2

    f, g, x = mm.compile(masked), mm.compile(owned), mm.ones(2)
    assert f(x).tolist() == [1, 0]
    assert g(x).tolist() == [2, 2]
    mask = owner = None
    gc.collect()
    assert f(x).tolist() == g(x).tolist() == [1, 1]


def test_a_name_that_changes_in_each_call_is_warned_of() -> None:
    global scale
    f = mm.compile(lambda x: x * scale)
    x = mm.ones(2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for step in range(40):
            scale = float(step)
            assert f(x).tolist() == [scale] * 2
    (warning,) = caught
    assert "because 'scale', which it reads from outside, was bound" in str(warning.message)
    assert warning.filename == __file__


class Owner:
    """A plain object with a network and a number."""

    def __init__(self) -> None:
        self.network, self.factor = new_network(), 1.0
        self.own = mm.compile(self.call)

    def call(self, x: Any) -> mm.Array:
        return self._scaled(self.network(x))

    def _scaled(self, x: mm.Array) -> mm.Array:
        return x * self.factor

    @mm.compile
    def decorated(self, x: Any) -> mm.Array:
        return self.call(x)


@pytest.mark.parametrize("name", ["own", "decorated"])
def test_attributes_of_plain_objects(name: str) -> None:
    owner = Owner()
    call: Callable[..., Any] = getattr(owner, name)
    for _ in range(2):
        np.testing.assert_allclose(call(X), owner.call(X), rtol=1e-6)
        owner.network = new_network()
        np.testing.assert_allclose(call(X), owner.call(X), rtol=1e-6)
        owner.factor += 1
        np.testing.assert_allclose(call(X), owner.call(X), rtol=1e-6)


@dataclass
class Config:
    mode: str
    inner: Any = None

    @classmethod
    def fast(cls) -> Config:
        return cls("fast")


@dataclass(order=True)
class Level:
    number: int


class Mode:
    """An object that is compared with texts."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, other: object) -> bool:
        return self.name == other

    def __hash__(self) -> int:
        return 0


def _forwarded(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def call(*args: Any) -> Any:
        return method(*args)

    return call


class DecoratedMode:
    """An object whose comparison is decorated."""

    def __init__(self, name: str) -> None:
        self.name = name

    @_forwarded
    def __eq__(self, other: object) -> bool:
        return self.name == other

    def __hash__(self) -> int:
        return 0


class Selector:
    """A function that is made where it is called."""

    def __call__(self) -> bool:
        return bool(level.number > 2)


FAST, SLOW = Config("fast"), Config("slow")
level, mode = Level(2), Mode("fast")
decorated_mode, only = DecoratedMode("fast"), Config("fast")
config = Config("fast", Level(2))
STORED = pickle.dumps(only)


def _is_fast_among(options: Any) -> bool:
    return options[0] in (Config("other"), FAST)


def _is_level_first() -> bool:
    return sorted([Level(3), level])[0] is level


COMPARISONS: dict[str, tuple[Callable[[], bool], Any, str, Any]] = {
    "==": (lambda: config == Config("fast", Level(2)), config, "mode", "slow"),
    "nested": (lambda: config != Config("fast", Level(2)), config.inner, "number", 3),
    "of two names": (lambda: FAST == SLOW, SLOW, "mode", "fast"),
    "in": (lambda: _is_fast_among([Config("fast")]), FAST, "mode", "slow"),
    "index": (lambda: [Config("other"), SLOW, FAST].index(Config("fast")) == 2, SLOW, "mode",
              "fast"),
    "<": (lambda: level < Level(3), level, "number", 4),
    "sorted": (_is_level_first, level, "number", 4),
    "text": (lambda: mode == "fast", mode, "name", "slow"),
    "decorated": (lambda: decorated_mode == "fast", decorated_mode, "name", "slow"),
    "type": (lambda: only == type(only)("fast"), only, "mode", "slow"),
    "class": (lambda: only == only.__class__("fast"), only, "mode", "slow"),
    "class method": (lambda: only == only.fast(), only, "mode", "slow"),
    "replaced": (lambda: replace(only, mode="fast") == only, only, "mode", "slow"),
    "loaded": (lambda: pickle.loads(STORED) == only, only, "mode", "slow"),
    "or nothing": (lambda: only == (FAST if level.number else None), only, "mode", "slow"),
    "called object of a class": (lambda: Selector()(), level, "number", 3),
}  # fmt: skip


@pytest.mark.parametrize("name", COMPARISONS)
def test_attributes_that_comparisons_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compare, owner, attribute, value = COMPARISONS[name]
    f, x = mm.compile(lambda x: x * 2 if compare() else x), mm.ones(2)
    before = compare()
    assert f(x).tolist() == [1 + before] * 2
    monkeypatch.setattr(owner, attribute, value)
    assert compare() != before
    assert f(x).tolist() == [2 - before] * 2


def test_fields_of_objects_that_are_not_compared(traces: list[int]) -> None:
    """A count in a dataclass of which there is one object is not read by comparisons of numbers."""
    state = Config("fast", 2)

    @mm.compile
    def f(x: mm.Array, y: mm.Array) -> mm.Array:
        return x * 2 if x.shape[0] == y.shape[0] and state.mode != "slow" else x

    x = mm.ones(2)
    f(x, x)
    count = len(traces)
    for state.inner in range(3):
        assert f(x, x).tolist() == [2, 2]
    assert len(traces) == count


def test_small_containers_and_arrays() -> None:
    class Configured(mm.nn.Module):
        def __init__(self) -> None:
            self.settings, self.steps, self.factors = {"k": 1.0}, [1, 2], np.ones(4, np.float32)

        def __call__(self, x: Any) -> mm.Array:
            return x * self.settings["k"] * self.steps[1] * self.factors

    module, outside = Configured(), {"a": 1.0}
    f = mm.compile(lambda x: module(x) * outside["a"])
    x = mm.ones(4)
    f(x)
    module.settings["k"] = 5.0
    np.testing.assert_array_equal(f(x), module(x))
    module.steps.append(3)
    module.steps[1] = 7
    np.testing.assert_array_equal(f(x), module(x))
    module.factors[0] = 3.0
    np.testing.assert_array_equal(f(x), module(x))
    outside["a"] = 2.0
    np.testing.assert_array_equal(f(x), module(x) * 2)


def test_fit_reads_numbers_of_the_loss() -> None:
    """As in annealing of a term of the loss."""
    global scale

    class Anneal(mm.train.Callback):
        def on_epoch_begin(self, *_: Any) -> None:
            global scale
            scale += 1.0

    scale = 0.0
    trainer = mm.train.Trainer(
        new_network(), lambda outputs, _: 0 * mm.sum(outputs) + scale, "adam", metrics=[]
    )
    history = trainer.fit(X, Y, epochs=4, batch_size=8, callbacks=[Anneal()])
    assert history.loss == [1.0, 2.0, 3.0, 4.0]
    scale = 7.0
    assert trainer.fit(X, Y, epochs=1, batch_size=8).loss == [7.0]


def test_another_module_of_a_trainer() -> None:
    trainer = mm.train.Trainer(new_network(), optimizer=mm.optim.GradientDescent(0.5))
    trainer.fit(X, Y, epochs=1)
    former, trainer.module = trainer.module, new_network()
    before, old = trainer.module.weight.numpy(), former.weight.numpy()  # type: ignore[attr-defined]
    trainer.fit(X, Y, epochs=3)
    assert np.abs(trainer.module.weight.numpy() - before).max() > 0  # type: ignore[attr-defined]
    np.testing.assert_array_equal(former.weight.numpy(), old)  # type: ignore[attr-defined]


def test_weights_that_are_tied_before_they_exist() -> None:
    class Tied(mm.nn.Module):
        def __init__(self, units: int = 4) -> None:
            self.a, self.b = mm.nn.Dense(4), mm.nn.Dense(units)
            self.b.weight = self.a.weight

        def __call__(self, x: Any) -> mm.Array:
            return self.b(self.a(x))

    tied = Tied().build((1, 4))
    assert tied.a.weight is tied.b.weight
    assert len(tied.parameters()) == 3
    with pytest.raises(mm.errors.ShapeError, match=r"shared by layers that need the shapes"):
        Tied(5).build((1, 4))


@pytest.mark.parametrize("name", ["data", "requires_grad"])
def test_attributes_of_parameters_of_pytorch(name: str) -> None:
    weight = mm.nn.Parameter([1.0, 2.0])
    with pytest.raises(AttributeError, match="write "):
        setattr(weight, name, mm.ones(2))
    assert weight.tolist() == [1.0, 2.0]


def test_names_of_modules_of_pytorch() -> None:
    with pytest.raises(AttributeError, match=r"register_buffer'; write self.name = mm.nn.Buffer"):
        new_network().register_buffer("x", None)  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match=r"no attribute 'nothing'$"):
        new_network().nothing  # type: ignore[attr-defined]  # noqa: B018


@pytest.mark.parametrize(
    ("owner", "name", "words"),
    [
        (lambda: mm.optim.Adam(0.1), "lr", r"no attribute 'lr'; write .learning_rate = value"),
        (lambda: mm.nn.Dropout(0.1), "p", r"no attribute 'p'; write .rate = value"),
    ],
)
def test_attributes_under_another_name(owner: Callable[[], Any], name: str, words: str) -> None:
    with pytest.raises(AttributeError, match=words):
        setattr(owner(), name, 0.5)

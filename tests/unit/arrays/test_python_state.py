"""Compiled functions use no former values of Python objects: whatever a function reads is compared
at each call, and what it changes while it is traced is refused or warned of."""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import random
import sys
import types
import warnings
import weakref
from array import array
from collections import OrderedDict, UserDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from magmath.errors import TracingError
from magmath.optim import schedules
from magmath.transform import traced_call

Maker = Callable[[float], Any]


class Plain:
    """An object with one attribute."""

    def __init__(self, z: Any) -> None:
        self.z = z


class Slotted:
    __slots__ = ("z",)

    def __init__(self, z: Any) -> None:
        self.z = z


@dataclass
class Record:
    z: Any
    other: dict[str, Any] = field(default_factory=lambda: {"seed": None})


class AttrDict(dict[str, Any]):
    __getattr__ = dict.__getitem__


class Holder(mm.nn.Module):
    """A module that reads an object."""

    def __init__(self, z: Any) -> None:
        self.z = z

    def __call__(self, x: Any) -> Any:
        return x


def new_class(z: Any) -> Any:
    class Config:
        pass

    Config.z = z  # type: ignore[attr-defined]
    return Config


def new_python_module(z: Any) -> types.ModuleType:
    module = types.ModuleType("settings_of_a_test")
    module.z = z  # type: ignore[attr-defined]
    return module


Place = tuple[Callable[[Any], Any], Callable[[Any], Any], Callable[[Any, Any], Any]]


def _set(owner: Any, value: Any) -> None:
    owner.z = value


def _at(key: Any) -> tuple[Callable[[Any], Any], Callable[[Any, Any], Any]]:
    return lambda owner: owner[key], lambda owner, value: owner.__setitem__(key, value)


def _sum(owner: Any) -> Any:
    (value,) = [item for item in owner if item is not None]
    return value


def _exchange(owner: Any, value: Any) -> None:
    owner.clear()
    (owner.add if isinstance(owner, set) else owner.append)(value)


def _weakly(z: Any) -> Any:
    kept.append(Plain(z))
    return weakref.ref(kept[-1])


kept: list[Any] = []
NAMES = ("z",)


def _matched(owner: Any) -> Any:
    match owner:
        case Plain(z=value):
            return value


def _viewed(view: Any, value: Any) -> None:
    (viewed,) = gc.get_referents(view)
    viewed["z"] = value


PLACES: dict[str, Place] = {
    "dictionary": (lambda z: {"z": z, "seed": None, "sizes": (1, [2])}, *_at("z")),
    "key of a number": (lambda z: {3: z}, *_at(3)),
    "all values": (lambda z: {"z": z}, lambda d: _sum(d.values()), _at("z")[1]),
    "attributes": (lambda z: AttrDict(z=z), lambda d: d.z, _at("z")[1]),
    "defaultdict": (lambda z: defaultdict(int, z=z), *_at("z")),
    "UserDict": (lambda z: UserDict(z=z), *_at("z")),
    "list": (lambda z: [None, z], *_at(1)),
    "deque": (lambda z: deque([z]), _sum, _exchange),
    "set": (lambda z: {z}, _sum, _exchange),
    "object": (Plain, lambda o: o.z, _set),
    "slots": (Slotted, lambda o: o.z, _set),
    "dataclass": (Record, lambda o: o.z, _set),
    "class": (new_class, lambda c: c.z, _set),
    "instance": (lambda z: new_class(z)(), lambda o: o.z, lambda o, z: _set(type(o), z)),
    "hidden": (lambda z: new_class(z)(), lambda o: o.z, _set),
    "getattr": (Plain, lambda o: getattr(o, "z"), _set),  # noqa: B009
    "vars": (Plain, lambda o: vars(o)["z"], _set),
    "name in a variable": (Plain, lambda o: next(getattr(o, name) for name in NAMES), _set),
    "fields": (Record, lambda o: getattr(o, fields(o)[0].name), _set),
    "match": (Plain, _matched, _set),
    "values": (lambda z: {"z": z}.values(), _sum, _viewed),
    "items": (lambda z: {"z": z}.items(), lambda items: next(iter(items))[1], _viewed),
    "read-only view": (lambda z: types.MappingProxyType({"z": z}), lambda d: d["z"], _viewed),
    "weak reference": (_weakly, lambda r: r().z, lambda r, value: _set(r(), value)),
    "namespace": (lambda z: types.SimpleNamespace(z=z), lambda o: o.z, _set),
    "Python module": (new_python_module, lambda m: m.z, _set),
    "module": (Holder, lambda m: m.z, _set),
    "attribute of a function": (lambda z: _with_attribute(z), lambda f: f.z, _set),
}
"""Places of a value: a function that makes one, one that reads it, and one that changes it."""


def _with_attribute(z: Any) -> Any:
    def f() -> None: ...

    f.z = z  # type: ignore[attr-defined]
    return f


class Scaled(mm.nn.Module):
    """A module that multiplies by a parameter."""

    def __init__(self, z: float) -> None:
        self.w = mm.nn.Parameter(z)

    def __call__(self, x: Any) -> Any:
        return x * self.w


VALUES: dict[str, tuple[Maker, Callable[[Any, Any], Any]]] = {
    "number": (float, lambda x, z: x * z),
    "array": (lambda z: mm.full(3, z), lambda x, z: x * z),
    "NumPy array": (lambda z: np.full(3, z, np.float32), lambda x, z: x * z),
    "variable": (lambda z: mm.variable("v", z), lambda x, z: x * z),
    "network": (Scaled, lambda x, z: z(x)),
    "function": (lambda z: lambda x: x * z, lambda x, z: z(x)),
    "partial": (lambda z: functools.partial(mm.multiply, z), lambda x, z: z(x)),
}


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("place", PLACES)
def test_values_in_places(place: str, kind: str) -> None:
    (hold, read, change), (make, use) = PLACES[place], VALUES[kind]
    if (place, kind) in {("set", "NumPy array"), ("instance", "function")}:
        pytest.skip("not hashable, or a method")
    owner = hold(make(1.0))

    def f(x: Any) -> Any:
        return use(x, read(owner))

    compiled, x = mm.compile(f), mm.ones(3)
    for z in (1.0, 2.0, 3.0, 3.0, 1.0):
        change(owner, make(z))
        assert compiled(x).tolist() == f(x).tolist() == [z] * 3


@pytest.mark.parametrize("seed", range(12))
def test_values_in_random_nested_places(seed: int) -> None:
    """A number deep in nested objects, a few of which lie in an attribute of a module."""
    random_places = random.Random(seed)
    value: Any = 1.0
    chain = []
    for name in random_places.choices([n for n in PLACES if n not in ("set", "deque")], k=4):
        hold, read, change = PLACES[name]
        value = hold(value)
        chain.append((value, read, change))
    root, reads = value, [read for _, read, _ in reversed(chain)]
    innermost, _, change = chain[0]

    def f(x: Any) -> Any:
        result = root
        for read in reads:
            result = read(result)
        return x * result

    compiled, x = mm.compile(f), mm.ones(2)
    for z in (1.0, 2.0, 2.0, 5.0):
        change(innermost, z)
        assert compiled(x).tolist() == [z] * 2
    owner, read, change = chain[2]  # another object on the way
    change(owner, chain[1][0])
    assert compiled(x).tolist() == [5.0] * 2


def _attempt(owner: Any) -> Any:
    try:
        return owner.z
    except AttributeError:
        return 1.0


def _attempt_of_any_error(owner: Any) -> Any:
    try:
        return owner.z
    except:  # noqa: E722
        return 1.0


def _z_of(owner: Any) -> Any:
    return owner.z


def _z_of_z_of(owner: Any) -> Any:
    return _z_of(owner)


def _attempt_in_caller(owner: Any) -> Any:
    try:
        return _z_of_z_of(owner)
    except AttributeError:
        return 1.0


def _attempt_of_inner_function(owner: Any) -> Any:
    def inner() -> Any:
        return owner.z

    try:
        return inner()
    except AttributeError:
        return 1.0


def _suppressed(owner: Any) -> Any:
    with contextlib.suppress(AttributeError):
        return _z_of(owner)
    return 1.0


def _attempt_of_global(_: Any) -> Any:
    try:
        return later_global  # type: ignore[name-defined]
    except NameError:
        return 1.0


def _set_later(owner: Any, value: Any) -> None:
    owner.later = value


def _set_global(_: Any, value: Any) -> None:
    globals()["later_global"] = value


ABSENCES: dict[str, Place] = {
    "hasattr": (types.SimpleNamespace, lambda o: o.z if hasattr(o, "z") else 1.0, _set),
    "default": (types.SimpleNamespace, lambda o: getattr(o, "z", 1.0), _set),
    "attempt": (types.SimpleNamespace, _attempt, _set),
    "any error": (types.SimpleNamespace, _attempt_of_any_error, _set),
    "attempt in the caller": (types.SimpleNamespace, _attempt_in_caller, _set),
    "attempt of an inner function": (types.SimpleNamespace, _attempt_of_inner_function, _set),
    "suppressed": (types.SimpleNamespace, _suppressed, _set),
    "dictionary of attributes": (
        types.SimpleNamespace,
        lambda o: o.__dict__.get("z", 1.0),
        _set,
    ),
    "vars": (types.SimpleNamespace, lambda o: vars(o).get("z", 1.0), _set),
    "class": (lambda: new_class(1.0), lambda c: getattr(c, "later", 1.0), _set_later),
    "class of an object": (
        lambda: new_class(1.0)(),
        lambda o: getattr(o, "later", 1.0),
        lambda o, value: _set_later(type(o), value),
    ),
    "Python module": (
        lambda: new_python_module(1.0),
        lambda m: getattr(m, "later", 1.0),
        _set_later,
    ),
    "slots": (lambda: Slotted.__new__(Slotted), lambda o: getattr(o, "z", 1.0), _set),
    "get": (dict, lambda d: d.get("z", 1.0), _at("z")[1]),
    "in": (dict, lambda d: d["z"] if "z" in d else 1.0, _at("z")[1]),  # noqa: SIM401
    "defaultdict": (lambda: defaultdict(lambda: 1.0), *_at("z")),
    "setdefault": (dict, lambda d: d.setdefault("z", 1.0), _at("z")[1]),
    "global": (dict, _attempt_of_global, _set_global),
}
"""As `PLACES`, of values that do not exist at first; then 1.0 is read."""


@pytest.mark.parametrize("name", ABSENCES)
def test_values_that_are_absent_at_first(name: str) -> None:
    make, read, change = ABSENCES[name]
    owner = make()  # type: ignore[call-arg]
    f = mm.compile(lambda x: x * read(owner))
    assert f(mm.ones(2)).tolist() == [1.0] * 2
    for z in (2.0, 3.0):
        change(owner, z)
        assert f(mm.ones(2)).tolist() == [z] * 2


@pytest.mark.parametrize("way", ["reference", "dictionary"])
def test_objects_of_weak_references_that_die(way: str) -> None:
    owner = new_class(2.0)()
    reference, weak = weakref.ref(owner), weakref.WeakValueDictionary(o=owner)
    if way == "reference":
        f = mm.compile(lambda x: x * (1.0 if reference() is None else reference().z))
    else:
        f = mm.compile(lambda x: x * (weak["o"].z if "o" in weak else 1.0))
    for _ in range(2):
        assert f(mm.ones(2)).tolist() == [2.0] * 2
    owner.z = 3.0
    assert f(mm.ones(2)).tolist() == [3.0] * 2
    del owner
    gc.collect()
    for _ in range(2):
        assert f(mm.ones(2)).tolist() == [1.0] * 2


def test_the_order_of_an_ordered_dictionary() -> None:
    ordered = OrderedDict(a=1.0, b=2.0)
    f = mm.compile(lambda x: x * next(iter(ordered.values())))
    assert f(mm.ones(2)).tolist() == [1.0] * 2
    ordered.move_to_end("a")
    assert f(mm.ones(2)).tolist() == [2.0] * 2


def test_growing_lists() -> None:
    layers, variables = [Scaled(2.0)], [mm.variable("a", 1.0)]

    @mm.compile
    def f(x: Any) -> Any:
        for layer in layers:
            x = layer(x)
        return x + sum(v * 1 for v in variables)

    x = mm.ones(2)
    for count in range(1, 4):
        assert f(x).tolist() == [2.0**count + count] * 2
        layers.append(Scaled(2.0))
        variables.append(mm.variable("b", 1.0))


def test_methods_wrappers_and_defaults() -> None:
    gain = {"value": 1.0}

    def scaled(function: Any) -> Any:
        @functools.wraps(function)
        def wrapper(*args: Any) -> Any:
            return function(*args) * gain["value"]

        return wrapper

    class Model:
        rate = 1.0

        @property
        def doubled(self) -> float:
            return 2 * self.rate

        @scaled
        def call(self, x: Any, factors: Any = {"k": 1.0}) -> Any:  # noqa: B006
            return x * self.doubled * factors["k"]

    model = Model()
    f, x = mm.compile(lambda x: model.call(x)), mm.ones(2)
    changes: list[Callable[[], object]] = [
        lambda: gain.update(value=3.0),
        lambda: setattr(Model, "rate", 2.0),
        lambda: setattr(model, "rate", 5.0),
        lambda: Model.call.__wrapped__.__defaults__[0].update(k=7.0),  # type: ignore[attr-defined]
        lambda: setattr(Model, "doubled", 11.0),
        lambda: setattr(Model, "call", lambda self, x: x * 13),
        lambda: setattr(model, "call", lambda x: x * 17),
    ]
    for change in changes:
        change()
        assert f(x).tolist() == model.call(x).tolist()


def test_types_signs_and_orders_of_numbers() -> None:
    settings: dict[str, Any] = {"k": 1.0}
    f = mm.compile(lambda x: x * settings["k"])
    for k in (1.0, 1, True, np.float32(1), np.int64(1)):
        settings["k"] = k
        assert f(mm.arange(3)).dtype == (mm.arange(3) * k).dtype
    inverse = mm.compile(lambda x: 1 / (x * settings["k"]))
    for k in (0.0, -0.0):
        settings["k"] = k
        assert inverse(mm.ones(1)).tolist() == [np.copysign(np.inf, k)]
    ordered = {"a": 1.0, "b": 2.0}
    first = mm.compile(lambda x: x * next(iter(ordered.values())))
    assert first(mm.ones(1)).tolist() == [1]
    ordered["a"] = ordered.pop("a")
    assert first(mm.ones(1)).tolist() == [2]


def test_names_that_are_not_read_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts and results that a loop keeps beside the settings do not cause traces."""
    made: list[int] = []
    original = traced_call.TracedCall.__init__
    monkeypatch.setattr(
        traced_call.TracedCall, "__init__", lambda *args: (made.append(1), original(*args))[1]
    )
    state: dict[str, Any] = {"w": mm.ones(2), "step": 0, "losses": []}
    owner = Plain(2.0)

    @mm.compile
    def f(x: Any) -> Any:
        return x * state["w"] * owner.z

    for step in range(5):
        state["step"] += 1
        owner.steps = step  # type: ignore[attr-defined]
        state["losses"].append(f(mm.ones(2)))
    assert len(made) == 1


@pytest.mark.parametrize(
    "other",
    [
        lambda o: getattr(o, "config")["b"],  # noqa: B009
        lambda o: vars(o)["config"]["b"],
        lambda o: o.all["config"]["b"],
        lambda o: sum(o.all["config"].values()),
        lambda o: (lambda d: d["b"])(o.config),
    ],
)
def test_items_that_are_read_in_two_ways(other: Any) -> None:
    owner = Plain(0.0)
    owner.config = {"a": 1.0, "b": 1.0}  # type: ignore[attr-defined]
    owner.all = {"config": owner.config}  # type: ignore[attr-defined]

    def f(x: Any) -> Any:
        return x * owner.config["a"] * other(owner)  # type: ignore[attr-defined]

    compiled, x = mm.compile(f), mm.ones(1)
    for name, value in (("a", 2.0), ("b", 3.0), ("b", 5.0)):
        owner.config[name] = value  # type: ignore[attr-defined]
        assert compiled(x).tolist() == f(x).tolist()


@pytest.mark.parametrize("is_whole_first", [False, True])
def test_a_dictionary_that_is_read_whole_and_by_key(is_whole_first: bool) -> None:
    settings = {"a": 1.0, "b": 1.0}
    first = second = settings
    if is_whole_first:  # variables of enclosing functions are in the order of their names

        def f(x: Any) -> Any:
            return x * sum(first.values()) * second["a"]
    else:

        def f(x: Any) -> Any:
            return x * sum(second.values()) * first["a"]

    compiled, x = mm.compile(f), mm.ones(1)
    for name, value in (("a", 2.0), ("b", 3.0), ("c", 5.0), ("b", 7.0), ("a", 1.0)):
        settings[name] = value
        assert compiled(x).tolist() == f(x).tolist()


def test_objects_among_the_arguments() -> None:
    settings = Plain(1.0)
    f = mm.compile(lambda settings, x: x * settings.z)
    for settings.z in (1.0, 2.0, 3.0):
        assert f(settings, mm.ones(1)).tolist() == [settings.z]


@pytest.mark.parametrize("is_array", [False, True])
def test_large_containers_are_warned_of(is_array: bool) -> None:
    table: Any = np.ones(5000) if is_array else [1.0] * 5000
    f = mm.compile(lambda x: x * float(table[0]))
    with pytest.warns(
        UserWarning, match="reads table, which is too large to be compared"
    ) as result:
        f(mm.ones(2))
    f(mm.ones(3))  # warnings are errors
    assert result[0].filename == __file__
    if is_array:
        table.flags.writeable = False
        mm.compile(lambda x: x * float(table[0]))(mm.ones(2))


class _Slots:
    __slots__ = ("z",)

    def __init__(self, z: float) -> None:
        self.z = z


@pytest.mark.parametrize("count", [0, 505, 512, 600])
@pytest.mark.parametrize("kind", ["closure", "slots", "dictionary", "list"])
def test_what_is_read_after_large_containers_is_compared_or_named(kind: str, count: int) -> None:
    a_table, k, slots = [1.0] * count, 1.0, _Slots(1.0)
    settings: Any = {"k": 1.0} if kind == "dictionary" else [1.0]

    def helper() -> Any:
        return {"closure": k, "slots": slots.z}.get(kind) or (
            settings["k"] if kind == "dictionary" else settings[0]
        )

    def change(value: float) -> None:
        nonlocal k
        k = slots.z = value
        settings["k" if kind == "dictionary" else 0] = value

    f = mm.compile(lambda x: x * helper() + len(a_table))
    with warnings.catch_warnings(record=True) as messages:
        warnings.simplefilter("always")
        f(mm.ones(1))
    change(3.0)
    is_named = any("and 1 more, which are" in str(x.message) for x in messages)
    assert is_named or f(mm.ones(1)).tolist() == [3.0 + count]
    assert not is_named or (count < 512 and kind in ("dictionary", "list"))


def test_all_large_containers_are_counted() -> None:
    first, second, third = [1.0] * 600, [1.0] * 700, [1.0] * 800
    f = mm.compile(lambda x: x * first[0] * second[0] * third[0])
    with pytest.warns(UserWarning, match="reads first and 2 more, which are too large"):
        f(mm.ones(2))


def _generators() -> dict[str, Callable[[], float]]:
    generator, twister = np.random.default_rng(0), random.Random(0)
    return {
        "np.random": lambda: float(np.random.random()),
        "random": lambda: random.random(),
        "generator": lambda: float(generator.normal()),
        "twister": lambda: twister.random(),
    }


@pytest.mark.parametrize("name", _generators())
def test_random_numbers_of_others_are_warned_of(name: str) -> None:
    draw = _generators()[name]
    f = mm.compile(lambda x: x + draw())
    with pytest.warns(UserWarning, match=f"draws random numbers from {name} while") as result:
        f(mm.ones(2))
    assert result[0].filename == __file__
    own = mm.compile(lambda x: x + mm.random.normal(size=2))
    assert own(mm.ones(2)).tolist() != own(mm.ones(2)).tolist()


def test_iterators_are_warned_of() -> None:
    for numbers in (iter([1.0, 2.0]), itertools.count(1), (i for i in range(3))):
        f = mm.compile(lambda x, numbers=numbers: x)  # a default is not read by name
        with pytest.warns(UserWarning, match="changes the iterator"):
            f(mm.ones(1))


class Stateful(mm.nn.Module):
    """A module with a state that is no variable."""

    def __init__(self, state: Any) -> None:
        self.state, self.last, self.calls = state, None, 0

    def __call__(self, x: Any) -> Any:
        self.last = mm.sum(x)  # for others to read
        self.calls += 1
        self.state = self.state + 1
        return x * self.state


class Warming(mm.nn.Module):
    def __init__(self) -> None:
        self.steps = 0

    def __call__(self, x: Any) -> Any:
        self.steps += 1
        return x * min(1, self.steps / 10)


def test_states_that_are_arrays_are_refused() -> None:
    module, x = Stateful(mm.zeros(2)).build((2,)), mm.ones(2)
    assert module.state.tolist() == [0, 0]
    assert module.last is None
    assert [module(x).tolist() for _ in range(2)] == [[1, 1], [2, 2]]
    for _ in range(2):
        with pytest.raises(
            mm.errors.TracingError, match=r"Stateful reads Stateful.state and binds"
        ):
            mm.compile(module)(x)
        assert module.state.tolist() == [2, 2]
    assert module(x).tolist() == [3, 3]


@pytest.mark.parametrize("place", ["dictionary", "list", "object", "slots", "namespace", "class"])
@pytest.mark.parametrize("first", [None, 1.0, "array"])
def test_states_in_other_objects_are_refused(place: str, first: Any) -> None:
    state = PLACES[place][0](mm.zeros(2) if first == "array" else first)

    def next_value(former: Any, x: Any) -> Any:
        return x if former is None else former + x

    def of_object(x: Any) -> Any:
        state.z = next_value(state.z, x)
        return state.z

    def of_dictionary(x: Any) -> Any:
        state["z"] = next_value(state["z"], x)
        return state["z"]

    def of_list(x: Any) -> Any:
        state[1] = next_value(state[1], x)
        return state[1]

    f = {"dictionary": of_dictionary, "list": of_list}.get(place, of_object)
    with pytest.raises(mm.errors.TracingError, match="and binds it to a new array"):
        mm.compile(f)(mm.ones(2))
    assert f(mm.ones(2)) is not None  # it has its former value
    assert PLACES[place][1](state).tolist() == [2 if first == 1.0 else 1] * 2


def test_counts_are_warned_of_if_they_are_used() -> None:
    counts, total = {"n": 0}, [0]

    def in_dictionary(x: Any) -> Any:
        counts["n"] += 1
        return x * counts["n"]

    def in_list(x: Any) -> Any:
        total[0] += 1
        return x * total[0]

    for f, label in (
        (Warming(), r"Warming\.steps"),
        (in_dictionary, r"counts\['n'\]"),
        (in_list, r"total\[0\]"),
    ):
        with pytest.warns(UserWarning, match=f"changes {label}, which it also reads"):
            mm.compile(f)(mm.ones(1))

    calls = [0]

    def counted(x: Any) -> Any:  # no result depends on it
        calls[0] += 1
        return x

    mm.compile(counted)(mm.ones(1))


@pytest.mark.parametrize("operator", ["+", "-", "*", "//", "%", "**", "<<", ">>", "&", "|", "^"])
def test_counts_of_every_operator_that_no_result_depends_on(operator: str) -> None:
    names: dict[str, Any] = {"state": types.SimpleNamespace(n=29), "counts": {"n": 29}}
    exec(f"def f(x):\n state.n {operator}= 3\n counts['n'] {operator}= 3\n return x", names)
    mm.compile(names["f"])(mm.ones(1))
    assert names["state"].n == names["counts"]["n"] == eval(f"29 {operator} 3")


def test_what_a_call_stores_for_later_is_no_state() -> None:
    """As the mean of a variational autoencoder, which the loss reads."""

    class Encoder(mm.nn.Module):
        def __init__(self) -> None:
            self.mean: Any = None
            self.penalty: Any = 0.0

        def __call__(self, x: Any) -> Any:
            self.mean, self.penalty = x * 2, 0.0
            self.add(mm.sum(self.mean))
            return x

        def add(self, value: Any) -> None:
            self.penalty = self.penalty + value

    encoder, x = Encoder(), mm.ones(2)

    def loss(x: Any) -> Any:
        return mm.sum(encoder(x)) + mm.sum(encoder.mean) + encoder.penalty

    f = mm.compile(loss)
    for _ in range(2):
        assert float(f(x)) == float(loss(x)) == 10.0


def test_constants_that_are_made_when_needed() -> None:
    """As the mask of an attention, made in the first call."""

    class Masked(mm.nn.Module):
        def __init__(self) -> None:
            self.mask: Any = None

        def __call__(self, x: Any) -> Any:
            if self.mask is None:
                self.mask = mm.tril(mm.ones((2, 2)))
            return x @ self.mask

    x = mm.ones((1, 2))
    for module in (Masked(), Masked().build((1, 2))):
        f = mm.compile(module)
        for _ in range(2):
            assert f(x).tolist() == module(x).tolist() == [[2, 1]]


def test_fit_warns_and_refuses() -> None:
    class Noisy(mm.nn.Module):
        def __init__(self) -> None:
            self.dense = mm.nn.Dense(2)

        def __call__(self, x: Any) -> Any:
            return self.dense(x) + np.random.random()

    class Counting(Noisy):
        def __init__(self) -> None:
            super().__init__()
            self.steps = 0

        def __call__(self, x: Any) -> Any:
            self.steps += 1
            return self.dense(x) * min(1, self.steps / 10)

    class Recurrent(Noisy):
        def __init__(self) -> None:
            super().__init__()
            self.h = mm.zeros(2)

        def __call__(self, x: Any) -> Any:
            self.h = mm.stop_gradient(self.h + mm.mean(self.dense(x), axis=0))
            return self.dense(x) + self.h

    def trainer(module: mm.nn.Module) -> mm.train.Trainer:
        return mm.train.Trainer(module, "cross_entropy", mm.optim.GradientDescent(0.1))

    x, y = np.ones((8, 3), np.float32), np.zeros(8, np.int64)
    for module, text in ((Noisy(), "draws random numbers"), (Counting(), "Counting.steps")):
        with pytest.warns(UserWarning, match=f"fit: .*{text}"):
            trainer(module).fit(x, y, epochs=1, batch_size=4)
    with pytest.raises(mm.errors.TracingError, match=r"fit: .* reads Recurrent\.h and binds"):
        trainer(Recurrent()).fit(x, y, epochs=1, batch_size=4)


def test_steps_under_strategies_see_frozen_parameters_and_names() -> None:
    x = np.random.default_rng(0).normal(size=(8, 4)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    for strategy in ("data", "model", "auto"):
        net = mm.nn.Sequential(mm.nn.Dense(3), mm.nn.Dense(2)).build((1, 4))
        settings = {"k": 1.0, "seed": None}
        step = mm.parallel.CompiledStep(
            lambda x, y, net=net, settings=settings: settings["k"] * mm.nn.cross_entropy(net(x), y),
            net,
            mm.optim.GradientDescent(0.1),
            strategy=strategy,
        )
        step(x, y)
        for change, moves in ((net.freeze, 2), (net.unfreeze, 4)):
            change("0")
            before = [p.numpy() for p in net.parameters()]
            step(x, y)
            after = [p.numpy() for p in net.parameters()]
            assert sum(map(lambda a, b: not np.array_equal(a, b), before, after)) == moves
        settings["k"] = 5.0
        expected = 5 * float(mm.nn.cross_entropy(net(x), y))
        assert float(step(x, y)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint8])
def test_scalars_of_numpy_whose_values_are_needed(kind: Any) -> None:
    x = mm.arange(8)
    table = {1: 5, 2: 7}
    for f in (
        lambda x, n: x[:n],
        lambda x, n: x[: n - 1],
        lambda x, n: mm.reshape(x, (n, -1)),
        lambda x, n: mm.sum(mm.reshape(x, (2, 2, 2)), axis=n),
        lambda x, n: x * table[n],
        lambda x, n: x if n == 2 else -x,
        lambda x, n: x * (n in {1}),
        lambda x, n: x * n,
    ):
        compiled = mm.compile(f)
        for n in (1, 2, 1):
            for given in (n, kind(n)):
                actual, expected = compiled(x, given), f(x, given)
                assert actual.tolist() == expected.tolist()
                assert actual.dtype == expected.dtype


@pytest.mark.parametrize("scalar", [np.bool_(True), np.float64(2), np.float32(0.5), np.int8(3)])
@pytest.mark.parametrize("dtype", ["uint8", "int32", "float32", "float64"])
def test_types_of_scalars_of_numpy(scalar: Any, dtype: str) -> None:
    def f(x: Any, s: Any) -> Any:
        return x * s if s > 0 else x

    x = mm.ones(3, dtype=dtype)
    for g in (f, lambda x, s: x * s, lambda x, s: (s + 1) * x):
        assert mm.compile(g)(x, scalar).dtype == g(x, scalar).dtype
        assert mm.compile(g)(x, scalar).tolist() == g(x, scalar).tolist()


def test_no_code_of_users_runs_while_names_are_found() -> None:
    class Strict:
        z = 1.0

        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

    strict = Strict()
    assert mm.compile(lambda x: x * strict.z)(mm.ones(1)).tolist() == [1]
    assert "settings_of_a_test" not in sys.modules
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mm.compile(lambda x: x * strict.z)(mm.ones(1))


BUFFERS: dict[str, Any] = {
    "array of NumPy": lambda: np.zeros(3),
    "tensor": lambda: torch.zeros(3, dtype=torch.float64),
    "tensor of bfloat16": lambda: torch.zeros(3, dtype=torch.bfloat16),
    "tensor without dimensions": lambda: torch.zeros(1)[0],
    "part of a tensor": lambda: torch.zeros(4, 3)[::2, 1],
    "parameter": lambda: torch.nn.Parameter(torch.zeros(2, 2)).data,
    "bytes": lambda: bytearray(3),
    "array of Python": lambda: array("d", [0.0, 0.0]),
    "view of memory": lambda: memoryview(bytearray(3)),
}


@pytest.mark.parametrize("name", BUFFERS)
@pytest.mark.parametrize("is_in_list", [False, True])
def test_elements_of_buffers_that_are_read_are_compared(name: str, is_in_list: bool) -> None:
    buffer = BUFFERS[name]()
    holder = [buffer] if is_in_list else buffer
    flat = buffer.reshape(-1) if isinstance(buffer, torch.Tensor) else buffer

    def total(x: mm.Array) -> mm.Array:
        values = holder[0] if is_in_list else holder
        return x + float(np.sum([float(v) for v in np.ravel(_as_numbers(values))]))

    traced = mm.compile(total)
    x = mm.asarray([1.0, 2.0])
    for i in (0, 1, -1):
        for number in (2, 2, 3):
            if isinstance(buffer, torch.Tensor) and not buffer.dim():
                buffer.fill_(number)
            else:
                flat[i] = number
            assert traced(x).tolist() == total(x).tolist()


def _as_numbers(values: Any) -> Any:
    return values.to(torch.float64).numpy() if isinstance(values, torch.Tensor) else values


READS_OF_RATES: dict[str, Callable[[Any, Any], Any]] = {
    "rate": lambda optimizer, plateau: optimizer.learning_rate,
    "rate by name": lambda optimizer, plateau: getattr(optimizer, "learning_rate"),  # noqa: B009
    "rate of several": lambda optimizer, plateau: [optimizer][0].learning_rate,
    "call of a schedule": lambda optimizer, plateau: plateau(3),
    "attribute of a schedule": lambda optimizer, plateau: plateau.rate,
    "warm-up": lambda optimizer, plateau: schedules.WarmUp(plateau, 2)(5),
}


@pytest.mark.parametrize("read", READS_OF_RATES.values(), ids=READS_OF_RATES)
def test_rates_of_optimizers_and_schedules(read: Callable[[Any, Any], Any]) -> None:
    """Objects of magmath are compared as those of users."""
    optimizer = mm.optim.GradientDescent(1.0)
    plateau = schedules.Plateau(1.0, factor=0.5, patience=0)
    made: list[int] = []

    @mm.compile
    def scaled(x: Any) -> Any:
        made.append(1)
        return x * read(optimizer, plateau)

    for rate in (1.0, 0.5, 0.25):
        assert float(scaled(mm.asarray(2.0))) == 2.0 * rate
        plateau.observe(-1.0 / rate)  # an improvement leaves the rate as it is
        assert float(scaled(mm.asarray(2.0))) == 2.0 * rate
        optimizer.learning_rate = rate / 2
        plateau.observe(0.0)
    assert len(made) == 3


def test_a_schedule_that_an_optimizer_has_is_compared() -> None:
    optimizer = mm.optim.GradientDescent(1.0)

    @mm.compile
    def scaled(x: Any) -> Any:
        rate = optimizer.learning_rate
        return x * (rate(1) if callable(rate) else rate)

    plateau = schedules.Plateau(0.5, factor=0.5, patience=0)
    rates: list[Any] = [2.0, plateau, lambda step: 0.125 * step, 4.0]
    for rate, value in zip(rates, (2.0, 0.5, 0.125, 4.0), strict=True):
        optimizer.learning_rate = rate
        assert float(scaled(mm.asarray(1.0))) == value
        if rate is plateau:
            plateau.observe(1.0)
            plateau.observe(1.0)
            assert float(scaled(mm.asarray(1.0))) == 0.25


def test_the_number_of_steps_is_not_read_in_a_compiled_function() -> None:
    optimizer = mm.optim.GradientDescent(1.0)
    with pytest.raises(TracingError, match="GradientDescent: steps is read in a compiled function"):
        mm.compile(lambda x: x * optimizer.steps)(mm.ones(1))
    assert optimizer.steps == 0

"""Compiled functions that bind items of lists and dictionaries among their arguments change those of
the caller, as without compilation."""

from __future__ import annotations

import copy
import random
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current


@pytest.fixture(params=[("inline", 1), ("eager", 2), ("shared", 3)], autouse=True)
def pool(request: pytest.FixtureRequest) -> Iterator[None]:
    with current(*request.param):
        yield


def _values(x: Any) -> Any:
    """Return nested lists and dictionaries with lists of numbers instead of arrays."""
    if isinstance(x, dict):
        return [type(x), {key: _values(value) for key, value in x.items()}, [*x]]
    if isinstance(x, list | tuple):
        return [type(x), [_values(value) for value in x]]
    return np.asarray(x).tolist()


def _bind(state: Any, x: Any) -> Any:
    state["h"] = state["h"] * 2 + x
    return state["h"]


def _remove_and_add(state: Any, x: Any) -> Any:
    former = state.pop("h")
    state["g"], state["h"] = former + 1, x
    return None


def _exchange(state: Any, x: Any) -> Any:
    state["h"], state["a"][0] = state["a"][0], state["h"]
    return x


def _grow(state: Any, x: Any) -> Any:
    state["a"].append(x + len(state["a"]))
    return mm.sum(mm.stack(state["a"]))


def _shift(state: Any, x: Any) -> Any:
    state["a"].pop(0)
    state["a"].append({"new": x, "name": "last"})
    return x * 2


def _update_and_bind(state: Any, x: Any) -> Any:
    state["h"] += x
    state["a"][1] = state["h"] * 3
    return state["h"]


def _loop(state: Any, x: Any) -> Any:
    state["h"] = mm.while_loop(lambda z: mm.sum(z) < 50.0, lambda z: z * 2 + x, state["h"])
    return state["h"] + 1


def _of_an_inner_one(state: Any, x: Any) -> Any:
    state["inner"]["tuple"][0]["k"] = x
    state["inner"] = dict(state["inner"], more=x * 2)
    return x


FUNCTIONS = [
    _bind, _remove_and_add, _exchange, _grow, _shift, _update_and_bind, _loop, _of_an_inner_one,
]  # fmt: skip


def _state() -> dict[str, Any]:
    return OrderedDict(
        h=mm.ones(3), a=[mm.full(3, 2.0), mm.full(3, 3.0)], inner={"tuple": ({"k": 1.0, "n": 2},)}
    )


@pytest.mark.parametrize("function", FUNCTIONS)
def test_containers_of_the_caller_change(function: Callable[..., Any]) -> None:
    states, compiled, x = (_state(), _state()), mm.compile(function), mm.full(3, 0.5)
    for _ in range(4):
        wanted, actual = function(states[0], x), compiled(states[1], x)
        assert _values(states[1]) == _values(states[0])
        assert (actual is None) == (wanted is None)
        if actual is not None:
            assert _values(actual) == _values(wanted)


def test_numbers_that_are_the_same_in_each_call_remain_numbers() -> None:
    def numbers(state: Any, x: Any) -> Any:
        state["python"], state["numpy"] = 7, np.float32(3)
        return x

    state: dict[str, Any] = {}
    mm.compile(numbers)(state, mm.ones(3))
    assert [type(x) for x in state.values()] == [int, np.float32]


def test_unchanged_items_are_the_same_objects() -> None:
    state = _state()
    first, inner = state["a"][0], state["inner"]
    mm.compile(_grow)(state, mm.ones(3))
    mm.compile(_bind)(state, mm.ones(3))
    assert state["a"][0] is first
    assert state["inner"] is inner


@pytest.mark.parametrize("seed", range(4))
def test_sequences_of_functions(seed: int) -> None:
    """Each on what the others have left, with keyword arguments, beside the same in Python."""
    choose = random.Random(seed)
    functions = [f for f in FUNCTIONS if f not in (_shift, _exchange, _update_and_bind)]
    compiled = {f: mm.compile(f) for f in functions}
    states = _state(), _state()
    for step in range(12):
        function, x = choose.choice(functions), mm.full(3, 0.25 * step)
        function(states[0], x)
        compiled[function](x=x, state=states[1])
        assert _values(states[1]) == _values(states[0])


def test_an_error_changes_nothing() -> None:
    def failing(state: Any, x: Any) -> Any:
        state["h"] = x
        raise ValueError("no")

    state = _state()
    before = copy.copy(state)
    with pytest.raises(ValueError, match="no"):
        mm.compile(failing)(state, mm.ones(3))
    assert state == before


def test_gradients_flow_through_bound_items() -> None:
    state, x = {"h": mm.ones(3)}, mm.full(3, 2.0)

    def step(state: Any, x: Any) -> Any:
        state["h"] = state["h"] * x
        return mm.sum(state["h"])

    def loss(x: mm.Array, step: Any) -> mm.Array:
        state = {"h": mm.ones(3)}
        return step(state, x) + step(state, x)

    compiled = mm.compile(step)
    step(state, x)
    wanted = mm.grad(lambda x: loss(x, step))(x)
    assert mm.grad(lambda x: loss(x, compiled))(x).tolist() == wanted.tolist() == [5.0] * 3
    outside: dict[str, Any] = {"h": mm.ones(3)}
    total = compiled(outside, x) + compiled(outside, x)
    assert mm.grad(total, x).tolist() == wanted.tolist()


def test_arguments_and_variables_keep_their_identities() -> None:
    variable, x, values = mm.variable("v", [1.0, 2.0]), mm.ones(2), np.ones(2)

    @mm.compile
    def step(state: Any, x: Any, values: Any) -> None:
        state |= {"x": x, "nested": [x, x * 2], "values": values, "variable": variable}

    for _ in range(2):
        state: dict[str, Any] = {}
        step(state, x, values)
        assert state["x"] is state["nested"][0] is x
        assert state["values"] is values
        assert state["variable"] is variable
        assert state["nested"][1].tolist() == [2.0, 2.0]


def test_new_arrays_of_numpy_belong_to_the_caller() -> None:
    @mm.compile
    def step(state: Any) -> None:
        state["h"] = np.zeros(2)

    first: dict[str, Any] = {}
    step(first)
    first["h"] += 1
    second: dict[str, Any] = {}
    step(second)
    assert second["h"].tolist() == [0.0, 0.0]


def test_masked_elements_are_refused() -> None:
    def step(state: Any, x: Any) -> None:
        state["h"] = x[x > 0]

    with pytest.raises(mm.errors.MagmathError):
        mm.compile(step)({}, mm.ones(3))


def test_a_container_that_is_given_twice() -> None:
    """The function runs as Python then."""

    def step(first: Any, second: Any, x: Any) -> Any:
        first["h"] = x
        second["g"] = second["h"] + 1
        return second["g"]

    cache: dict[str, Any] = {"h": mm.zeros(2)}
    compiled = mm.compile(step)
    assert compiled(cache, {"h": mm.zeros(2)}, mm.ones(2)).tolist() == [1.0, 1.0]
    assert compiled(cache, cache, mm.full(2, 3.0)).tolist() == [4.0, 4.0]
    assert _values(cache) == _values({"h": mm.full(2, 3.0), "g": mm.full(2, 4.0)})

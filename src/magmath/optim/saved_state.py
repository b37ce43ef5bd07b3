"""The state of an optimizer in one dictionary, as `state_dict` returns it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from magmath.api.creation import asarray, constant
from magmath.arrays.array import Array
from magmath.core.dtypes import float64, int64
from magmath.errors import WeightsError

_RATE = "learning_rate"
ScheduleStates = Mapping[str, Mapping[str, Any]]
"""The states of learning rates, by the index of the rate."""


def encoded_state(
    arrays: Mapping[str, Array], schedules: ScheduleStates, steps: int
) -> dict[str, Array]:
    """Return the states of variables and learning rates, and the number of steps."""
    state = dict(arrays)
    for i, numbers in schedules.items():
        state |= {f"{_RATE}.{i}.{name}": _as_array(x) for name, x in numbers.items()}
    return {**state, "steps": constant(steps, dtype=int64)}


def decoded_state(state: Any) -> tuple[dict[str, Any], ScheduleStates, int]:
    """Return the states, the schedules and the number of steps from a dictionary of
    `encoded_state`, whose values may be arrays of any library. Raises TypeError or WeightsError for
    other objects."""
    if not isinstance(state, Mapping):
        hint = "; give x.state_dict()" if hasattr(state, "state_dict") else ""
        raise TypeError(
            f"load_state_dict: needs the dictionary that state_dict returned, was given "
            f"{type(state).__name__}{hint}"
        )
    entries = dict(state)
    if "steps" not in entries:
        raise WeightsError(
            "load_state_dict: needs the result of state_dict, with the entry 'steps'; was "
            f"given the entries {sorted(entries)}"
        )
    steps = entries.pop("steps")
    if isinstance(steps, str):
        raise TypeError(
            f"load_state_dict: the entry 'steps' is a number of steps, was given {steps!r}"
            "; load the result of state_dict"
        )
    schedules: dict[str, dict[str, Any]] = {}
    for name in list(entries):
        if match := re.fullmatch(rf"{_RATE}\.(\d+)\.(.+)", name):
            schedules.setdefault(match[1], {})[match[2]] = _as_number(entries.pop(name))
    return entries, schedules, int(steps)


def _as_array(value: Any) -> Array:
    """Return a value of a schedule's state as an array, a number as a 0-d one."""
    return constant(value, dtype=float64) if isinstance(value, float) else asarray(value)


def _as_number(value: Any) -> Any:
    """Return a 0-d array of any library as a Python number; other values unchanged."""
    return value.item() if getattr(value, "shape", None) == () else value

"""The states that an optimizer stores for variables: running means, a step count, a master copy.

A state belongs to the optimizer and the variable, and exists as long as both do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final
from weakref import WeakMethod, ref

from magmath.api.creation import asarray, variable, zeros
from magmath.arrays.variables.variable import Variable
from magmath.core.dtypes import DType, compute_dtype, int64
from magmath.engine import session
from magmath.engine.traces import tracing
from magmath.engine.traces.captured_arrays import invalidate_captures
from magmath.errors import OptionError, ShapeError
from magmath.graph import Node, Shape

MASTER = "master"
"""Name of the float32 copy of a variable of a half type, to which updates are applied."""


@final
@dataclass(frozen=True)
class ParameterNodes:
    """A parameter and its states as nodes: the current values, or those after the next step."""

    value: Node
    states: dict[str, Node]
    count: Node | None
    group: int

    def nodes(self) -> Iterator[Node]:
        """Yield all nodes, in a fixed order."""
        yield self.value
        yield from self.states.values()
        if self.count is not None:
            yield self.count


@final
class RequiredStates(NamedTuple):
    """The states that a variable needs: their names, whether its steps are counted, and the number
    of its group of settings."""

    names: tuple[str, ...]
    has_step_count: bool
    group: int


@final
@dataclass(eq=False)
class VariableStates:
    """The states of a variable.

    Variables that are always updated in the same steps share a step count.
    """

    variable: ref[Variable]
    states: dict[str, Variable]
    required: RequiredStates
    dtype: DType
    """The type of the variable when the states were made."""
    counted: int = 0
    """The number of steps so far, if there is no `count` yet."""
    count: Variable | None = field(default=None)

    def nodes(self, read: Callable[[Variable], Node]) -> ParameterNodes:
        """Return the variable and its states as the nodes that `read` returns."""
        owner = self.variable()
        assert owner is not None
        states = {name: read(state) for name, state in self.states.items()}
        count = None if self.count is None else read(self.count)
        return ParameterNodes(read(owner), states, count, self.required.group)

    @property
    def shape(self) -> Shape:
        """The shape of the variable."""
        owner = self.variable()
        assert owner is not None
        return owner.shape

    def variables(self) -> Iterator[Variable]:
        """Yield the variable and its states, in the order of `ParameterNodes.nodes`."""
        owner = self.variable()
        assert owner is not None
        yield owner
        yield from self.states.values()
        if self.count is not None:
            yield self.count


@final
class States:
    """The states of an optimizer by variable.

    required_states_of   a method of the optimizer that returns the states that a variable needs;
                         referenced weakly, since the optimizer owns its states
    """

    def __init__(self, required_states_of: Callable[[Variable], RequiredStates]) -> None:
        self._required_states_of = WeakMethod(required_states_of)
        self._states: dict[int, VariableStates] = {}
        self._loaded: dict[str, Any] = {}
        """Loaded states, by name, of variables that the optimizer has not updated since."""

    def of(self, variables: Sequence[Variable]) -> list[VariableStates]:
        """Return the states of variables of one update; new states are zeros."""
        with tracing.suspended():  # states exist outside of compiled functions
            new = [v for v in variables if self._find(v) is None]
            if new:
                self._forget_collected()
                labels = self._labels(new)
            for v in new:
                self._keep_converted(v, labels[id(v)])
                self._states[id(v)] = self._first(v, labels[id(v)])
            entries = [self._states[id(v)] for v in variables]
            self._share_counts([entry for entry in entries if entry.required.has_step_count])
        return entries

    def has_state_of(self, v: Variable) -> bool:
        """Return True if a variable has states, because it was updated before."""
        return self._find(v) is not None

    def state_dict(self) -> dict[str, Any]:
        """Return states and step counts by name: "w.velocity", "w.count"; "w#2.velocity" for the
        second variable of the name "w" that was updated.

        The result includes loaded states that were not used yet.
        """
        state = dict(self._loaded)
        labels = self._labels()
        for identity, entry in self._states.items():
            label = labels.get(identity)
            if label is not None:
                state |= {f"{label}.{name}": v.snapshot() for name, v in entry.states.items()}
                if entry.count is not None:
                    state[f"{label}.count"] = entry.count.snapshot()
        return state

    def _labels(self, new: Sequence[Variable] = ()) -> dict[int, str]:
        """Return the name of each variable that has states or is new, by its identity, with a
        number if earlier ones have the same name, as the parameters of two networks may."""
        known = [
            v
            for entry in self._states.values()
            if (v := entry.variable()) is not None and _is_on_its_pool(entry, v)
        ]
        labels: dict[int, str] = {}
        counts: Counter[str] = Counter()
        for v in (*known, *new):
            if id(v) not in labels:
                counts[v.name] += 1
                number = counts[v.name]
                labels[id(v)] = v.name if number == 1 else f"{v.name}#{number}"
        return labels

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what `state_dict` returned; programs that use the former states are rebuilt."""
        for entry in self._states.values():
            for v in (*entry.states.values(), *([entry.count] if entry.count else [])):
                invalidate_captures(v.leaf)
        self._states.clear()
        self._loaded = dict(state)

    def _find(self, v: Variable) -> VariableStates | None:
        entry = self._states.get(id(v))
        if entry is None or entry.variable() is not v or not _is_on_its_pool(entry, v):
            return None
        return entry if entry.dtype is v.dtype else None

    def _keep_converted(self, v: Variable, label: str) -> None:
        """Use the states of a variable that was converted to another type as loaded ones."""
        entry = self._states.get(id(v))
        if entry is None or entry.variable() is not v or not _is_on_its_pool(entry, v):
            return
        self._loaded |= {
            f"{label}.{name}": state.snapshot()
            for name, state in entry.states.items()
            if name != MASTER
        }
        self._loaded[f"{label}.count"] = (
            entry.counted if entry.count is None else entry.count.item()
        )

    def _forget_collected(self) -> None:
        """Drop the states of variables that no longer exist."""
        for identity in [i for i, entry in self._states.items() if entry.variable() is None]:
            del self._states[identity]

    def _first(self, v: Variable, label: str) -> VariableStates:
        """Return loaded or zero states for a variable, in its layout and in float32 at least."""
        required_states_of = self._required_states_of()
        assert required_states_of is not None, "the optimizer owns its states"
        required, dtype = required_states_of(v), compute_dtype(v.dtype)
        names = (*required.names, MASTER) if dtype is not v.dtype else required.names
        self._check_loaded(v, label, required.names)
        states = {name: self._first_value(v, f"{label}.{name}") for name in names}
        steps = int(self._loaded.pop(f"{label}.count", 0))
        return VariableStates(ref(v), states, required, v.dtype, steps)

    def _check_loaded(self, v: Variable, label: str, names: Sequence[str]) -> None:
        """Raise OptionError if the loaded states of a variable are those of another optimizer."""
        prefix = f"{label}."
        loaded = [key.removeprefix(prefix) for key in self._loaded if key.startswith(prefix)]
        known = {*names, MASTER, "count"}
        unknown = [name for name in loaded if "." not in name and name not in known]
        if unknown:
            raise OptionError(
                f"load_state_dict: the states of variable {v.name} are {', '.join(unknown)}, this "
                f"optimizer needs {', '.join(names) or 'none'}; load them into an optimizer of the "
                f"same class and settings"
            )

    def _first_value(self, v: Variable, key: str) -> Variable:
        """Return a state with its loaded value, or zeros, like the variable in shape and layout."""
        dtype = compute_dtype(v.dtype)
        loaded = self._loaded.pop(key, None)
        if loaded is None:
            return variable(key, zeros(v.shape, dtype=dtype, layout=v.layout), layout=v.layout)
        value = asarray(loaded)
        if value.shape != v.shape:
            raise ShapeError(
                f"load_state_dict: {key} has shape {value.shape}, variable {v.name} has {v.shape}; "
                f"load the state of an optimizer of the same variables"
            )
        return variable(key, value, dtype=dtype, layout=v.layout)

    def _share_counts(self, updated: Sequence[VariableStates]) -> None:
        """Give one count to variables that have been updated in the same steps so far."""
        updated_ids = set(map(id, updated))
        other_states = [entry for entry in self._states.values() if id(entry) not in updated_ids]
        shared = {id(other.count) for other in other_states}
        apart: dict[tuple[int, int], Variable] = {}
        for entry in updated:
            count = entry.count
            if count is None or id(count) in shared:
                key = id(count), entry.counted
                if key not in apart:
                    first = entry.counted if count is None else count
                    apart[key] = variable("count", first, dtype=int64)
                if count is not None:
                    invalidate_captures(count.leaf)  # compiled functions use the new one
                entry.count = apart[key]


def _is_on_its_pool(entry: VariableStates, v: Variable) -> bool:
    """Return False for states of an earlier pool, whose arrays no longer exist."""
    return all(state.stored.pool is v.stored.pool for state in entry.variables())


def is_of_current_pool(v: Variable) -> bool:
    """False for a variable of an earlier pool."""
    return v.stored.pool is session.engine().pool

"""The states that an optimizer stores for variables: running means, a step count, a master copy.

A state belongs to the optimizer and the variable, and exists as long as both do. Loaded values are
assigned to the states that exist, so compiled steps remain valid, and are kept for the variables
that the optimizer has not updated yet. A compiled step keeps its variables alive, also those of a
network that was made again since. So a loaded state belongs to whichever variable of its name is
updated first, and an existing one that was not used since gives it up.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, final
from weakref import WeakMethod, ref

import numpy as np

from magmath.api.creation import asarray, variable, zeros
from magmath.arrays.variables.variable import Variable, assign
from magmath.core.dtypes import DType, compute_dtype, int64
from magmath.engine import session
from magmath.engine.traces import tracing
from magmath.engine.traces.captured_arrays import invalidate_captures
from magmath.errors import OptionError, ShapeError
from magmath.graph import Node, Shape
from magmath.ops import elementwise as e

MASTER = "master"
"""Name of the float32 copy of a variable of a half type, to which updates are applied."""


def unrounded(value: Node, master: Node) -> Node:
    """Return the value of a variable of a half type in float32: its float32 copy, or the value
    itself where that is not the copy rounded, since the variable was assigned after the last
    update."""
    is_rounded = e.call("equal", e.astype(master, value.dtype), value)
    return e.where(is_rounded, master, e.astype(value, master.dtype))


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
    loaded_version: int | None = field(default=None)
    """The version number of the first state when values were loaded into it."""

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
        yield from self.by_name("").values()

    def by_name(self, prefix: str) -> dict[str, Variable]:
        """Return the states and the step count by their names after a prefix, in order."""
        states = {prefix + name: state for name, state in self.states.items()}
        return states if self.count is None else {**states, f"{prefix}count": self.count}

    def mark_loaded(self) -> None:
        """Note that values were loaded into the states."""
        self.loaded_version = next((v.number for v in self.by_name("").values()), None)

    @property
    def is_unused_since_load(self) -> bool:
        """True if values were loaded into the states, and no step was taken since."""
        numbers = (v.number for v in self.by_name("").values())
        return self.loaded_version is not None and self.loaded_version == next(numbers)


@final
class States:
    """The states of an optimizer by variable.

    required_states_of   a method of the optimizer that returns the states that a variable needs;
                         referenced weakly, since the optimizer owns its states
    has_groups           True if they depend on the name of the variable
    """

    def __init__(
        self, required_states_of: Callable[[Variable], RequiredStates], has_groups: bool
    ) -> None:
        self._required_states_of = WeakMethod(required_states_of)
        self._has_groups = has_groups
        self._states: dict[int, VariableStates] = {}
        self._loaded: dict[str, Any] = {}
        """Loaded states, by name, of variables that the optimizer has not updated since."""

    def of(self, variables: Sequence[Variable]) -> list[VariableStates]:
        """Return the states of variables of one update; new states are zeros."""
        with tracing.suspended():  # states exist outside of compiled functions
            new = [v for v in variables if self._find(v) is None]
            if new:
                self._forget_collected()
                self._return_unused_to_loaded({v.name for v in new})
                labels = self._labels(new)
                for v in new:
                    self._store_former_states(v, labels[id(v)])
                    _check_loaded(self._loaded, labels[id(v)], v, self._required(v))
            for v in new:
                self._states[id(v)] = self._initial_states(v, labels[id(v)])
            entries = [self._states[id(v)] for v in variables]
            counted = [entry for entry in entries if entry.required.has_step_count]
            replaced = self._share_counts(counted)
        for count in replaced:
            invalidate_captures(count.leaf)  # compiled functions use the new ones
        if replaced and (trace := tracing.current()):  # it may have counted in an old one alone
            trace.mark_outdated()
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
        for entry, label in self._labelled():
            state |= {name: v.snapshot() for name, v in entry.by_name(f"{label}.").items()}
        return state

    def _labelled(self) -> list[tuple[VariableStates, str]]:
        """Return the states of variables that exist, with the labels of the variables."""
        return [(self._states[identity], label) for identity, label in self._labels().items()]

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

    def check_state_dict(self, state: Mapping[str, Any]) -> None:
        """Raise OptionError or ShapeError if values do not fit the variables that have states."""
        for entry, label in self._labelled():
            _check_loaded(state, label, entry.variable(), entry.required)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load what `state_dict` returned, after `check_state_dict`.

        Assigns the values of the variables that have states. The states of variables that have no
        values, or shared a step count and do not any more, are removed, and programs that use them
        are rebuilt.
        """
        entries, loaded = self._labelled(), dict(state)
        values: dict[int, tuple[Variable, Any]] = {}
        kept: set[VariableStates] = set()
        for entry, label in entries:
            states = entry.by_name(f"{label}.")
            if states.keys() <= loaded.keys() and _is_count_shared(entry, label, loaded, values):
                values |= {id(v): (v, loaded.pop(name)) for name, v in states.items()}
                kept.add(entry)
        with tracing.suspended():
            assign([(v, asarray(value, dtype=v.dtype).node) for v, value in values.values()])
        for identity, entry in list(self._states.items()):
            if entry in kept:
                entry.mark_loaded()
            else:
                self._remove(identity)
        self._loaded = loaded

    def _return_unused_to_loaded(self, names: Collection[str]) -> None:
        """Move unused loaded states of variables with these names back to `_loaded`: the variables
        may belong to a network that was made again."""
        for entry, label in self._labelled():
            v = entry.variable()
            if v is not None and v.name in names and entry.is_unused_since_load:
                states = entry.by_name(f"{label}.")
                self._loaded |= {name: state.snapshot() for name, state in states.items()}
                self._remove(id(v))

    def _remove(self, identity: int) -> None:
        """Remove the states of a variable; programs that use them are rebuilt."""
        for v in self._states.pop(identity).by_name("").values():
            invalidate_captures(v.leaf)

    def _find(self, v: Variable) -> VariableStates | None:
        entry = self._states.get(id(v))
        if entry is None or entry.variable() is not v or not _is_on_its_pool(entry, v):
            return None
        is_current = entry.dtype is v.dtype
        if is_current and self._has_groups:  # its name may match another group by now
            is_current = entry.required == self._required(v)
        return entry if is_current else None

    def _store_former_states(self, v: Variable, label: str) -> None:
        """Store the states of a variable that was converted to another type, or is in another group
        by now, as loaded ones."""
        entry = self._states.get(id(v))
        if entry is None or entry.variable() is not v or not _is_on_its_pool(entry, v):
            return
        kept = list(self._required(v).names)
        if entry.dtype is v.dtype and MASTER in entry.states:
            kept.append(MASTER)
        for name in kept:
            if name in entry.states:
                value = entry.states[name].snapshot()
            else:
                value = zeros(v.shape, dtype=compute_dtype(v.dtype))
            self._loaded[f"{label}.{name}"] = value
        self._loaded[f"{label}.count"] = (
            entry.counted if entry.count is None else entry.count.item()
        )
        self._remove(id(v))

    def _forget_collected(self) -> None:
        """Drop the states of variables that no longer exist."""
        for identity in [i for i, entry in self._states.items() if entry.variable() is None]:
            del self._states[identity]

    def _required(self, v: Variable) -> RequiredStates:
        required_states_of = self._required_states_of()
        assert required_states_of is not None, "the optimizer owns its states"
        return required_states_of(v)

    def _initial_states(self, v: Variable, label: str) -> VariableStates:
        """Return loaded or zero states for a variable, in its layout and in float32 at least."""
        required = self._required(v)
        has_master = compute_dtype(v.dtype) is not v.dtype
        names = (*required.names, MASTER) if has_master else required.names
        states = {name: self._initial_value(v, f"{label}.{name}") for name in names}
        steps = int(self._loaded.pop(f"{label}.count", 0))
        return VariableStates(ref(v), states, required, v.dtype, steps)

    def _initial_value(self, v: Variable, key: str) -> Variable:
        """Return a state with its loaded value, or zeros, like the variable in shape and layout."""
        dtype = compute_dtype(v.dtype)
        loaded = self._loaded.pop(key, None)
        if loaded is None:
            return variable(key, zeros(v.shape, dtype=dtype, layout=v.layout), layout=v.layout)
        return variable(key, asarray(loaded), dtype=dtype, layout=v.layout)

    def _share_counts(self, updated: Sequence[VariableStates]) -> list[Variable]:
        """Give one count to variables that have been updated in the same steps so far; return the
        counts that some of them have shared with others."""
        updated_ids = set(map(id, updated))
        other_states = [entry for entry in self._states.values() if id(entry) not in updated_ids]
        shared = {id(other.count) for other in other_states}
        apart: dict[tuple[int, int], Variable] = {}
        replaced: list[Variable] = []
        for entry in updated:
            count = entry.count
            if count is None or id(count) in shared:
                key = id(count), entry.counted
                if key not in apart:
                    first = entry.counted if count is None else count
                    apart[key] = variable("count", first, dtype=int64)
                replaced += [] if count is None else [count]
                entry.count = apart[key]
        return replaced


def _check_loaded(
    loaded: Mapping[str, Any], label: str, v: Variable | None, required: RequiredStates
) -> None:
    """Raise OptionError or ShapeError if values are loaded for a variable, and are not those that
    it needs: they belong to another optimizer, or to a variable of another shape."""
    assert v is not None
    counted = ("count",) if required.has_step_count else ()
    prefix, needed = f"{label}.", (*required.names, *counted)
    names = [key.removeprefix(prefix) for key in loaded if key.startswith(prefix)]
    names = [name for name in names if "." not in name]
    unknown = [name for name in names if name not in {*needed, MASTER, "count"}]
    missing = [name for name in needed if name not in names]
    if unknown:
        raise OptionError(
            f"load_state_dict: the states of variable {v.name} are {', '.join(unknown)}, this "
            f"optimizer needs {', '.join(required.names) or 'none'}; load them into an optimizer "
            f"of the same class and settings"
        )
    if names and missing:
        raise OptionError(
            f"load_state_dict: the states of variable {v.name} lack {prefix}{missing[0]}; load "
            f"all that state_dict returned"
        )
    for name in names:
        shape = np.shape(loaded[prefix + name])
        needed_shape = () if name == "count" else v.shape
        if shape != needed_shape:
            raise ShapeError(
                f"load_state_dict: {prefix}{name} has shape {shape}, variable {v.name} needs "
                f"{needed_shape}; load the state of an optimizer of the same variables, or load "
                f"that of a network of other sizes into another optimizer"
            )
    if "count" in names and not _is_count(loaded[f"{prefix}count"]):
        raise OptionError(
            f"load_state_dict: {prefix}count must be a number of steps, was given "
            f"{loaded[f'{prefix}count']!r}; load what state_dict returned"
        )


def _is_count(value: Any) -> bool:
    try:
        return int(value) >= 0
    except (TypeError, ValueError):
        return False


def _is_count_shared(
    entry: VariableStates,
    label: str,
    loaded: Mapping[str, Any],
    values: Mapping[int, tuple[Variable, Any]],
) -> bool:
    """Return True unless the loaded step count of a variable differs from that, among `values`, of
    variables with which it has shared the count."""
    if entry.count is None or id(entry.count) not in values:
        return True
    return int(values[id(entry.count)][1]) == int(loaded[f"{label}.count"])


def _is_on_its_pool(entry: VariableStates, v: Variable) -> bool:
    """Return False for states of an earlier pool, whose arrays no longer exist."""
    return all(state.stored.pool is v.stored.pool for state in entry.variables())


def is_of_current_pool(v: Variable) -> bool:
    """False for a variable of an earlier pool."""
    return v.stored.pool is session.engine().pool

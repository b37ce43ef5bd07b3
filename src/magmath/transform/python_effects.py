"""What a function does to Python objects while it is traced, which its program does not repeat: it
draws random numbers of Python or NumPy, counts in an attribute, or keeps an array in one."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Hashable, Sequence
from threading import active_count
from typing import Any, NamedTuple, final

import numpy as np

from magmath.arrays.variables.variable import is_plain_array
from magmath.engine.traces.tracing import Trace
from magmath.engine.user_line import warn_user
from magmath.errors import TracingError
from magmath.graph import Node, topological
from magmath.transform.observed_entries import COMPARED, MISSING, ObservedEntries, is_same
from magmath.transform.observed_names import ObservedNames
from magmath.transform.python_objects import global_generators


@final
class _Change(NamedTuple):
    """An entry that a function has changed while it was traced."""

    entries: ObservedEntries
    key: Hashable
    before: Any
    after: Any

    def is_in(self, names: set[Hashable]) -> bool:
        """Return True if these names of attributes and keys, each of which is in a tuple of one
        element, contain that of the entry."""
        return not names.isdisjoint((self.key, (self.key,)))


def _has_kept_array(change: _Change, names: ObservedNames, used: Collection[Node]) -> bool:
    """Return True if a change keeps an array that further calls would have to read."""
    before, after = change.before, change.after
    if not is_plain_array(after):
        return False
    is_state = change.is_in(names.rebound) and _is_run_dependent(after.node)
    return is_state or (is_plain_array(before) and before.node in used)


def _is_default(change: _Change, names: ObservedNames) -> bool:
    """Return True for a number or text that reading has made, as `defaultdict` and `setdefault` do:
    further calls read it."""
    is_new = change.before is MISSING and isinstance(change.after, COMPARED)
    is_named = change.entries.order is not None or not change.entries.is_whole  # not in a list
    return is_new and is_named and not change.is_in(names.rebound)


def _is_counter(change: _Change, names: ObservedNames) -> bool:
    """Return True for a number or text that is read for more than its own update."""
    is_plain = isinstance(change.after, COMPARED) and isinstance(change.before, COMPARED)
    return is_plain and change.is_in(names.rebound) and change.is_in(names.used)


@final
class PythonEffects:
    """The names that functions read before they are traced, for a comparison afterwards.

    operation   what messages begin with
    function    how they show the function
    """

    def __init__(
        self, operation: str, function: str, *functions: Any, arguments: tuple[Any, ...] = ()
    ) -> None:
        self._operation, self._function = operation, function
        self._functions, self._arguments = functions, arguments
        names = ObservedNames(*functions, arguments=arguments)
        self._names = names  # keeps the owners alive, so that no identity is used again
        self._former: dict[tuple[int, bool], dict[Hashable, Any]] = {}
        """The values of entries, by the identity of their owner and by whether they are all of a
        container: a dictionary may be read whole and by key."""
        for entries in names.entries:
            former = self._former.setdefault((entries.owner, entries.is_whole), {})
            former.update(_present_values(entries))
        self._generators = {**global_generators(), **names.generators}
        self._states = {label: _state(x) for label, x in self._generators.items()}

    def add_reads_to(self, trace: Trace, used: Collection[Node]) -> list[str]:
        """Add to a trace the names that the functions have read, without what they have changed
        themselves; return labels of the objects that are too large to be compared at each call.

        used   the nodes of the program

        Raises TracingError if an array was read from an object, such as an attribute, and another
        one kept there: further calls would not see it. The object then has its former one again.
        Warns of random numbers and counters that are the same in each call.
        """
        names = ObservedNames(*self._functions, arguments=self._arguments)
        changes = self._changes(names)
        self._refuse([x for x in changes if _has_kept_array(x, names, used)])
        self._warn_of_drawn(names)
        counters = [x.entries.label(x.key) for x in changes if _is_counter(x, names)]
        self._warn_of_counted([*counters, *names.iterators])
        for module in names.modules:
            trace.depend_on_state(module)
        names.modules.clear()  # the names would keep them alive
        changed: dict[int, set[Hashable]] = {}
        for x in changes:
            if not _is_default(x, names):
                changed.setdefault(x.entries.owner, set()).add(x.key)
        names.drop(changed)
        trace.depend_on_observed_state(names)
        return names.uncompared

    def _changes(self, names: ObservedNames) -> list[_Change]:
        """Return the entries that differ from those before the trace."""
        changes: list[_Change] = []
        for entries in names.entries:
            now, is_whole = _present_values(entries), entries.is_whole
            former = self._former.get((entries.owner, is_whole))
            if former is None:  # before, it was read in the other way, or not at all
                former, is_whole = self._former.get((entries.owner, not is_whole), {}), False
            keys = former.keys() | now.keys() if is_whole else former.keys() & now.keys()
            for key in keys:
                before, after = former.get(key, MISSING), now.get(key, MISSING)
                if not is_same(before, after):
                    changes.append(_Change(entries, key, before, after))
        return changes

    def _refuse(self, changes: Sequence[_Change]) -> None:
        """Raise TracingError if the function keeps arrays, and write back their former values."""
        if not changes:
            return
        for change in changes:
            if change.entries.write is not None:
                change.entries.write(change.key, change.before)
        label = changes[0].entries.label(changes[0].key)
        raise TracingError(
            f"{self._operation}: {self._function} reads {label} and binds it to a new array, which "
            f"happens only while it is traced, so further calls would read the former array; make "
            f"it a buffer of the module (in __init__ self.name = mm.nn.Buffer(value), in the call "
            f"self.name.assign(x)) or a variable (mm.variable(name, value), v.assign(x)), or pass "
            f"it as an argument and return the new one"
        )

    def _warn_of_drawn(self, names: ObservedNames) -> None:
        """Warn if a generator was used, by this thread as far as that is known."""
        for label, generator in self._generators.items():
            is_own = label in names.generators or active_count() == 1
            if is_own and _state(generator) != self._states[label]:
                warn_user(
                    f"{self._operation}: {self._function} draws random numbers from {label} while "
                    f"it is traced, so all its calls use the same ones; draw with mm.random, or "
                    f"pass them as arguments"
                )

    def _warn_of_counted(self, labels: list[str]) -> None:
        if labels:
            warn_user(
                f"{self._operation}: {self._function} changes {labels[0]}, which it also reads; "
                f"that happens only while it is traced, so all its calls use the same value; make "
                f"it an mm.nn.Buffer or an mm.variable, or pass the value as an argument"
            )


def uncompared_warning(function: str, labels: Sequence[str]) -> str:
    """Return the warning of objects that are too large to be compared at each call."""
    first, *others = dict.fromkeys(labels)
    objects = f"{first} and {len(others)} more, which are" if others else f"{first}, which is"
    return (
        f"{function} reads {objects} too large to be compared at each call: changes within are not "
        f"seen; pass it as an argument, bind the name to a new object after a change, or make it "
        f"an array of magmath or a read-only one (array.flags.writeable = False)"
    )


def _present_values(entries: ObservedEntries) -> dict[Hashable, Any]:
    """Return the present values of entries by their keys."""
    return dict(zip(entries.keys, entries.read(), strict=False))


def _is_run_dependent(node: Node) -> bool:
    """Return True if a value may differ between the runs of a program."""
    leaves = [x for x in topological((node,), pending=True) if x.is_leaf]
    return any(x.value is None or x.name == "variable" for x in leaves)


def _state(generator: Any) -> bytes:
    """Return the state of a generator of random numbers."""
    if isinstance(generator, np.random.Generator):
        return pickle.dumps(generator.bit_generator.state)
    if isinstance(generator, np.random.RandomState):
        return pickle.dumps(generator.get_state(legacy=False))
    return pickle.dumps(generator.getstate())

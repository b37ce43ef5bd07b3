"""What a function does to Python objects while it is traced, which its program does not repeat: it
draws random numbers of Python or NumPy, counts in an attribute, or keeps an array in one."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Hashable
from threading import active_count
from typing import Any, final

import numpy as np

from magmath.arrays.array import Array
from magmath.arrays.variables.variable import Variable
from magmath.engine.traces.tracing import Trace
from magmath.engine.user_line import warn_user
from magmath.errors import TracingError
from magmath.graph import Node, topological
from magmath.transform.held_entries import COMPARED, MISSING, HeldEntries, is_same
from magmath.transform.object_walk import global_generators
from magmath.transform.read_names import ReadNames


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
        names = ReadNames(*functions, arguments=arguments)
        self._former = {entries.owner: (entries, [*entries.read()]) for entries in names.entries}
        self._generators = {**global_generators(), **names.generators}
        self._states = {label: _state(one) for label, one in self._generators.items()}

    def note(self, trace: Trace, used: Collection[Node]) -> str | None:
        """Note in a trace the names that the functions have read, without what they have changed
        themselves; return the label of what is too large to be compared at each call, if there is
        such an object.

        used   the nodes of the program

        Raises TracingError if an array was read from an object, such as an attribute, and another
        one kept there: further calls would not see it. The object then has its former one again.
        Warns of random numbers and counters that are the same in each call.
        """
        names = ReadNames(*self._functions, arguments=self._arguments)
        changed: dict[int, set[Hashable]] = {}
        kept: list[tuple[HeldEntries, Hashable, Any]] = []
        counted: list[str] = []
        for entries in names.entries:
            known = self._former.get(entries.owner)
            if known is None:
                continue
            former, now = _by_key(*known), _by_key(entries, [*entries.read()])
            keys = former.keys() | now.keys() if entries.is_whole else former.keys() & now.keys()
            for key in keys:
                before, after = former.get(key, MISSING), now.get(key, MISSING)
                if is_same(before, after):
                    continue
                changed.setdefault(entries.owner, set()).add(key)
                is_rebound = not names.rebound.isdisjoint(spellings := (key, (key,)))
                if _is_array(after) and (
                    (is_rebound and _depends_on_run(after.node))
                    or (_is_array(before) and before.node in used)
                ):
                    kept.append((entries, key, before))
                elif is_rebound and isinstance(after, COMPARED) and isinstance(before, COMPARED):
                    counted += [] if names.used.isdisjoint(spellings) else [entries.label(key)]
        self._refuse(kept)
        self._warn_of_drawn(names)
        self._warn_of_counted([*counted, *names.iterators])
        for module in names.modules:
            trace.note_state(module)
        names.modules.clear()
        trace.note_observed_state(names.without(changed))
        return names.uncompared

    def _refuse(self, kept: list[tuple[HeldEntries, Hashable, Any]]) -> None:
        if not kept:
            return
        for entries, key, before in kept:
            if entries.write is not None:
                entries.write(key, before)
        entries, key, _ = kept[0]
        label = entries.label(key)
        raise TracingError(
            f"{self._operation}: {self._function} reads {label} and binds it to a new array, which "
            f"happens only while it is traced, so further calls would read the former array; make "
            f"it a buffer of the module (in __init__ self.name = mm.nn.Buffer(value), in the call "
            f"self.name.assign(x)) or a variable (mm.variable(name, value), v.assign(x)), or pass "
            f"it as an argument and return the new one"
        )

    def _warn_of_drawn(self, names: ReadNames) -> None:
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


def uncompared(function: str, label: str) -> str:
    """Return the warning of an object that is too large to be compared at each call."""
    return (
        f"{function} reads {label}, which is too large to be compared at each call: changes within "
        f"it are not seen; pass it as an argument, bind the name to a new object after a change, "
        f"or make it an array of magmath or a read-only one (array.flags.writeable = False)"
    )


def _by_key(entries: HeldEntries, values: list[Any]) -> dict[Hashable, Any]:
    return dict(zip(entries.keys, values, strict=False))


def _is_array(value: Any) -> bool:
    return isinstance(value, Array) and not isinstance(value, Variable)


def _depends_on_run(node: Node) -> bool:
    """Return True if a value may differ between the runs of a program."""
    leaves = [x for x in topological((node,), cut=True) if x.is_leaf]
    return any(x.value is None or x.name == "variable" for x in leaves)


def _state(generator: Any) -> bytes:
    """Return the state of a generator of random numbers."""
    if isinstance(generator, np.random.Generator):
        return pickle.dumps(generator.bit_generator.state)
    if isinstance(generator, np.random.RandomState):
        return pickle.dumps(generator.get_state(legacy=False))
    return pickle.dumps(generator.getstate())

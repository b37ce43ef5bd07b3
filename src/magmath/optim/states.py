"""The states that an optimizer keeps of variables: running means, a step count, a master copy.

They belong to the optimizer and the variable, and last as long as both do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import final
from weakref import ref

from magmath.array import tracing
from magmath.array.captured import note_update
from magmath.array.creation import variable, zeros
from magmath.array.variable import Variable
from magmath.core.dtypes import compute_dtype, int64
from magmath.graph import Node
from magmath.layout import Layout

MASTER = "master"
"""The name of the float32 copy of a variable of a half type, which takes the updates."""


@dataclass(frozen=True)
class Slot:
    """A parameter and what an optimizer keeps of it, as nodes: now, or after the next step."""

    value: Node
    states: dict[str, Node]
    count: Node | None

    def nodes(self) -> Iterator[Node]:
        """All of them, always in the same order."""
        yield self.value
        yield from self.states.values()
        if self.count is not None:
            yield self.count


@final
@dataclass(eq=False)
class Kept:
    """What is kept of a variable. Variables that are always updated together share their count."""

    variable: ref[Variable]
    states: dict[str, Variable]
    count: Variable | None = field(default=None)

    def slot(self, read: Callable[[Variable], Node]) -> Slot:
        """The variable with its states, as the nodes that `read` gives for them."""
        owner = self.variable()
        assert owner is not None
        states = {name: read(state) for name, state in self.states.items()}
        return Slot(read(owner), states, None if self.count is None else read(self.count))

    def variables(self) -> Iterator[Variable]:
        """The variable and its states, in the order of `Slot.nodes`."""
        owner = self.variable()
        assert owner is not None
        yield owner
        yield from self.states.values()
        if self.count is not None:
            yield self.count

    def move(self, layout: Layout) -> None:
        """Bring the variable and its states into a layout."""
        for v in self.variables():
            if v.shape == layout.shape:
                v.move(layout)


@final
class States:
    """What an optimizer keeps, by variable: `names` are the arrays, `counts` whether it counts."""

    def __init__(self, names: Sequence[str], counts: bool) -> None:
        self._names = tuple(names)
        self._counts = counts
        self._kept: dict[int, Kept] = {}

    def of(self, variables: Sequence[Variable]) -> list[Kept]:
        """What is kept of variables that are updated together; zeros at first."""
        with tracing.suspended():  # what is kept exists outside of compiled functions
            for v in variables:
                if self._find(v) is None:
                    self._kept[id(v)] = Kept(ref(v), self._zeros(v))
            found = [self._kept[id(v)] for v in variables]
            if self._counts:
                self._share_counts(found)
        return found

    def _find(self, v: Variable) -> Kept | None:
        kept = self._kept.get(id(v))
        return kept if kept is not None and kept.variable() is v and _on_its_pool(kept, v) else None

    def _zeros(self, v: Variable) -> dict[str, Variable]:
        """Zeros in the layout of the variable, in float32 at least."""
        for identity in [i for i, kept in self._kept.items() if kept.variable() is None]:
            del self._kept[identity]
        dtype = compute_dtype(v.dtype)
        names = (*self._names, MASTER) if dtype is not v.dtype else self._names
        return {
            name: variable(
                f"{v.name}.{name}", zeros(v.shape, dtype=dtype, layout=v.layout), layout=v.layout
            )
            for name in names
        }

    def _share_counts(self, updated: Sequence[Kept]) -> None:
        """Give variables that were updated together until now, and go on so, one count."""
        others = [kept for kept in self._kept.values() if kept not in updated]
        apart: dict[int, Variable] = {}
        for kept in updated:
            count = kept.count
            if count is None or any(other.count is count for other in others):
                key = id(count)
                if key not in apart:
                    apart[key] = variable("count", 0 if count is None else count, dtype=int64)
                if count is not None:
                    note_update(count.leaf)  # functions that are compiled go on with the new one
                kept.count = apart[key]


def _on_its_pool(kept: Kept, v: Variable) -> bool:
    """False for states of an earlier pool, whose arrays have ended with it."""
    return all(state.data.pool is v.data.pool for state in kept.variables())

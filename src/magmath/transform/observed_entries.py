"""Observed entries of a Python object: items of a list, attributes of an object and the like, as
they were when a function was traced, and a fast comparison with what they are.

Objects are compared by identity; equal numbers and texts are the same. Objects with weak references
are not kept alive: the table of all entries hears of their deaths.
"""

from __future__ import annotations

from array import array
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat
from operator import attrgetter
from types import CellType
from typing import Any, final
from weakref import ref

import numpy as np
import torch

MISSING: Any = object()
"""The value of an entry that does not exist."""
MAX_BYTES = 1 << 12
"""Size up to which the content of NumPy's arrays is compared at each call."""
_ALWAYS_MISSING = repeat(MISSING)
_WEAK = object()
"""Stands for an object that is held weakly."""
COMPARED = (bool, int, float, complex, str, bytes, np.generic)
"""Types of which equal values are the same."""

Label = Callable[[Any], str]


@final
class ObservedEntries:
    """Entries of an object.

    read     a function that returns their present values
    keys     their names
    order    the present keys of a dictionary, which are compared too; None if there are none
    label    how messages name an entry with a given key
    write    a function that sets an entry; None if it cannot be set
    select   a function that returns the entries with given keys alone; None if there is none
    is_whole True for all items of a container
    """

    __slots__ = (
        "_strong",
        "identities",
        "is_whole",
        "keys",
        "label",
        "order",
        "owner",
        "read",
        "select",
        "write",
    )

    def __init__(
        self,
        owner: object,
        read: Callable[[], Iterable[Any]],
        keys: Sequence[Hashable],
        label: Label,
        write: Callable[[Any, Any], object] | None = None,
        select: Callable[[Sequence[Any]], ObservedEntries] | None = None,
        is_whole: bool = False,
        order: Iterable[Hashable] | None = None,
    ) -> None:
        self.owner, self.read, self.keys = id(owner), read, keys
        self.label, self.write, self.select = label, write, select
        self.is_whole, self.order = is_whole, order
        self.identities: list[int] = []
        self._strong: list[Any] = []

    def observe(self, on_death: Callable[[Any], object]) -> list[ref[Any]]:
        """Record the present values; return weak references that call `on_death` for those that can
        have one."""
        values = [*self.read()]
        references = []
        self._strong = []
        for value in values:
            try:
                references.append(ref(value, on_death))
                self._strong.append(_WEAK)
            except TypeError:
                self._strong.append(value)
        self.identities[:] = map(id, values)
        return references

    def is_unchanged(self) -> bool:
        """Return True if the values are the same, or numbers and texts that are equal, which it
        then records."""
        try:
            values = [*self.read()]
        except (ValueError, RuntimeError):  # a variable was deleted, or a container changes
            return False
        if self._differing(values):
            return False
        for i, value in enumerate(values):
            if self._strong[i] is not _WEAK:
                self._strong[i] = value
        self.identities[:] = map(id, values)
        return True

    def _differing(self, values: list[Any]) -> list[int]:
        """Return the positions at which these values are others; [-1] if their number or the order
        of a dictionary's keys is another one."""
        if len(values) != len(self.identities):
            return [-1]
        if self.order is not None and [*self.order] != self.keys:
            return [-1]
        return [
            i
            for i, (value, former) in enumerate(zip(values, self.identities, strict=True))
            if id(value) != former and not is_same(self._strong[i], value)
        ]

    def changed_name(self) -> str | None:
        """Return how a message names an entry with another value; None if there is none."""
        try:
            differing = self._differing([*self.read()])
        except (ValueError, RuntimeError):
            return self.label(MISSING)
        if not differing:
            return None
        return self.label(MISSING if differing[0] < 0 else self.keys[differing[0]])


@final
class ObservedBuffer:
    """The elements of an array of NumPy, a tensor of PyTorch or a buffer of Python, with shape and
    type."""

    __slots__ = ("_buffer", "_content", "label", "owner")

    def __init__(self, buffer: Any, label: str) -> None:
        has_references = not isinstance(buffer, bytearray)
        self._buffer: Callable[[], Any] = ref(buffer) if has_references else lambda: buffer
        self.owner, self.label = id(buffer), label
        self._content = _content_of(buffer)

    def is_unchanged(self) -> bool:
        """Return True if the content is the same."""
        buffer = self._buffer()
        return buffer is not None and _content_of(buffer) == self._content

    def changed_name(self) -> str | None:
        """Return the array's label if its content has changed, otherwise None."""
        return None if self.is_unchanged() else self.label


def is_same(former: Any, now: Any) -> bool:
    """Return True for one object, and for equal numbers or texts of one type."""
    if former is now:
        return True
    return type(former) is type(now) and isinstance(now, COMPARED) and repr(former) == repr(now)


def attributes_of(owner: Any, mapping: Any, names: Sequence[str], label: Label) -> ObservedEntries:
    """Return the entries with these names of a namespace or dictionary, which need not have all of
    them; `owner` is the class whose namespace it is, otherwise the dictionary."""
    get = partial(dict.get, mapping) if isinstance(mapping, dict) else mapping.get
    if type(mapping) is dict:
        get = mapping.get
    return ObservedEntries(
        owner,
        partial(map, get, names, _ALWAYS_MISSING),
        names,
        label,
        partial(_write_item if isinstance(mapping, dict) else _write_attribute, owner),
        lambda chosen: attributes_of(owner, mapping, chosen, label),
    )


def slots_of(owner: Any, names: Sequence[str], label: Label) -> ObservedEntries:
    """Return the attributes with these names, which the class has as `__slots__`."""
    return ObservedEntries(
        owner,
        partial(map, partial(_slot, owner), names),
        names,
        label,
        partial(_write_attribute, owner),
        lambda chosen: slots_of(owner, chosen, label),
    )


def cells_of(cells: Mapping[str, CellType], owner: object, label: Label) -> ObservedEntries:
    """Return the contents of variables of an enclosing function."""

    def write(name: str, value: Any) -> None:
        cells[name].cell_contents = value

    return ObservedEntries(
        owner,
        partial(map, _CONTENTS, [*cells.values()]),
        [*cells],
        label,
        write,
        lambda chosen: cells_of({name: cells[name] for name in chosen}, owner, label),
    )


def items_of(container: Any, label: Label) -> ObservedEntries:
    """Return all items of a list, tuple, set, deque or dictionary."""
    if isinstance(container, dict):
        kind: Any = OrderedDict if isinstance(container, OrderedDict) else dict
        return ObservedEntries(
            container,
            container.values if type(container) is dict else partial(kind.values, container),
            [*kind.keys(container)],
            label,
            partial(_write_item, container),
            lambda chosen: attributes_of(container, container, chosen, label),
            is_whole=True,
            order=kind.keys(container),
        )
    kind = next(kind for kind in CONTAINERS if isinstance(container, kind))
    write = container.__setitem__ if isinstance(container, (list, deque)) else None
    read = partial(kind.__iter__, container)
    return ObservedEntries(container, read, range(len(container)), label, write, is_whole=True)


def referent_of(reference: ref[Any], label: str) -> ObservedEntries:
    """Return the object that a weak reference refers to, None after its death."""
    return ObservedEntries(reference, lambda: (reference(),), ("()",), lambda _: label)


CONTAINERS: tuple[Any, ...] = (dict, list, tuple, deque, set, frozenset)
"""Types whose items are compared."""


_CONTENTS = attrgetter("cell_contents")


def is_buffer(value: Any) -> bool:
    """Return True for an object whose elements are compared: an array of NumPy without objects, a
    tensor of PyTorch, or a buffer of Python."""
    if isinstance(value, np.ndarray):
        return bool(value.dtype.kind != "O")
    if isinstance(value, torch.Tensor):
        return value.layout is torch.strided and value.device.type != "meta"
    return isinstance(value, (bytearray, memoryview, array))


def buffer_bytes(buffer: Any) -> int:
    """Return the bytes of the elements of a buffer."""
    is_sized = isinstance(buffer, (np.ndarray, torch.Tensor))
    return int(buffer.nbytes if is_sized else memoryview(buffer).nbytes)


def _content_of(buffer: Any) -> tuple[Any, ...]:
    if isinstance(buffer, torch.Tensor):
        values = buffer.detach().cpu().resolve_conj().resolve_neg().flatten().contiguous()
        return buffer.shape, buffer.dtype, values.view(torch.uint8).numpy().tobytes()
    if isinstance(buffer, np.ndarray):
        return buffer.shape, buffer.dtype, buffer.tobytes()
    return (bytes(buffer),)


def _slot(owner: Any, name: str) -> Any:
    try:
        return object.__getattribute__(owner, name)
    except AttributeError:
        return MISSING


def _write_item(mapping: dict[Any, Any], key: Any, value: Any) -> None:
    if value is MISSING:
        dict.pop(mapping, key, None)
    else:
        dict.__setitem__(mapping, key, value)


def _write_attribute(owner: Any, name: str, value: Any) -> None:
    if value is MISSING:
        delattr(owner, name)
    else:
        setattr(owner, name, value)

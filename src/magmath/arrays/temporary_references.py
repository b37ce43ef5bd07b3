"""Reference counts of objects without names: values that only the expression in progress uses.

The counts are measured when the module is imported, since they differ between versions of Python.
Where an object with a name has the same count, none counts as without a name: then `x[i] += v`
writes the elements twice, and results are the same, except that parts of variables refuse it.
"""

from __future__ import annotations

from collections.abc import Mapping
from sys import getrefcount
from typing import Any, ClassVar, Final, final

from magmath.arrays.protocols.operators import Operators


@final
class _Probe:
    """Counts the references to a written value, to the target of a write, and to an object that is
    converted to a number, when they have no names."""

    counts: ClassVar[dict[str, int]] = {}

    def __setitem__(self, key: Any, value: Any) -> None:
        _Probe.counts |= {"value": getrefcount(value), "target": getrefcount(self)}

    def __float__(self) -> float:
        _Probe.counts["float"] = getrefcount(self)
        return 0.0

    def __int__(self) -> int:
        _Probe.counts["int"] = getrefcount(self)
        return 0

    def __bool__(self) -> bool:
        _Probe.counts["bool"] = getrefcount(self)
        return False

    def __index__(self) -> int:
        _Probe.counts["index"] = getrefcount(self)
        return 0

    def __complex__(self) -> complex:
        _Probe.counts["complex"] = getrefcount(self)
        return 0j

    def item(self) -> None:
        _Probe.counts["item"] = getrefcount(self)


@final
class _UpdatedItem(Operators[Any]):
    """Counts the references to the x[i] of `x[i] += v`."""

    def _update(self, operation: str, other: Any) -> int:
        return getrefcount(self)


@final
class _Container:
    """An object whose items have no name."""

    references: int

    def __getitem__(self, key: Any) -> _UpdatedItem:
        return _UpdatedItem()

    def __setitem__(self, key: Any, value: Any) -> None:
        _Container.references = value


def _counts_without_names() -> dict[str, int]:
    _Probe()[0] = object()
    float(_Probe()), int(_Probe()), bool(_Probe()), range(_Probe()), complex(_Probe())
    _Probe().item()
    _Container()[0] += 0
    return _Probe.counts | {"update": _Container.references}


def _counts_with_names() -> dict[str, int]:
    probe, value = _Probe(), object()
    item: Any = _UpdatedItem()
    probe[0] = value
    float(probe), int(probe), bool(probe), range(probe), complex(probe)
    probe.item()
    item += 0
    return _Probe.counts | {"update": item}


def distinct_counts(without: Mapping[str, int], named: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of objects without names; 0, which no object has, where they do not differ
    from those of objects with names."""
    return {use: count if count < named[use] else 0 for use, count in without.items()}


_TEMPORARY = distinct_counts(_counts_without_names(), _counts_with_names())
TEMPORARY, TEMPORARY_TARGET = _TEMPORARY["value"], _TEMPORARY["target"]
TEMPORARY_UPDATE = _TEMPORARY["update"]
TEMPORARY_NUMBER: Final = _TEMPORARY
"""The counts for an array that is converted by `float`, `int`, … or `item`."""

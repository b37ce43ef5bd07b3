"""Reference counts of objects without names: values that only the expression in progress uses."""

from __future__ import annotations

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


_Probe()[0] = object()
float(_Probe()), int(_Probe()), bool(_Probe()), range(_Probe()), complex(_Probe())
_Probe().item()
TEMPORARY, TEMPORARY_TARGET = _Probe.counts["value"], _Probe.counts["target"]
TEMPORARY_NUMBER: Final = _Probe.counts
"""The counts for an array that is converted by `float`, `int`, … or `item`."""


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


_Container()[0] += 0
TEMPORARY_UPDATE = _Container.references

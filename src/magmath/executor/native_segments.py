"""Native segments: compiled functions that replace several bound calls of a program.

The source from `executor/native.py` is compiled in the background; a binding then gets a call for
each segment, with the addresses of its own tensors. A segment has groups of lines. The threads of
torch divide the loops over many elements: a group that they divide ends when all of its parts are
done, so the next one may read what it has computed.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, cast, final

import numpy as np

from magmath.core.type_aliases import BoundCall
from magmath.executor.failure_report import FailureReport, take_errors
from magmath.executor.native_source import NativeSource
from magmath.executor.tensors import Tensors
from magmath.kernels.parallel_region import bind_record

if TYPE_CHECKING:
    from magmath.executor.native_build import Function, NativeBuild


@final
class NativeSegments:
    """The native segments of a program; with `exact`, each operation is rounded by itself."""

    def __init__(self, source: NativeSource, *, exact: bool) -> None:
        from magmath.executor.native_build import NativeBuild

        self._source = source
        self._build: NativeBuild = NativeBuild(source.source, "rounded" if exact else "fast")

    def is_ready(self) -> bool:
        """Return True once the segments are compiled."""
        return self._build.function() is not None

    def error(self) -> str:
        """Return the compiler's error if it has failed, otherwise an empty string."""
        return self._build.error()

    def bind(self, tensors: Tensors) -> Mapping[range, BoundCall]:
        """Return a bound call for each segment, by its range of instructions, on these tensors."""
        addresses = self._source.addresses(tensors)
        function = self._build.function()
        assert function is not None
        calls: dict[range, BoundCall] = {}
        count = 0
        for segment in self._source.segments:
            numbers = enumerate(segment.divided, start=count)
            groups = [_group_call(function, n, addresses, divided) for n, divided in numbers]
            calls[segment.positions] = _call(groups, segment.reports)
            count += len(groups)
        return calls

    def close(self) -> None:
        """Stop the compilation."""
        self._build.close()


def _group_call(
    function: Function, number: int, addresses: Sequence[int], is_divided: bool
) -> BoundCall:
    """Return a bound call of one group of a segment, which several threads divide if it
    `is_divided`; otherwise without a frame of Python of its own."""
    work = np.zeros(1, dtype=np.int64)
    words = np.array([number, work.ctypes.data, *addresses], dtype=np.int64)
    if is_divided:
        address = ctypes.cast(cast(Any, function), ctypes.c_void_p).value or 0
        return bind_record(address, words, work, function)
    alone = partial(function, words.ctypes.data)
    alone.__dict__["memory"] = words, work  # the record, and what it refers to
    return alone


def _call(groups: Sequence[BoundCall], reports: Sequence[FailureReport]) -> BoundCall:
    """Return a call of all groups of a segment; it raises the first error that they report."""
    if len(groups) == 1 and not reports:
        return groups[0]

    def call() -> None:
        for group in groups:
            group()
        if errors := take_errors(reports):
            raise errors[0]

    return call

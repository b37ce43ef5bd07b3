"""Native segments: compiled functions that replace several ready calls of a program.

The source from `executor/native.py` is compiled in the background; a binding then gets a call for
each segment, with the addresses of its own tensors. Long loops are executed by all threads of the
worker, those of torch's OpenMP, which take shares of the iterations from a counter.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, final

import numpy as np
import torch

from magmath.executor.native_source import Fault, NativeSource, Piece
from magmath.executor.tensors import Tensors
from magmath.kernels.parallel_region import run_on_threads

if TYPE_CHECKING:
    from magmath.codegen.background_build import BackgroundBuild

Ready = Callable[[], object]
Words = np.ndarray[tuple[int], np.dtype[np.int64]]


@final
class NativeSegments:
    """The compiled segments of a program; with `exact`, each operation is rounded by itself."""

    def __init__(self, source: NativeSource, *, exact: bool) -> None:
        from magmath.codegen.background_build import BackgroundBuild

        self._source = source
        self._build: BackgroundBuild = BackgroundBuild(
            source.source, "rounded" if exact else "fast"
        )
        self._offsets = np.array(source.offsets or [0], dtype=np.int64)

    def ready(self) -> bool:
        """Return True once the segments are compiled."""
        return self._build.function() is not None

    def error(self) -> str:
        """Return the compiler's error if it has failed, otherwise an empty string."""
        return self._build.error()

    def bind(self, tensors: Tensors) -> Mapping[range, Ready]:
        """Return a ready call for each segment, by its range of instructions, on these tensors."""
        places = np.array([self._offsets.ctypes.data, *self._source.addresses(tensors)], np.int64)
        segments, pieces, faults = self._source.segments, self._source.pieces, self._source.faults
        return {
            positions: _checked([self._call(piece, places) for piece in parts], found)
            for positions, parts, found in zip(segments, pieces, faults, strict=True)
        }

    def _call(self, piece: Piece, places: Words) -> Ready:
        """Return a call that executes a piece, by one thread or by all."""
        counter = np.zeros(1, np.int64)
        words = np.concatenate([[piece.number, counter.ctypes.data], places])
        function, address = self._build.function(), words.ctypes.data
        assert function is not None

        def call(memory: object = words) -> None:  # `words` must live as long as its address
            function(address)

        if not piece.shared:
            return call
        place = ctypes.cast(function, ctypes.c_void_p).value  # type: ignore[arg-type]
        assert place is not None

        def shared(memory: object = words) -> None:
            counter[0] = 0
            run_on_threads(place, address, torch.get_num_threads())

        return shared

    def close(self) -> None:
        """Stop the compilation."""
        self._build.close()


def _checked(calls: Sequence[Ready], faults: Sequence[Fault]) -> Ready:
    """Return one call that makes these calls, and raises the first error that they report."""
    if len(calls) == 1 and not faults:
        return calls[0]

    def run() -> None:
        for call in calls:
            call()
        errors = [error for fault in faults if (error := fault.take()) is not None]
        if errors:
            raise errors[0]

    return run

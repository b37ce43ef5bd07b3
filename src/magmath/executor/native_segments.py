"""Native segments: compiled functions that replace several ready calls of a program.

The source from `executor/native.py` is compiled in the background; a binding then gets a call for
each segment, with the addresses of its own tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, final

import numpy as np

from magmath.executor.native_source import Fault, NativeSource
from magmath.executor.tensors import Tensors

if TYPE_CHECKING:
    from magmath.codegen.background_build import BackgroundBuild

Ready = Callable[[], object]


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
        addresses = [self._offsets.ctypes.data, *self._source.addresses(tensors)]
        return {
            positions: self._call(np.array([number, *addresses], dtype=np.int64), faults)
            for number, (positions, faults) in enumerate(
                zip(self._source.segments, self._source.faults, strict=True)
            )
        }

    def _call(
        self, words: np.ndarray[tuple[int], np.dtype[np.int64]], faults: Sequence[Fault]
    ) -> Ready:
        function, address = self._build.function(), words.ctypes.data
        assert function is not None

        def call(memory: object = words) -> None:  # `words` must live as long as its address
            function(address)

        def checked(memory: object = words) -> None:
            function(address)
            errors = [error for fault in faults if (error := fault.take()) is not None]
            if errors:
                raise errors[0]

        return checked if faults else call

    def close(self) -> None:
        """Stop the compilation."""
        self._build.close()

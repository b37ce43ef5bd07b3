"""Abandoned runs: they are repeated when one of their results is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, final
from weakref import ref

from magmath.engine.remote_array import RemoteArray

if TYPE_CHECKING:
    from magmath.core.type_aliases import Number
    from magmath.engine.programs.program_build import CompiledProgram

Start: TypeAlias = Callable[
    ["CompiledProgram", Sequence[RemoteArray], Sequence["Number"]], tuple[list[RemoteArray], Any]
]


@final
class AbandonedRun:
    """The state needed to repeat a run that Ctrl-C has abandoned between two instructions."""

    __slots__ = ("_compiled", "_operands", "_outputs", "_scalars")

    def __init__(
        self,
        compiled: CompiledProgram,
        operands: Sequence[RemoteArray],
        scalars: Sequence[Number],
        outputs: Sequence[RemoteArray],
    ) -> None:
        self._compiled, self._operands, self._scalars = compiled, operands, scalars
        self._outputs = [ref(data) for data in outputs]

    def rerun(self, start: Start) -> None:
        """Repeat the run, and give its results to the arrays of the abandoned run."""
        results, _ = start(self._compiled, self._operands, self._scalars)
        for output, data in zip(self._outputs, results, strict=True):
            former = output()
            if former is not None:
                former.swap(data)

"""The costs of a program, summed by operation and by line of user code.

Costs are predicted for each instruction, and measured if a run was profiled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from statistics import median
from typing import TYPE_CHECKING, Any, final

from magmath.cost import calibration_remark
from magmath.graph.operation import Line

if TYPE_CHECKING:
    from rich.table import Table

SLOW = 1.5
"""The factor of the others' time from which a worker counts as slow."""
MIN_EXCESS = 1e-4
"""Seconds below which a difference between workers is noise."""
_COLUMNS = ("predicted", "measured", "bytes moved", "messages", "memory")


@final
@dataclass(frozen=True)
class ExplainedInstruction:
    """The costs of an instruction of a program.

    text              the instruction as the program prints it
    operation         the name of the operation, or the kind of a redistribution
    line              the line of user code that it comes from
    seconds           predicted time on the busiest worker
    nbytes, messages  traffic between workers
    memory            bytes of its result on the busiest worker; 0 for an alias of another slot
    measured          seconds of the slowest worker in one step of a profiled run, or None
    workers           the number of workers that store its result
    layer             the path of the layer that it belongs to; "" outside of training steps
    flops, touched    arithmetic operations of the busiest worker, and the bytes that it reads and
                      writes in its own memory; 0 for an instruction that computes nothing
    rate              the name of the machine's rate for a call (`cost.OperationRate`)
    phase             "compute", "exchange" or "wait"
    is_recomputation  computes a value that was computed before and not stored, for the memory limit
    is_even           all workers compute equal shares, without waiting for each other
    by_worker         measured seconds of each worker in one step of a profiled run
    """

    text: str
    operation: str
    line: Line
    seconds: float
    nbytes: int
    messages: int
    memory: int
    measured: float | None = None
    workers: int = 1
    layer: str = ""
    flops: float = 0.0
    touched: float = 0.0
    rate: str = ""
    phase: str = "compute"
    is_recomputation: bool = False
    is_even: bool = False
    by_worker: tuple[float, ...] = ()


@final
@dataclass(frozen=True)
class CostTotals:
    """The total costs of several instructions: those of one operation, or of one line."""

    name: str
    count: int
    seconds: float
    measured: float | None
    nbytes: int
    messages: int
    memory: int

    @staticmethod
    def of(name: str, instructions: Sequence[ExplainedInstruction]) -> CostTotals:
        """Return the sums over some instructions; `memory` is that of the largest result."""
        measured = [x.measured for x in instructions if x.measured is not None]
        return CostTotals(
            name,
            len(instructions),
            sum(x.seconds for x in instructions),
            sum(measured) if measured else None,
            sum(x.nbytes for x in instructions),
            sum(x.messages for x in instructions),
            max((x.memory for x in instructions), default=0),
        )

    def cells(self) -> tuple[str, ...]:
        """Return the group as a row of a table."""
        measured = "–" if self.measured is None else duration(self.measured)
        numbers = (self.nbytes, self.messages, self.memory)
        return (self.name, duration(self.seconds), measured, *[f"{n:,}" for n in numbers])


def grouped(
    instructions: Iterable[ExplainedInstruction],
    key: Callable[[ExplainedInstruction], str],
    *,
    ordered: bool = False,
) -> list[CostTotals]:
    """Return the sums of the instructions by name, the most expensive first, or in the order of
    first use."""
    members_of: dict[str, list[ExplainedInstruction]] = {}
    for x in instructions:
        members_of.setdefault(key(x), []).append(x)
    groups = [CostTotals.of(name, members) for name, members in members_of.items()]
    return groups if ordered else sorted(groups, key=lambda g: -(g.measured or g.seconds))


def duration(seconds: float) -> str:
    """Return seconds in readable form, such as "12 µs"."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def line_name(instruction: ExplainedInstruction) -> str:
    """Return the line of user code in the form that editors read, `file:line`."""
    return (
        "(no line)" if instruction.line is None else f"{instruction.line[0]}:{instruction.line[1]}"
    )


class Summed:
    """A base class of objects that consist of instructions and print as tables."""

    instructions: tuple[ExplainedInstruction, ...]

    def by_operation(self) -> list[CostTotals]:
        """Return the costs of each operation, the largest first."""
        return grouped(self.instructions, lambda x: x.operation)

    def by_line(self) -> list[CostTotals]:
        """Return the costs of each line of user code, the largest first."""
        return grouped(self.instructions, line_name)

    def by_layer(self) -> list[CostTotals]:
        """Return the costs of each layer of a training step, in the order of the layers."""
        return grouped(self.instructions, lambda x: x.layer or "(no layer)", ordered=True)

    def computed_again(self) -> list[CostTotals]:
        """Return the costs of values that are computed a second time to fit the memory limit, by
        operation and layer, or line of user code, the largest first."""
        instructions = [x for x in self.instructions if x.is_recomputation]
        return grouped(
            instructions,
            lambda x: f"{x.operation}, {x.layer or line_name(x)}",
        )

    def recomputation(self) -> str:
        """Return the cost of second computations in words; "" if there are none."""
        recomputed = CostTotals.of("", [x for x in self.instructions if x.is_recomputation])
        if not recomputed.count:
            return ""
        first = max(self.total.seconds - recomputed.seconds, 1e-12)
        return (
            f"{recomputed.count} values are computed again instead of stored, to fit the memory "
            f"limit: {duration(recomputed.seconds)} predicted, {recomputed.seconds / first:.1%} "
            f"more"
        )

    def worker_seconds(self) -> list[float]:
        """Return the measured seconds that each worker takes for computations in equal shares;
        nothing if no run was profiled."""
        even = [x.by_worker for x in self.instructions if x.is_even and x.by_worker]
        return [sum(times) for times in zip(*even, strict=False)]

    def advice(self) -> str:
        """Return advice about workers that are slower than the others; "" if none is.

        A slow worker computes `SLOW` times as long as the median of the others on equal shares.
        """
        seconds = self.worker_seconds()
        lines = []
        for worker, own_seconds in enumerate(seconds):
            other_seconds = seconds[:worker] + seconds[worker + 1 :]
            typical_seconds = median(other_seconds) if other_seconds else own_seconds
            if own_seconds > SLOW * typical_seconds and own_seconds - typical_seconds > MIN_EXCESS:
                lines.append(
                    f"worker {worker} computes {own_seconds / typical_seconds:.1f} times as long "
                    f"as the others on equal shares ({duration(own_seconds)}, not "
                    f"{duration(typical_seconds)}), and they wait for it: give it a processor of "
                    f"its own, leave it out, or train with mm.parallel.Asynchronous, where it "
                    f"takes fewer batches"
                )
        return "\n".join(lines)

    @property
    def total(self) -> CostTotals:
        """The costs of all instructions."""
        return CostTotals.of("total", self.instructions)

    def tables(self) -> list[tuple[str, list[CostTotals]]]:
        """Return the groups by operation and by line, with their headings."""
        tables = [("by operation", self.by_operation()), ("by line", self.by_line())]
        if any(x.layer for x in self.instructions):
            tables.append(("by layer", self.by_layer()))
        if any(x.is_recomputation for x in self.instructions):
            tables.append(("computed again", self.computed_again()))
        return tables

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        parts = [_html(heading, groups) for heading, groups in self.tables()]
        return f"<div><pre>{escape(str(self))}</pre>{''.join(parts)}</div>"

    def __rich__(self) -> Any:
        from rich.console import Group

        return Group(*[_rich(heading, groups) for heading, groups in self.tables()])


@final
@dataclass(frozen=True, repr=False)
class Explanation(Summed):
    """The computation of an array or a training step. It prints as a listing with tables.

    instructions     the instructions of the program
    heading          a description of the explained object
    candidates       the candidates of products and factorizations, as tables
    temporaries      bytes of temporaries on a worker
    memory           predicted maximum bytes of inputs, outputs and temporaries on a worker
    measured_memory  the same, measured on the busiest worker in a profiled run
    machine          the machine whose constants predict: a processor that `magmath calibrate` has
                     measured, otherwise "default"
    """

    instructions: tuple[ExplainedInstruction, ...] = ()
    heading: str = ""
    candidates: str = ""
    temporaries: int = 0
    memory: int = 0
    measured_memory: int | None = None
    machine: str = ""

    def __str__(self) -> str:
        if not self.instructions:
            return self.heading
        total = self.total
        parts = [self.heading, self.candidates, *[_listed(x) for x in self.instructions]]
        parts += [text(heading, groups) for heading, groups in self.tables()]
        parts.append(
            f"{total.count} instructions, {total.nbytes:,} bytes moved between workers in "
            f"{total.messages:,} messages, {self.temporaries:,} bytes of temporaries on a worker"
        )
        parts.append(f"{_seconds(total)}, {self._memory()}{calibration_remark(self.machine)}")
        parts.insert(-1, self.recomputation())
        parts.insert(-1, self.advice())
        return "\n".join([part for part in parts if part])

    def _memory(self) -> str:
        predicted = f"at most {self.memory:,} bytes on a worker"
        if self.measured_memory is None:
            return predicted
        return f"{predicted} ({self.measured_memory:,} measured)"


@final
@dataclass(repr=False)
class Profile(Summed):
    """The runs in a `profile` block. `runs`: the explanation of each, with measured seconds."""

    runs: list[Explanation] = field(default_factory=list)

    @property
    def instructions(self) -> tuple[ExplainedInstruction, ...]:  # type: ignore[override]
        """The instructions of all runs."""
        return tuple([x for run in self.runs for x in run.instructions])

    def __str__(self) -> str:
        total = self.total
        parts = [text(heading, groups) for heading, groups in self.tables()]
        parts.append(
            f"runs: {len(self.runs)}, instructions: {total.count}, {total.nbytes:,} bytes moved "
            f"between workers in {total.messages:,} messages"
        )
        parts.append(self.advice())
        source = calibration_remark(self.runs[0].machine if self.runs else "")
        return "\n".join([*filter(None, parts), _seconds(total) + source])


def text(heading: str, groups: Sequence[CostTotals]) -> str:
    """Return groups as an aligned table."""
    rows = [(heading, *_COLUMNS), *[group.cells() for group in groups]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *rest in rows:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]))
    return "\n".join(lines)


def _listed(instruction: ExplainedInstruction) -> str:
    parts = [instruction.text]
    if instruction.messages or instruction.nbytes or " <- " in instruction.text:
        traffic = f"{instruction.nbytes:,} bytes, {instruction.messages} messages"
        parts.append(f"{instruction.operation}, {traffic}")
    if instruction.line is not None:
        parts.append(line_name(instruction))
    return "  # ".join(parts)


def _seconds(total: CostTotals) -> str:
    predicted = f"{duration(total.seconds)} predicted"
    return (
        predicted if total.measured is None else f"{predicted}, {duration(total.measured)} measured"
    )


def _html(heading: str, groups: Sequence[CostTotals]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in (heading, *_COLUMNS))
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in group.cells()) + "</tr>"
        for group in groups
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _rich(heading: str, groups: Sequence[CostTotals]) -> Table:
    from rich.table import Table

    table = Table(heading, *_COLUMNS)
    for column in table.columns[1:]:
        column.justify = "right"
    for group in groups:
        table.add_row(*group.cells())
    return table

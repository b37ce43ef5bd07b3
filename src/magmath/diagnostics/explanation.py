"""What a program costs: predicted for each instruction, measured where a run was profiled, and
summed by operation and by the user's line."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import TYPE_CHECKING, Any

from magmath.graph.node import Line

if TYPE_CHECKING:
    from rich.table import Table

_COLUMNS = ("predicted", "measured", "bytes moved", "messages", "memory")


@dataclass(frozen=True)
class Step:
    """An instruction of a program.

    text        how the program prints it
    operation   its name; of a redistribution its kind
    line        the user's line that it comes from
    seconds     predicted, on the busiest worker
    nbytes, messages   between workers
    memory      bytes of its result on the busiest worker; 0 where it lies in something else
    measured    seconds that the slowest worker took in one step of a profiled run, or None
    """

    text: str
    operation: str
    line: Line
    seconds: float
    nbytes: int
    messages: int
    memory: int
    measured: float | None = None


@dataclass(frozen=True)
class Group:
    """Steps together: those of one operation, or of one line."""

    name: str
    count: int
    seconds: float
    measured: float | None
    nbytes: int
    messages: int
    memory: int

    @staticmethod
    def of(name: str, steps: Sequence[Step]) -> Group:
        """The sums over some steps; `memory` is the largest result."""
        measured = [step.measured for step in steps if step.measured is not None]
        return Group(
            name,
            len(steps),
            sum(step.seconds for step in steps),
            sum(measured) if measured else None,
            sum(step.nbytes for step in steps),
            sum(step.messages for step in steps),
            max((step.memory for step in steps), default=0),
        )

    def cells(self) -> tuple[str, ...]:
        """As a row of a table."""
        measured = "–" if self.measured is None else duration(self.measured)
        numbers = (self.nbytes, self.messages, self.memory)
        return (self.name, duration(self.seconds), measured, *[f"{n:,}" for n in numbers])


def grouped(steps: Iterable[Step], key: Callable[[Step], str]) -> list[Group]:
    """Steps summed by a name, the costliest first."""
    found: dict[str, list[Step]] = {}
    for step in steps:
        found.setdefault(key(step), []).append(step)
    groups = [Group.of(name, members) for name, members in found.items()]
    return sorted(groups, key=lambda group: -(group.measured or group.seconds))


def duration(seconds: float) -> str:
    """Seconds as people read them: "12 µs"."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.3g} µs"
    return f"{seconds * 1e3:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def line_name(step: Step) -> str:
    """The user's line as editors read it."""
    return "(no line)" if step.line is None else f"{step.line[0]}:{step.line[1]}"


class Summed:
    """Something that consists of steps; prints as tables."""

    steps: tuple[Step, ...]

    def by_operation(self) -> list[Group]:
        """The cost of each operation, the largest first."""
        return grouped(self.steps, lambda step: step.operation)

    def by_line(self) -> list[Group]:
        """The cost of each line of yours, the largest first."""
        return grouped(self.steps, line_name)

    @property
    def total(self) -> Group:
        """The cost of all steps."""
        return Group.of("total", self.steps)

    def tables(self) -> list[tuple[str, list[Group]]]:
        """Operations and lines, under their headings."""
        return [("by operation", self.by_operation()), ("by line", self.by_line())]

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        parts = [_html(heading, groups) for heading, groups in self.tables()]
        return f"<div><pre>{escape(str(self))}</pre>{''.join(parts)}</div>"

    def __rich__(self) -> Any:
        from rich.console import Group as Together

        return Together(*[_rich(heading, groups) for heading, groups in self.tables()])


@dataclass(frozen=True, repr=False)
class Explanation(Summed):
    """How an array or a step is computed. `str` of it is a listing with tables.

    steps        the instructions of the program
    heading      what it is of
    choices      the ways that products could have been computed in, as a table
    temporaries  bytes of a worker's memory for what is neither input nor output
    memory       bytes on a worker at most: inputs, outputs and temporaries; predicted
    measured_memory   the same, of the busiest worker in a profiled run
    """

    steps: tuple[Step, ...] = ()
    heading: str = ""
    choices: str = ""
    temporaries: int = 0
    memory: int = 0
    measured_memory: int | None = None

    def __str__(self) -> str:
        if not self.steps:
            return self.heading
        total = self.total
        parts = [self.heading, self.choices, *[_listed(step) for step in self.steps]]
        parts += [text(heading, groups) for heading, groups in self.tables()]
        parts.append(
            f"{total.count} instructions, {total.nbytes:,} bytes moved between workers in "
            f"{total.messages:,} messages, {self.temporaries:,} bytes of temporaries on a worker"
        )
        parts.append(f"{_seconds(total)}, {self._memory()}")
        return "\n".join([part for part in parts if part])

    def _memory(self) -> str:
        predicted = f"at most {self.memory:,} bytes on a worker"
        if self.measured_memory is None:
            return predicted
        return f"{predicted} ({self.measured_memory:,} measured)"


@dataclass(repr=False)
class Profile(Summed):
    """What ran while it was on. `runs`: the explanation of each run, with measured seconds."""

    runs: list[Explanation] = field(default_factory=list)

    @property
    def steps(self) -> tuple[Step, ...]:  # type: ignore[override]
        """The instructions of all runs."""
        return tuple([step for run in self.runs for step in run.steps])

    def __str__(self) -> str:
        total = self.total
        parts = [text(heading, groups) for heading, groups in self.tables()]
        parts.append(
            f"runs: {len(self.runs)}, instructions: {total.count}, {total.nbytes:,} bytes moved "
            f"between workers in {total.messages:,} messages"
        )
        return "\n".join([*parts, _seconds(total)])


def text(heading: str, groups: Sequence[Group]) -> str:
    """Groups as an aligned table."""
    rows = [(heading, *_COLUMNS), *[group.cells() for group in groups]]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *rest in rows:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]))
    return "\n".join(lines)


def _listed(step: Step) -> str:
    parts = [step.text]
    if step.messages or step.nbytes or " <- " in step.text:
        parts.append(f"{step.operation}, {step.nbytes:,} bytes, {step.messages} messages")
    if step.line is not None:
        parts.append(line_name(step))
    return "  # ".join(parts)


def _seconds(total: Group) -> str:
    predicted = f"{duration(total.seconds)} predicted"
    return (
        predicted if total.measured is None else f"{predicted}, {duration(total.measured)} measured"
    )


def _html(heading: str, groups: Sequence[Group]) -> str:
    head = "".join(f"<th>{escape(name)}</th>" for name in (heading, *_COLUMNS))
    rows = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in group.cells()) + "</tr>"
        for group in groups
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def _rich(heading: str, groups: Sequence[Group]) -> Table:
    from rich.table import Table

    table = Table(heading, *_COLUMNS)
    for column in table.columns[1:]:
        column.justify = "right"
    for group in groups:
        table.add_row(*group.cells())
    return table

"""The section of an experiment in the report: text, tables, plots, and findings.

A finding is a statement of the paper next to our result. A statement that does not hold here, or
that cannot be checked here, needs a reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from magmath.errors import OptionError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Cell = str | int | float | None
VERDICTS: dict[bool | None, tuple[str, str]] = {
    True: ("agrees", "agree"),
    False: ("does not agree", "do not agree"),
    None: ("cannot be decided here", "cannot be decided here"),
}
"""A verdict in words, for one statement and for several."""


@final
@dataclass(frozen=True)
class Table:
    """A table: `rows` have a cell for each column; None is shown as a dash."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise OptionError(
                    f"Table {self.title!r}: each row needs {len(self.columns)} cells, was given "
                    f"{row!r}"
                )

    @staticmethod
    def of(
        title: str, columns: Sequence[str], rows: Iterable[Iterable[Cell]], note: str = ""
    ) -> Table:
        """Return a table of any sequences."""
        return Table(title, tuple(columns), tuple([tuple(row) for row in rows]), note)


@final
@dataclass(frozen=True)
class Plot:
    """A plot: a matplotlib figure, best made by `new_figure`, with the caption below it."""

    title: str
    figure: Figure
    caption: str = ""


@final
@dataclass(frozen=True)
class Finding:
    """A statement of the paper, our result, and whether they agree.

    agrees   True, False, or None if this run cannot decide
    reason   why they do not agree, or why the run cannot decide; required in these cases
    """

    statement: str
    paper: str
    ours: str
    agrees: bool | None
    reason: str = ""

    def __post_init__(self) -> None:
        if self.agrees is not True and not self.reason:
            raise OptionError(f"Finding {self.statement!r}: one that does not agree needs a reason")

    @staticmethod
    def checked(statement: str, paper: str, ours: str, agrees: bool, otherwise: str) -> Finding:
        """Return a finding that has the reason `otherwise` if it does not agree."""
        return Finding(statement, paper, ours, agrees, "" if agrees else otherwise)

    @property
    def verdict(self) -> str:
        """The verdict in words."""
        return VERDICTS[self.agrees][0]


Part = str | Table | Plot | Finding
"""A part of a section; a string is a paragraph of plain text."""


@final
@dataclass(frozen=True)
class Section:
    """The parts in the order of the report; `data` has further numbers for `--json`."""

    parts: tuple[Part, ...]
    data: dict[str, Any] = field(default_factory=dict)

    def of_kind(self, kind: type[Any]) -> list[Any]:
        """Return the parts of a class, in order."""
        return [part for part in self.parts if isinstance(part, kind)]

    def as_data(self) -> dict[str, Any]:
        """Return paragraphs, tables, findings and numbers as plain data for JSON."""
        return {
            "text": self.of_kind(str),
            "tables": [
                {"title": t.title, "columns": t.columns, "rows": t.rows, "note": t.note}
                for t in self.of_kind(Table)
            ],
            "plots": [{"title": p.title, "caption": p.caption} for p in self.of_kind(Plot)],
            "findings": [
                {
                    "statement": f.statement,
                    "paper": f.paper,
                    "ours": f.ours,
                    "agrees": f.agrees,
                    "reason": f.reason,
                }
                for f in self.of_kind(Finding)
            ],
            "data": self.data,
        }

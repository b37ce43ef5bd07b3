"""An experiment: a figure or table of a paper that `magmath reproduce` repeats on this machine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import final

from rich.console import Console

from magmath.reproduce.section import Section


@final
@dataclass(frozen=True)
class Options:
    """The options of a run of an experiment.

    quick     one or two minutes instead of the paper's full sizes
    data      the folder of the paper's data set, or None
    peers     names of other frameworks to measure in addition; ("all",) or ("none",) are possible
    console   receives the progress
    """

    quick: bool = False
    data: Path | None = None
    peers: tuple[str, ...] = ("all",)
    console: Console = field(default_factory=lambda: Console(quiet=True))


@final
@dataclass(frozen=True)
class Experiment:
    """One experiment: the name on the command line, and the function that runs it.

    title       one line
    reference   the paper and the figure, table or section
    run         runs the experiment and returns what the report shows; it starts and stops the
                pools that it needs
    """

    name: str
    title: str
    reference: str
    run: Callable[[Options], Section]

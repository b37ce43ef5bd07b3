"""Timelines as files: for Perfetto (and chrome://tracing), and as SVG."""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from html import escape
from pathlib import Path
from typing import Any, Final

from magmath.errors import OptionError
from magmath.parallel.simulator.events import COMMUNICATE, COMPUTE, Span, Timeline

STREAMS: Final = (COMPUTE, COMMUNICATE)
COLOURS: Final = {
    "forward": "#4e79a7",
    "backward": "#59a14f",
    "gradient": "#edc948",
    "update": "#b07aa1",
    "replicate": "#f28e2b",
    "kernel": "#76b7b2",
    "copy": "#e15759",
    "message": "#ff9da7",
    "compute": "#4e79a7",
    "exchange": "#edc948",
    "wait": "#bab0ac",
}
MAX_WORKERS: Final = 16
"""Workers that an SVG shows."""
LEFT: Final = 150
WIDTH: Final = 900
ROW_HEIGHT: Final = 16
"""The left end, the width and the height of a row, in pixels."""


def save_timeline(timeline: Timeline, path: str | os.PathLike[str]) -> None:
    """Write a timeline of all workers.

    `path` ends with .svg for a picture, and with .json for the trace event format, which
    Perfetto (ui.perfetto.dev) shows. Raises OptionError for other endings, and for a folder that
    does not exist.
    """
    writers = {".svg": timeline_svg, ".json": perfetto}
    suffix = check_file("save_timeline", path, writers)
    Path(path).write_text(writers[suffix](timeline), encoding="utf-8")


def check_file(operation: str, path: str | os.PathLike[str], suffixes: Collection[str]) -> str:
    """Return the suffix of a file that is to be written. Raises OptionError, which names the
    operation, for other suffixes, and if its folder does not exist."""
    file = Path(path)
    if file.suffix not in suffixes:
        raise OptionError(
            f"{operation}: the name of the file must end with {' or '.join(suffixes)}, was given "
            f"{os.fspath(path)!r}"
        )
    if not file.parent.is_dir():
        raise OptionError(f"{operation}: the folder {file.parent} does not exist; create it first")
    return file.suffix


def perfetto(timeline: Timeline) -> str:
    """Return the timeline as JSON in the trace event format: a process for each worker, a thread
    for each stream, times in microseconds."""
    events: list[dict[str, Any]] = []
    for worker in _workers(timeline):
        events.append(_label("process_name", worker, 0, f"worker {worker}"))
        events += [_label("thread_name", worker, i, name) for i, name in enumerate(STREAMS)]
    for task, span in zip(timeline.tasks, timeline.spans, strict=True):
        for worker in task.workers:
            events += [
                {
                    "name": task.name,
                    "cat": _phase(task.name),
                    "ph": "X",
                    "pid": worker,
                    "tid": STREAMS.index(stream),
                    "ts": span.start * 1e6,
                    "dur": (span.end - span.start) * 1e6,
                }
                for stream in task.streams
            ]
    return json.dumps({"traceEvents": events, "displayTimeUnit": "ms"})


def timeline_svg(timeline: Timeline) -> str:
    """Return the timeline of the first workers as SVG: two rows each, coloured by phase."""
    workers = _workers(timeline)[:MAX_WORKERS]
    scale = WIDTH / (timeline.seconds or 1.0)
    top_of = {(w, s): 20 + (2 * i + j) * ROW_HEIGHT + i * 6
              for i, w in enumerate(workers) for j, s in enumerate(STREAMS)}  # fmt: skip
    lines = [
        f'<text x="4" y="{y + 12}">worker {worker}: {stream}</text>'
        for (worker, stream), y in top_of.items()
    ]
    lines += [
        _bar(task.name, span, top_of[worker, stream], scale)
        for task, span in zip(timeline.tasks, timeline.spans, strict=True)
        for worker in task.workers
        for stream in task.streams
        if (worker, stream) in top_of and span.end > span.start
    ]
    bottom = max(top_of.values(), default=0) + 2 * ROW_HEIGHT
    lines += _legend({_phase(task.name) for task in timeline.tasks}, bottom)
    lines.append(f'<text x="{LEFT}" y="14">{timeline.seconds * 1e3:.2f} ms</text>')
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 10}" '
        f'height="{bottom + 24}" font-family="sans-serif" font-size="11">'
    )
    return "\n".join([head, *lines, "</svg>", ""])


def _bar(name: str, span: Span, top: int, scale: float) -> str:
    """Return the rectangle of a task in a row."""
    return (
        f'<rect x="{LEFT + span.start * scale:.2f}" y="{top}" '
        f'width="{(span.end - span.start) * scale:.2f}" height="{ROW_HEIGHT - 2}" '
        f'fill="{COLOURS.get(_phase(name), "#888888")}">'
        f"<title>{escape(name)}: {(span.end - span.start) * 1e3:.3f} ms"
        f"</title></rect>"
    )


def _legend(phases: Collection[str], top: int) -> list[str]:
    """Return the colours of the phases that occur, with their names."""
    lines = []
    shown = {name: colour for name, colour in COLOURS.items() if name in phases}
    for i, (name, colour) in enumerate(shown.items()):
        x = LEFT + 110 * i
        lines.append(f'<rect x="{x}" y="{top}" width="12" height="12" fill="{colour}"/>')
        lines.append(f'<text x="{x + 16}" y="{top + 11}">{name}</text>')
    return lines


def _workers(timeline: Timeline) -> list[int]:
    return sorted({worker for task in timeline.tasks for worker in task.workers})


def _label(kind: str, worker: int, stream: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": worker, "tid": stream, "args": {"name": name}}


def _phase(name: str) -> str:
    """Return the phase of a task, which ends its name in parentheses."""
    return name.rpartition("(")[2].rstrip(")")

"""Timelines as files: for Perfetto (and chrome://tracing), and as SVG."""

from __future__ import annotations

import json
import os
from html import escape
from pathlib import Path
from typing import Any, Final

from magmath.errors import OptionError
from magmath.parallel.simulator.events import COMMUNICATE, COMPUTE, Timeline

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


def save_timeline(timeline: Timeline, path: str | os.PathLike[str]) -> None:
    """Write a timeline of all workers.

    `path` ends with .svg for a picture, and with .json for the trace event format, which
    Perfetto (ui.perfetto.dev) shows. Raises OptionError for other endings, and for a folder that
    does not exist.
    """
    file = Path(path)
    writers = {".svg": timeline_svg, ".json": perfetto}
    if file.suffix not in writers:
        raise OptionError(
            f"save_timeline: the name of the file must end with .svg or .json, was given "
            f"{os.fspath(path)!r}"
        )
    write_file("save_timeline", path, writers[file.suffix](timeline))


def write_file(operation: str, path: str | os.PathLike[str], text: str) -> None:
    """Write a text file. Raises OptionError, which names the operation, if its folder does not
    exist."""
    file = Path(path)
    if not file.parent.is_dir():
        raise OptionError(f"{operation}: the folder {file.parent} does not exist; create it first")
    file.write_text(text, encoding="utf-8")


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
    """Return the timeline of the first workers as SVG: two lanes each, coloured by phase."""
    workers = _workers(timeline)[:MAX_WORKERS]
    left, width, lane = 150, 900, 16
    scale = width / (timeline.seconds or 1.0)
    top = {(w, s): 20 + (2 * i + j) * lane + i * 6
           for i, w in enumerate(workers) for j, s in enumerate(STREAMS)}  # fmt: skip
    lines = [
        f'<text x="4" y="{y + 12}">worker {worker}: {stream}</text>'
        for (worker, stream), y in top.items()
    ]
    for task, span in zip(timeline.tasks, timeline.spans, strict=True):
        for worker in task.workers:
            for stream in task.streams:
                if (worker, stream) in top and span.end > span.start:
                    lines.append(
                        f'<rect x="{left + span.start * scale:.2f}" y="{top[worker, stream]}" '
                        f'width="{(span.end - span.start) * scale:.2f}" height="{lane - 2}" '
                        f'fill="{COLOURS.get(_phase(task.name), "#888888")}">'
                        f"<title>{escape(task.name)}: {(span.end - span.start) * 1e3:.3f} ms"
                        f"</title></rect>"
                    )
    bottom = max(top.values(), default=0) + 2 * lane
    used = {_phase(task.name) for task in timeline.tasks}
    shown = {name: colour for name, colour in COLOURS.items() if name in used}
    for i, (name, colour) in enumerate(shown.items()):
        x = left + 110 * i
        lines.append(f'<rect x="{x}" y="{bottom}" width="12" height="12" fill="{colour}"/>')
        lines.append(f'<text x="{x + 16}" y="{bottom + 11}">{name}</text>')
    lines.append(f'<text x="{left}" y="14">{timeline.seconds * 1e3:.2f} ms</text>')
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 10}" '
            f'height="{bottom + 24}" font-family="sans-serif" font-size="11">',
            *lines,
            "</svg>",
            "",
        ]
    )


def _workers(timeline: Timeline) -> list[int]:
    return sorted({worker for task in timeline.tasks for worker in task.workers})


def _label(kind: str, worker: int, stream: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": worker, "tid": stream, "args": {"name": name}}


def _phase(name: str) -> str:
    """Return the phase of a task, which ends its name in parentheses."""
    return name.rpartition("(")[2].rstrip(")")

"""The simulator: training steps on a described machine, event by event."""

from __future__ import annotations

from magmath.parallel.simulator.events import Host, SimulatedTask, Timeline, simulate
from magmath.parallel.simulator.measured import measured_timeline
from magmath.parallel.simulator.timeline import perfetto, save_timeline, timeline_svg

__all__ = [
    "Host",
    "SimulatedTask",
    "Timeline",
    "measured_timeline",
    "perfetto",
    "save_timeline",
    "simulate",
    "timeline_svg",
]

"""The simulator: training steps on a described machine, event by event."""

from __future__ import annotations

from magmath.parallel.simulator.events import Host, Task, Timeline, simulate
from magmath.parallel.simulator.timeline import perfetto, timeline_svg

__all__ = ["Host", "Task", "Timeline", "perfetto", "simulate", "timeline_svg"]

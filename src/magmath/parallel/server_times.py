"""The three times of a parameter server, from the costs of a training step."""

from __future__ import annotations

from collections.abc import Iterable

from magmath.diagnostics.explanation import ExplainedInstruction, Summed


def server_times(costs: Summed) -> dict[str, float]:
    """Return the seconds in which the server gathers gradients, averages them, and broadcasts
    parameters.

    costs   the explanation of a training step with the exchange "parameter-server" on several
            workers, for predicted seconds of one step; or a profile, for measured seconds

    Source: SHM-Learn-Dist, figures 6.4 (average), 6.5 (gather) and 6.6 (broadcast).
    """
    return {
        "gather": _seconds(s for s in costs.instructions if s.operation == "gather"),
        "average": _seconds(
            s for s in costs.instructions if s.operation == "sum" and s.workers == 1
        ),
        "broadcast": _seconds(s for s in costs.instructions if s.operation == "broadcast"),
    }


def _seconds(steps: Iterable[ExplainedInstruction]) -> float:
    return sum([s.seconds if s.measured is None else s.measured for s in steps])

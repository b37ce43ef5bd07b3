"""The composition of bound calls."""

from __future__ import annotations

from magmath.core.type_aliases import BoundCall


def sequence(*calls: BoundCall) -> BoundCall:
    """Return one call that executes these calls in order."""
    if len(calls) == 1:
        return calls[0]
    if len(calls) == 2:
        first, second = calls

        def both() -> None:
            first()
            second()

        return both

    def call_all() -> None:
        for call in calls:
            call()

    return call_all

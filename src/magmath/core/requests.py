"""Requests between workers: how many are under way at a time, and the bytes that they need."""

from __future__ import annotations

from collections.abc import Sequence

from magmath.core.panels import rounded

AT_ONCE = 16 << 20
"""Bytes of requests and answers that come to a worker at a time, at most."""
LITTLE = 64 << 10
"""Bytes that are not worth being sent in parts."""


def at_a_time(share: int, nbytes: int, workers: int) -> int:
    """How many of its `share` requests, of `nbytes` each with its answer, a worker sends at a time.

    One worker may own what all of them want: it then gets `workers` times as many, which are not
    more than its own share, unless that is little, nor more than `AT_ONCE` bytes.
    """
    fair = max(-(-share // workers), LITTLE // nbytes)
    return max(1, min(fair, share, AT_ONCE // (workers * nbytes)))


def request_bytes(size: int, received: Sequence[int], returned: int, workers: int) -> int:
    """The bytes in which a worker keeps what comes to it while each sends `size` requests: what it
    receives, in arrays of so many bytes for each request, and what is returned for its own."""
    return sum(rounded(workers * size * n) for n in received) + rounded(size * returned)

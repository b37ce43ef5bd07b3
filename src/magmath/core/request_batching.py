"""Requests between workers: how many are under way at a time, and the bytes that they need."""

from __future__ import annotations

from collections.abc import Sequence

from magmath.core.block_cyclic import round_to_cache_lines

MAX_ROUND_BYTES = 16 << 20
"""Bytes of requests and answers that come to a worker at a time, at most."""
MIN_ROUND_BYTES = 64 << 10
"""Bytes that are not worth being sent in parts."""


def requests_per_round(share: int, nbytes: int, workers: int) -> int:
    """How many of its `share` requests, of `nbytes` each with its answer, a worker sends at a time.

    One worker may own what all of them want: it then gets `workers` times as many, which are not
    more than its own share, unless that is little, nor more than `MAX_ROUND_BYTES` bytes.
    """
    fair = max(-(-share // workers), MIN_ROUND_BYTES // nbytes)
    return max(1, min(fair, share, MAX_ROUND_BYTES // (workers * nbytes)))


def receive_buffer_bytes(size: int, received: Sequence[int], returned: int, workers: int) -> int:
    """The bytes in which a worker keeps what comes to it while each sends `size` requests: what it
    receives, in arrays of so many bytes for each request, and what is returned for its own."""
    return sum(round_to_cache_lines(workers * size * n) for n in received) + round_to_cache_lines(
        size * returned
    )

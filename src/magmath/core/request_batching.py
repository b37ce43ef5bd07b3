"""Batch sizes of requests between workers, and the buffers that a round of requests needs."""

from __future__ import annotations

from collections.abc import Sequence

from magmath.core.block_cyclic import round_to_cache_lines

MAX_ROUND_BYTES = 16 << 20
"""Maximum bytes of requests and replies that a worker receives in one round."""
MIN_ROUND_BYTES = 64 << 10
"""Minimum bytes of a round: less is not split."""


def requests_per_round(share: int, nbytes: int, workers: int) -> int:
    """Return the number of its `share` requests that a worker sends per round; a request with its
    reply has `nbytes` bytes.

    One worker may own all requested elements and then receives `workers` times as many requests.
    The result keeps that below the worker's own share, or `MIN_ROUND_BYTES` if that is larger, and
    below `MAX_ROUND_BYTES`.
    """
    even_share = max(-(-share // workers), MIN_ROUND_BYTES // nbytes)
    return max(1, min(even_share, share, MAX_ROUND_BYTES // (workers * nbytes)))


def receive_buffer_bytes(size: int, received: Sequence[int], returned: int, workers: int) -> int:
    """Return the size, in bytes, of the receive buffers for one round of `size` requests per
    worker.

    `received`: bytes per request of each array that a worker receives; `returned`: bytes of the
    reply to one of its own requests."""
    return sum(round_to_cache_lines(workers * size * n) for n in received) + round_to_cache_lines(
        size * returned
    )

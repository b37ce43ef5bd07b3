"""The speed of the network between the hosts of a pool, which plans depend on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple, final

import torch

from magmath.comm.communicator import Communicator

_LATENCY_ROUNDS = 5
_BANDWIDTH_ROUNDS = 1
_BYTES = 4 << 20


@final
class NetworkSpeed(NamedTuple):
    """The seconds of a message between hosts, and the bytes per second out of one host."""

    latency: float
    bandwidth: float


def measure_network(comm: Communicator) -> NetworkSpeed:
    """Return the speed of the network between the hosts of the ranks.

    The first rank of each host sends to that of the next host, all concurrently. The results are
    rounded to powers of √2, so that plans do not depend on small variations; they are 0 on ranks
    that do not take part, and on one host. Every rank must call it.
    """
    count = max(comm.hosts) + 1
    firsts = [comm.hosts.index(number) for number in range(count)]
    if count == 1 or comm.rank not in firsts:
        return NetworkSpeed(0.0, 0.0)
    own_host = comm.hosts[comm.rank]
    following, previous = firsts[(own_host + 1) % count], firsts[own_host - 1]

    def send(nbytes: int) -> Callable[[], None]:
        sent = torch.zeros(nbytes, dtype=torch.uint8)
        received = torch.empty_like(sent)
        return lambda: comm.exchange([(following, sent)], [(previous, received)])

    latency = _fastest(send(1), _LATENCY_ROUNDS)
    seconds = _fastest(send(_BYTES), _BANDWIDTH_ROUNDS)
    return NetworkSpeed(_rounded(latency), _rounded(_BYTES / max(seconds - latency, 1e-9)))


def _fastest(call: Callable[[], None], rounds: int) -> float:
    call()  # connects
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def _rounded(value: float) -> float:
    return float(2.0 ** (round(2 * math.log2(value)) / 2))

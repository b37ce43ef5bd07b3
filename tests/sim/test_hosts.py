"""Redistributions between workers on several simulated hosts: collectives of two levels."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import magmath as mm
from engines import current
from magmath.comm import Communicator
from magmath.cost import Link, Network, redistribution_seconds, redistribution_traffic
from magmath.engine import session
from magmath.layout import Layout, Mesh, plan_redistribution
from magmath.runtime import Pool
from magmath.runtime.transport.threads import ThreadTransport
from magmath.runtime.transport_interface import WorkerOptions

SHAPES = ((12, 40), (7, 3), (41,), (5000,), (2, 3, 61), ())
DTYPES = ("float64", "float32", "float16", "int64", "bool", "complex128")


def layouts_of(shape: tuple[int, ...], mesh: Any) -> list[Layout]:
    splits = [Layout.even(shape, mesh, axis) for axis in range(len(shape))]
    return [Layout.replicated_on(shape, mesh), *splits]


@pytest.mark.parametrize("workers", [3, 4, 5])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_arrays_arrive_in_every_layout(shape: tuple[int, ...], workers: int) -> None:
    draw = np.random.default_rng(len(shape))
    with current("hosts", workers) as pool:
        layouts = layouts_of(shape, pool.mesh)
        for number, name in enumerate(DTYPES):
            value = draw.integers(0, 2, shape).astype(name)
            for have in layouts[number % 2 :]:
                for want in layouts:
                    array = mm.asarray(value, layout=have).redistribute(want)
                    np.testing.assert_array_equal(np.asarray(array), value)


@pytest.mark.parametrize("workers", [3, 4])
@pytest.mark.parametrize("axis", [0, 1, None])
@pytest.mark.parametrize("reduction", ["sum", "prod", "max", "min"])
def test_sums_over_hosts_equal_numpy(reduction: str, axis: int | None, workers: int) -> None:
    value = np.random.default_rng(3).integers(1, 3, (16, 130)).astype(np.float64)
    with current("hosts", workers) as pool:
        for layout in layouts_of(value.shape, pool.mesh):
            result = getattr(mm, reduction)(mm.asarray(value, layout=layout), axis=axis)
            np.testing.assert_array_equal(
                np.asarray(result), getattr(np, reduction)(value, axis=axis)
            )


@pytest.mark.parametrize("dtype", DTYPES)
def test_elements_are_selected_over_hosts(dtype: str) -> None:
    """The workers that do not store an element add zeros, also to truth values."""
    draw = np.random.default_rng(5)
    value, rows = draw.integers(0, 2, (400, 60)).astype(dtype), draw.integers(0, 400, (1, 60))
    with current("hosts", 4) as pool:
        for layout in layouts_of(value.shape, pool.mesh):
            x = mm.asarray(value, layout=layout)
            one = mm.compile(lambda x, i: x[i])
            np.testing.assert_array_equal(one(x, 5).numpy(), value[5])
            np.testing.assert_array_equal(mm.take(x, [3, 399, 17], axis=0), value[[3, 399, 17]])
            along = mm.take_along_axis(x, mm.asarray(rows), axis=0)
            np.testing.assert_array_equal(along, np.take_along_axis(value, rows, 0))


@pytest.mark.parametrize("kind", ["inline", "shared", "messages", "hosts"])
@pytest.mark.parametrize("dtype", [mm.float16, mm.bfloat16])
def test_sums_of_half_types_are_rounded_once(kind: str, dtype: Any) -> None:
    """Parts of workers neither overflow nor lose digits that cancel later."""
    large, close = np.ones(400_000, "float32"), np.ones((2000, 400), "float32")
    large[200_000:], close[1001:] = -1, -1
    with current(kind, 1 if kind == "inline" else 4):
        layout = None if kind == "inline" else mm.Layout.split(0)
        x, y = [mm.astype(mm.asarray(v, layout=layout), dtype) for v in (large, close)]
        mm.evaluate(x, y)
        total, columns = mm.sum(x), mm.compile(lambda y: mm.sum(y, axis=0))(y)
        assert (float(total), total.dtype) == (0.0, dtype)
        np.testing.assert_array_equal(mm.astype(columns, mm.float32), np.full(400, 2))
        assert mm.grad(mm.sum(x * x), x).dtype == dtype


@pytest.mark.parametrize("workers", [3, 4])
def test_products_over_hosts_equal_numpy(workers: int) -> None:
    draw = np.random.default_rng(4)
    a, b = draw.normal(size=(33, 64)), draw.normal(size=(64, 70))
    with current("hosts", workers) as pool:
        for first in layouts_of(a.shape, pool.mesh):
            for second in layouts_of(b.shape, pool.mesh):
                result = mm.asarray(a, layout=first) @ mm.asarray(b, layout=second)
                np.testing.assert_allclose(np.asarray(result), a @ b, rtol=1e-12, atol=1e-12)


class _Between:
    """Counts the bytes of messages between hosts, by communicator of all ranks."""

    def __init__(self, transport: ThreadTransport, hosts: Sequence[int]) -> None:
        self.bytes: Counter[str] = Counter()
        for communicator in transport._communicators:
            self._count(communicator, hosts)

    def _count(self, communicator: Communicator, hosts: Sequence[int]) -> None:
        messages = getattr(communicator, "_messages", communicator)
        exchange, rank = messages._exchange, messages.rank

        def counted(sends: Any, receives: Any) -> None:
            self.bytes["between"] += sum(
                tensor.nbytes for peer, tensor in sends if hosts[peer] != hosts[rank]
            )
            exchange(sends, receives)

        messages._exchange = counted


def test_gradients_pass_the_network_once_for_each_host() -> None:
    """An allreduce of n bytes on 2 hosts sends n out of each, with any number of workers on them."""
    hosts, count = (0, 0, 0, 1, 1, 1), 6 * 1000
    sent = {}
    for kind in ("two levels", "flat"):
        options = WorkerOptions("cpu", 1)
        transport = ThreadTransport(
            6, options, shares_memory=False, hosts=hosts if kind == "two levels" else None
        )
        between = _Between(transport, hosts)
        pool = Pool(transport)
        try:
            session.set_current_pool(pool)
            a = mm.asarray(np.ones((count, 6)), layout=Layout.even((count, 6), pool.mesh, 1))
            ones = mm.asarray(np.ones((6, 1)), layout=Layout.even((6, 1), pool.mesh, 0))
            mm.evaluate(a, ones)
            between.bytes.clear()
            result = (a @ ones).redistribute(Layout.replicated_on((count, 1), pool.mesh))
            np.testing.assert_array_equal(np.asarray(result), np.full((count, 1), 6.0))
            sent[kind] = between.bytes["between"]
        finally:
            pool.close()
            session.current_engine = None
    assert sent["two levels"] == 2 * 8 * count
    assert sent["flat"] == 3 * sent["two levels"]


def test_price_counts_the_bytes_between_hosts_once() -> None:
    """An allreduce of n bytes takes n over the bandwidth of a port, with any workers a host."""
    latency, bandwidth, count = 1e-4, 1e8, 60_000
    for workers in (2, 4, 6):
        hosts = tuple(2 * rank // workers for rank in range(workers))
        network = Network(hosts, latency, bandwidth)
        link = Link(0.0, 1e30, shared_memory=False, barrier=0.0, network=network)
        mesh = Mesh.line(workers)
        whole = Layout.replicated_on((count,), mesh)
        pending = Layout((count,), mesh, (None,), ("sum",))
        seconds = redistribution_seconds(plan_redistribution(pending, whole), 8, link)
        assert seconds == pytest.approx(2 * latency + 8 * count / bandwidth)


def test_planner_knows_the_network() -> None:
    with current("hosts", 4) as pool:
        environment = session.engine().environment
        assert environment.link.network is not None
        assert environment.link.network.hosts == pool.topology.hosts
        assert [level.fan_out for level in environment.link.levels] == [2, 0]
        on_one_host = replace(environment, mesh=Mesh.line(2), link=environment.machine.messages)
        assert environment.bandwidth == on_one_host.bandwidth  # the memory of a host, of two


def test_pool_knows_its_hosts() -> None:
    with current("hosts", 5) as pool:
        assert pool.topology.hosts == (0, 0, 0, 1, 1)
        assert "5 workers on 2 hosts" in repr(pool)


@pytest.mark.parametrize("counts", [(1, 1), (1, 1, 1), (2, 2), (3,), (1, 2)], ids=str)
def test_threads_are_on_the_hosts_that_were_given(counts: Sequence[int]) -> None:
    """Workers of different hosts share no memory, also if each host has one worker."""
    names = [f"{chr(97 + i)}:{count}" for i, count in enumerate(counts)]
    with mm.init(sum(counts), launcher="threads", hosts=names) as pool:
        expected = [i for i, count in enumerate(counts) for _ in range(count)]
        assert list(pool.topology.hosts) == expected
        assert pool.topology.shares_memory == (len(counts) == 1)
        assert float(mm.sum(mm.asarray(np.arange(12.0)))) == 66.0


@pytest.mark.parametrize("elements", [1, 5, 100_000])
def test_explanations_count_what_hosts_send_once(elements: int) -> None:
    """Two hosts of two workers exchange their sums, not those of each pair of workers."""
    x = np.ones((4, elements))
    with current("hosts", 4) as pool:
        environment = session.engine().environment
        assert environment.link.network is not None
        pending = Layout((elements,), pool.mesh, (None,), ("sum",))
        step = plan_redistribution(pending, Layout.replicated_on((elements,), pool.mesh))
        moved, _ = redistribution_traffic(step, 8, environment.link)
        between, within = 2 * elements, 4 * elements  # each host to the other; each pair of a host
        if elements < 100:
            assert moved == 8 * (between + within)
        else:
            assert moved < step.total_bytes(8) == 8 * 6 * elements
        total = mm.compile(lambda x: mm.sum(x, axis=0) * 2.0)
        divided = mm.asarray(x, layout=Layout.even(x.shape, pool.mesh, 0))
        np.testing.assert_array_equal(total(divided).numpy(), np.full(elements, 8.0))

"""Simulated programs: their times are those computed by hand."""

from itertools import product

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import magmath as mm
from layouts import draw_layout, meshes
from magmath.core.dtypes import float32, int64
from magmath.cost import Link, Machine, Network, redistribution_seconds
from magmath.cost.link import redistribution_traffic
from magmath.errors import MagmathError
from magmath.executor import isolated_run
from magmath.executor.call_times import CallTime
from magmath.executor.isolated_run import isolated_times
from magmath.layout import Layout, Mesh, plan_redistribution
from magmath.ops import counted_loops
from magmath.parallel.simulator import Host, SimulatedTask, simulate
from magmath.parallel.simulator.events import COMMUNICATE, COMPUTE
from magmath.parallel.simulator.program_step import simulate_program
from magmath.parallel.simulator.program_tasks import WorkerNetwork, program_tasks
from magmath.passes.environment import Environment
from magmath.program.instructions import Barrier, Call, Program, Redistribute, Slot
from magmath.transform import traced_loop

SHARED = WorkerNetwork(True, 0.25, 100.0, Link(0.5, 100.0, True, 0.25))
MESSAGES = WorkerNetwork(False, 0.0, 100.0, Link(0.5, 100.0, False, 0.0))
NOTHING = WorkerNetwork(True, 0.0, 1.0, Link(0.0, 1.0, True, 0.0))


def _cluster(hosts):
    """Workers on several hosts: a worker's link passes 100 bytes/s, that of a host 10 bytes/s."""
    network = Network(tuple(hosts), 2.0, 10.0)
    return WorkerNetwork(False, 0.0, 1.0, Link(0.5, 100.0, False, 0.0, network))


def _layout(workers, rule=None):
    mesh = Mesh((workers,))
    rule = Layout.split(0) if rule is None else rule
    return rule.bind((16,), mesh)


def _program(workers, instructions):
    """%0 divided, %1 and %2 results in its layout, %3 a copy on all workers."""
    split, whole = _layout(workers), Layout.replicated_on((16,), Mesh((workers,)))
    kinds = ("input", "temporary", "output", "output")
    layouts = (split, split, split, whole)
    slots = [Slot((16,), float32, x, kind) for x, kind in zip(layouts, kinds, strict=True)]
    return Program(slots, instructions, [0], [2, 3], [], {}, workers)


def _call(source, target):
    return Call("negative", {}, (source,), target)


def _call_times(workers, *seconds):
    """Give the calls of worker w `seconds` times w + 1."""
    return [
        [CallTime(range(i, i + 1), s * (w + 1)) for i, s in enumerate(seconds)]
        for w in range(workers)
    ]


def _seconds(program, call_times, network, host=None):
    tasks, _ = program_tasks(program, call_times, network, [0.0] * 9)
    return simulate(tasks, network.levels, None, host).seconds


def test_a_barrier_waits_for_the_slowest_worker():
    program = _program(2, [_call(0, 1), Barrier(), _call(1, 2)])
    # worker 1 takes 2 and 6 s; the barrier 0.25 s
    assert _seconds(program, _call_times(2, 1.0, 0.0, 3.0), SHARED) == pytest.approx(8.25)


def test_a_copy_from_shared_memory_takes_the_bytes_of_the_peers_at_least():
    program = _program(2, [_call(0, 1), Barrier(), Redistribute(1, 3)])
    # Each worker copies 8 elements of 4 bytes of its peer at 100 bytes/s.
    assert _seconds(program, _call_times(2, 1.0, 0.0, 0.0001), SHARED) == pytest.approx(2.25 + 0.32)


def test_messages_pass_the_port_of_their_worker():
    program = _program(4, [_call(0, 1), Redistribute(1, 3), _call(1, 2)])
    # Three messages of 4 elements: 3 · 0.5 s, and 48 bytes at 100 bytes/s.
    result = _seconds(program, _call_times(4, 1.0, 0.0, 1.0), MESSAGES)
    assert result == pytest.approx(4.0 + 1.5 + 0.48 + 4.0)


@pytest.mark.parametrize("hosts", [(0, 0, 1, 1), (0, 1, 0, 1)])
def test_collectives_send_the_data_of_a_worker_to_another_host_once(hosts):
    program = _program(4, [Redistribute(0, 3)])
    # Each worker reads the 16 bytes of its neighbour at 100 bytes/s. Then the port of a host passes
    # the 16 bytes of both of its workers at 10 bytes/s.
    within, between = 0.5 + 0.16, 2.0 + 3.2
    assert _seconds(program, _call_times(4, 0.0), _cluster(hosts)) == pytest.approx(
        within + between
    )


def test_other_messages_between_hosts_share_the_port_of_their_host():
    even, turned = Layout.split(0), Layout.split(0).over(Mesh((4,), None, (2, 3, 0, 1)))
    rules = ((even, "input"), (turned, "output"))
    slots = [Slot((16,), float32, rule.bind((16,), Mesh((4,))), kind) for rule, kind in rules]
    program = Program(slots, [Redistribute(0, 1)], [0], [1], [], {}, 4)
    # Two messages of 16 bytes in each direction.
    result = _seconds(program, _call_times(4, 0.0), _cluster((0, 0, 1, 1)))
    assert result == pytest.approx(2.0 + 3.2)


def test_single_messages_pass_the_ports_of_hosts_or_of_workers():
    """Hosts may have different numbers of workers, in any order."""
    network = _cluster((0, 1, 1, 0, 1))
    assert network.ports(0, 4) == ((1, 0), (1, 1))
    assert network.ports(4, 2) == ((0, 4), (0, 2))
    assert MESSAGES.ports(0, 4) == ((0, 0), (0, 4))


@settings(max_examples=100)
@given(st.data())
def test_simulated_moves_between_hosts_take_their_price(data):
    hosts = data.draw(st.lists(st.integers(0, 2), min_size=2, max_size=6))
    mesh = Mesh((len(hosts),))
    whole, split = (rule.bind((16,), mesh) for rule in (Layout.replicated(), Layout.split(0)))
    pending = Layout((16,), mesh, (None,), ("sum",))
    have, want = data.draw(st.sampled_from(
        [(split, whole), (pending, whole), (pending, split), (whole, split)]
    ))  # fmt: skip
    slots = [Slot((16,), float32, x, kind) for x, kind in ((have, "input"), (want, "output"))]
    program = Program(slots, [Redistribute(0, 1)], [0], [1], [], {}, len(hosts))
    network = _cluster(hosts)
    price = redistribution_seconds(plan_redistribution(have, want), 4, network.link)
    assert _seconds(program, _call_times(len(hosts), 0.0), network) == pytest.approx(price)


SENT_ONCE = {
    "allgather": lambda move, hosts: (move.source, move.source_tile, hosts[move.target]),
    "reduce_scatter": lambda move, hosts: (hosts[move.source], move.target, move.target_tile),
    "allreduce": lambda move, hosts: (hosts[move.source], hosts[move.target]),
}
"""What the elements of a collective that pass between two hosts once have in common."""


def _elements(selects):
    ranges = [range(x.start, x.stop, x.step or 1) if isinstance(x, slice) else x for x in selects]
    return product(*[[int(i) for i in x] for x in ranges])


@settings(max_examples=100, suppress_health_check=[*HealthCheck], deadline=None)
@given(st.data())
def test_traffic_between_hosts_counts_each_element_of_a_collective_once(data):
    mesh, hosts = data.draw(meshes()), data.draw(st.lists(st.integers(0, 2), min_size=9))
    hosts = [*hosts, *[0] * 9]
    layout = st.composite(draw_layout)((5, 6), mesh)
    have, want = data.draw(layout), data.draw(layout | st.just(Layout.replicated_on((5, 6), mesh)))
    plan, sent = plan_redistribution(have, want), 0
    for stage in plan.stages:
        once, different = SENT_ONCE.get(stage.kind), set()
        for number, move in enumerate(stage.moves):
            is_shared = once is not None and hosts[move.source] != hosts[move.target]
            key = once(move, hosts) if is_shared else number
            selects = move.source_select if stage.kind == "allgather" else move.target_select
            if move.source != move.target:
                different |= {(key, index) for index in _elements(selects)}
        sent += 0 if stage.kind in ("nothing", "local") else len(different)
    assert redistribution_traffic(plan, 1, _cluster(hosts).link)[0] == sent


@pytest.mark.parametrize("overlapped", [0, 1])
def test_an_asynchronous_move_hides_behind_the_next_computations(overlapped):
    program = _program(2, [Redistribute(0, 3, None, overlapped), _call(0, 1), _call(1, 2)])
    transfer = 0.5 + 0.32
    result = _seconds(program, _call_times(2, 0.0, 0.25, 1.0), MESSAGES)
    first = max(transfer, 0.5) if overlapped else transfer + 0.5
    assert result == pytest.approx(first + 2.0)


def test_computations_share_processors_and_memory():
    def run(count, host, nbytes=0.0, seconds=1.0):
        tasks = [SimulatedTask("a", (w,), (COMPUTE,), seconds, nbytes=nbytes) for w in range(count)]
        return [span.end for span in simulate(tasks, SHARED.levels, None, host).spans]

    assert run(2, Host(2)) == pytest.approx([1.0, 1.0])
    assert run(4, Host(2)) == pytest.approx([2.0] * 4)
    assert run(2, Host(2, crowding=1.5)) == pytest.approx([1.5, 1.5])
    assert run(1, Host(2, crowding=1.5)) == pytest.approx([1.0])
    assert run(2, Host(2, bandwidth=10.0), nbytes=10.0) == pytest.approx([2.0, 2.0])


def test_workers_share_the_processors_and_the_memory_of_their_own_host():
    """Computations on one host do not slow down those on another one."""
    tasks = [SimulatedTask("a", (w,), (COMPUTE,), 1.0, nbytes=10.0) for w in range(4)]

    def ends(host, hosts):
        return [x.end for x in simulate(tasks, SHARED.levels, None, host, hosts).spans]

    assert ends(Host(1), (0, 1, 2, 3)) == pytest.approx([1.0] * 4)
    assert ends(Host(1), (0, 1, 0, 1)) == pytest.approx([2.0] * 4)
    assert ends(Host(1), (0, 1, 1, 1)) == pytest.approx([1.0, 3.0, 3.0, 3.0])
    assert ends(Host(1), ()) == pytest.approx([4.0] * 4)
    assert ends(Host(2, bandwidth=10.0), (0, 1, 0, 1)) == pytest.approx([2.0] * 4)


def test_a_computation_that_needs_little_memory_is_not_slowed_down():
    tasks = [SimulatedTask("little", (0,), (COMPUTE,), 1.0, nbytes=2.0),
             SimulatedTask("much", (1,), (COMPUTE,), 1.0, nbytes=16.0)]  # fmt: skip
    spans = simulate(tasks, SHARED.levels, None, Host(2, bandwidth=10.0)).spans
    # In the first second 8 of the 16 bytes pass, then 8 at 10 bytes/s.
    assert [span.end for span in spans] == pytest.approx([1.0, 1.8])


@pytest.mark.parametrize(
    ("operation", "attributes", "inputs", "out", "nbytes"),
    [
        ("take", {"axes": (0,), "at": 0}, (0, 1), 2, 2 * 4 * 400 + 8 * 4),
        ("dynamic_slice", {"axes": (0,), "extents": (4,), "steps": (1,)}, (0, 4), 2, 2 * 4 * 400),
        ("slice", {"bounds": ((0, 4, 1), (0, 100, 1))}, (0,), 2, 2 * 4 * 400),
        ("slice", {"bounds": ((0, 4, 1), (0, 100, 1))}, (0,), 3, 0),  # a view
        ("add", {}, (0, 0), 5, 2 * 4 * 100_000),
        ("add", {}, (5, 0), 5, 2 * 4 * 100_000),  # in place
    ],
)
def test_a_computation_touches_the_elements_that_it_reads_and_writes(
    operation, attributes, inputs, out, nbytes
):
    mesh = Mesh((1,))

    def slot(dtype, *shape, kind="temporary", **options):
        return Slot(shape, dtype, Layout.replicated_on(shape, mesh), kind, **options)

    data, result = (1000, 100), (4, 100)
    slots = [
        slot(float32, *data, kind="input"),
        slot(int64, 4, kind="input"),
        slot(float32, *result, kind="output"),
        slot(float32, *result, alias=0, start=(0, 0)),
        slot(int64),
        slot(float32, *data),
    ]
    program = Program(slots, [Call(operation, attributes, inputs, out)], [0, 1], [2], [], {}, 1)
    tasks, _ = program_tasks(program, _call_times(1, 1.0), NOTHING, [0.0])
    assert [task.nbytes for task in tasks] == pytest.approx([nbytes], abs=8)


def test_a_move_touches_what_it_reads_of_others_and_writes():
    program = _program(2, [Redistribute(0, 3)])
    tasks, _ = program_tasks(program, _call_times(2, 1.0), NOTHING, [0.0])
    assert [task.nbytes for task in tasks] == [2 * 16 * 4] * 2


def test_a_segment_is_one_task():
    program = _program(2, [_call(0, 1), _call(1, 2), Barrier()])
    call_times = [[CallTime(range(2), 1.5), CallTime(range(2, 3), 0.0)] for _ in range(2)]
    tasks, ends = program_tasks(program, call_times, SHARED, [0.0] * 3, steps=2)
    assert [task.name for task in tasks[:3]] == ["2 calls (kernel)"] * 2 + ["barrier (wait)"]
    assert ends == [3, 6]


def test_isolated_times_of_each_instruction():
    program = _program(2, [_call(0, 1), Barrier(), Redistribute(1, 3), _call(1, 2)])
    for rank in range(2):
        result = isolated_times(
            program, rank, shares_memory=True, threads=1, rounds=1, compiled=False
        )
        assert [one.positions for one in result["replay"]] == [range(i, i + 1) for i in range(4)]
        seconds = [one.seconds for one in result["replay"]]
        assert all(seconds[i] > 0 for i in (0, 2, 3))
        assert seconds[1] < 1e-3  # a barrier waits for no one


def test_predicted_times_follow_the_machine():
    mesh = Mesh((2,))
    link = Link(0.5, 100.0, True, 0.25)
    machine = Machine(shared=link, call_seconds=3.0, crowded_barrier=7.0)
    environment = Environment(mesh, link, shares_memory=True, machine=machine)
    program = _program(2, [_call(0, 1), Barrier(), _call(1, 2)])
    simulated = simulate_program(program, environment, times="predicted", processors=2)
    assert simulated.seconds == pytest.approx(2 * 3.0 + 0.25, rel=1e-6)
    crowded = simulate_program(program, environment, times="predicted", processors=1)
    assert crowded.seconds == pytest.approx(4 * 3.0 + 7.0, rel=1e-6)  # in turns
    assert simulated.form == "predicted"


def test_predicted_messages_count_once():
    link = Link(0.5, 100.0, False, 0.0)
    machine = Machine(messages=link, call_seconds=3.0)
    environment = Environment(Mesh((2,)), link, shares_memory=False, machine=machine)
    program = _program(2, [Redistribute(0, 3)])
    simulated = simulate_program(program, environment, times="predicted", processors=2)
    assert simulated.seconds == pytest.approx(3.0 + 0.5 + 0.32)  # packs, then sends 32 bytes


@pytest.mark.parametrize("hosts", [(0, 0), (0, 0, 1, 1, 2, 2), (0, 1, 2, 0, 1, 2)])
def test_the_workers_of_each_host_take_turns_on_its_processors(hosts):
    workers, network = len(hosts), Network(hosts, 2.0, 10.0) if any(hosts) else None
    link = Link(0.5, 100.0, False, 0.0, network)
    machine = Machine(messages=link, call_seconds=3.0)
    environment = Environment(Mesh((workers,)), link, shares_memory=False, machine=machine)
    program = _program(workers, [_call(0, 1), _call(1, 2)])
    simulated = simulate_program(program, environment, times="predicted", processors=1)
    assert simulated.seconds == pytest.approx(2 * 2 * 3.0, rel=1e-6)


@pytest.fixture
def network():
    with mm.init(workers=2, launcher="threads", device="cpu"):
        net = mm.nn.NeuralNetwork([mm.nn.Dense(8, activation="relu"), mm.nn.Dense(3)])
        x, y = np.ones((16, 5), np.float32), np.zeros(16, np.int64)
        net.fit(x, y, batch_size=8, epochs=0, strategy="data")
        yield net


def test_a_training_step_is_simulated_from_its_program(network, tmp_path):
    step = network.simulate(times="predicted")
    calls = [s for s in network.explain().instructions if s.operation not in ("barrier", "emit")]
    tasks = [t for t in step.timeline.tasks if t.seconds and 0 in t.workers]
    assert 0 < len(tasks) <= 3 * len(calls)
    slow = network.simulate(times="predicted", slowdown={1: 4.0})
    assert slow.seconds > step.seconds
    assert "worker 1: computes" in str(slow)
    waits = [t.working_seconds(0, COMPUTE) / t.seconds for t in (step.timeline, slow.timeline)]
    assert waits[1] < waits[0]  # worker 0 waits for the slow one
    assert step.timeline.working_seconds(0, COMMUNICATE) == 0.0  # they share memory
    step.save_timeline(tmp_path / "step.json")
    step.save_timeline(tmp_path / "step.svg")
    with pytest.raises(MagmathError, match=r"\.svg or \.json"):
        step.save_timeline(tmp_path / "step.txt")


@pytest.mark.parametrize("exchange", ["ring", "tree"])
def test_compiled_collectives_are_simulated(network, exchange):
    """Measured by one worker that has the shared memory of all."""
    assert network.simulate(exchange).seconds > 0


def test_measured_times_and_other_strategies(network):
    measured = network.simulate("model")
    assert measured.seconds > 0
    assert measured.form in ("replay", "segments")
    with pytest.raises(MagmathError, match="'measured' or 'predicted'"):
        network.simulate(times="guessed")
    assert network.simulate("asynchronous").seconds > 0
    with pytest.raises(MagmathError, match="call fit first"):
        mm.nn.NeuralNetwork([mm.nn.Dense(1)]).simulate()


def test_a_worker_of_several_threads_is_simulated_as_it_runs():
    """Its program or that of its threads, whichever takes less time."""
    with mm.init(workers=0, device="cpu", threads=2):
        net = mm.nn.NeuralNetwork([mm.nn.Dense(1024, activation="relu"), mm.nn.Dense(10)])
        x, y = np.ones((512, 1024), np.float32), np.zeros(512, np.int64)
        net.fit(x, y, batch_size=512, epochs=0)
        step = net.simulate(times="predicted")
        assert step.form == "threads, predicted"
        assert "thread 1: computes" in str(step)
        ((program, _),) = net.trainer.step.programs()
        assert program.team is not None
        assert {w for t in step.timeline.tasks for w in t.workers} == {0, 1}
        slow = net.simulate(times="predicted", slowdown={0: 2.0})
        assert slow.seconds > 1.5 * step.seconds
        assert net.simulate().seconds > 0


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("epochs", [0, 1])
def test_steps_with_long_loops_are_simulated_and_explained(
    workers: int, epochs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first run as one program, later as the programs that run, whose counters of steps
    stay within the loop while they are timed."""
    monkeypatch.setattr(isolated_run, "COMPILE_SECONDS", 0.5)
    monkeypatch.setattr(counted_loops, "MAX_UNROLLED", -1)
    monkeypatch.setattr(traced_loop, "MIN_TRACED_STEPS", 1)
    options = {"launcher": "threads"} if workers else {}
    with mm.init(workers=workers, **options):
        net = mm.nn.NeuralNetwork(
            [mm.nn.LSTM(6), mm.nn.Lambda(lambda y: y[0][:, -1]), mm.nn.Dense(3)],
            loss="cross_entropy",
            optimizer="momentum",
        )
        images, labels = np.ones((32, 12, 4), "float32"), np.zeros(32, int)
        net.fit(images, labels, batch_size=8, epochs=epochs)
        assert net.trainer.simulate().seconds > 0
        assert "float32" in str(net.trainer.explain())

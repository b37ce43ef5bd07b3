"""Machine files, and the costs of collectives on them."""

import math
from dataclasses import replace

import pytest

from magmath import nn
from magmath.core.resources import memory_share, processor_count
from magmath.cost import DEFAULT_MACHINE, Group, Level, load_machine, machine_file
from magmath.cost.collective_costs import algorithm_costs, fastest, group_levels
from magmath.cost.machine_file import known_machines
from magmath.errors import DataError, MemoryLimitError, OptionError
from magmath.parallel import plan

NAMES = [name for name in known_machines() if name != "here"]


@pytest.mark.parametrize("name", NAMES)
def test_packaged_machines_are_complete(name):
    machine = load_machine(name)
    assert machine.memory > 1e9
    assert machine.levels[-1].fan_out == 0
    assert all(level.bandwidth > 0 for level in machine.levels)


def _packaged(name):
    from importlib.resources import files

    return (files("magmath.cost") / "machines" / f"{name}.toml").read_text()


@pytest.mark.parametrize("field", ["bandwidth", "memory", "tile_rows", "processors"])
def test_missing_field_is_named(tmp_path, field):
    lines = [line for line in _packaged("dgx-h200").splitlines() if not line.startswith(field)]
    path = tmp_path / "mine.toml"
    path.write_text("\n".join(lines))
    with pytest.raises(DataError, match=rf"mine\.toml has no valid field '.*{field}'"):
        load_machine(path)


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('source = "DGX H200 datasheet: 8 GPUs"', 'note = "?"', r"level\[0\].fan_out.source"),
        ("value = 141e9", 'value = "much"', r"device.memory.value"),
        ("value = 141e9", "value = -1.0", r"device.memory.value"),
        ("value = 141e9", "value = true", r"device.memory.value"),
        ("value = 141e9", "value = nan", r"device.memory.value"),
        ("value = 141e9", "value = inf", r"device.memory.value"),
        ("fan_out = { value = 8", "fan_out = { value = 7.5", r"level\[0\].fan_out.value"),
        ("fan_out = { value = 8", "fan_out = { value = 0", r"level\[0\].fan_out.value"),
        ("tile_rows = { value = 128", "tile_rows = { value = 0.5", r"device.tile_rows.value"),
        ("processors = { value = 132", "processors = { value = 0.5", r"device.processors.value"),
        ("[[level]]", "[[rung]]", "level"),
        ("[device.gemm]", "[device.products]", "device.products"),
    ],
)
def test_wrong_field_is_named(tmp_path, old, new, field):
    text = _packaged("dgx-h200")
    assert old in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new))
    with pytest.raises(DataError, match=field):
        load_machine(path)


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("[device]", "speed = 2\n[device]", "speed"),
        ("[device]", "[device]\nclock = { value = 1.0, source = 'own' }", r"device\.clock"),
        ("bfloat16 = {", "bflaot16 = {", r"device\.gemm\.bflaot16"),
        ("value = 141e9,", 'value = 141, unit = "GB",', r"device\.memory\.unit"),
        ("latency = {", "ltency = {", r"level\[0\]\.ltency"),
    ],
)
def test_unknown_field_is_named(tmp_path, old, new, field):
    text = _packaged("dgx-h200")
    assert old in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new, 1))
    with pytest.raises(DataError, match=f"unknown field '{field}'; known are"):
        load_machine(path)


def _outcome(machine):
    """Return the seconds of a plan of a large and a narrow layer, or the error."""
    try:
        return plan(nn.Sequential([nn.Dense(2048), nn.Dense(10)]), (256, 784), machine, 8).seconds
    except MemoryLimitError:
        return None


@pytest.mark.parametrize("field", [name for name in machine_file._DEVICE if name != "gemm"])
def test_every_number_of_a_device_changes_plans(tmp_path, field):
    """A number that nothing reads would have to be looked up in vain."""
    device, gemm, rest = _packaged("ethernet-10g").partition("[device.gemm]")
    (line,) = [line for line in device.splitlines() if line.startswith(field)]
    path, outcomes = tmp_path / "mine.toml", set()
    for value in (2, 2_000_000_000):
        changed = f'{field} = {{ value = {value}, source = "a test" }}'
        path.write_text(device.replace(line, changed) + gemm + rest)
        outcomes.add(_outcome(path))
    assert len(outcomes) == 2


def test_levels_are_tables(tmp_path):
    text = _packaged("k80-fdr")
    path = tmp_path / "mine.toml"
    path.write_text("level = [1]\n" + text[: text.index("[[level]]")])
    with pytest.raises(DataError, match="no valid field 'level': it needs a table"):
        load_machine(path)


@pytest.mark.parametrize("is_measured", [False, True])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_workers_of_this_machine_share_its_memory_as_those_of_a_pool(
    workers, is_measured, monkeypatch
):
    constants = replace(DEFAULT_MACHINE, source="measured", memory=1e15)
    if is_measured:
        monkeypatch.setattr(machine_file, "current_machine", lambda: constants)
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(4)))
    monkeypatch.setattr("magmath.core.cgroup.cpu_quota", lambda root: None)
    monkeypatch.setattr("magmath.core.cgroup.memory_limit", lambda root: 2 << 30)
    assert load_machine("here", workers).memory == memory_share(workers) < 2 << 30
    assert load_machine("here").memory == memory_share(4)
    assert plan(nn.Dense(64), (64, 64), workers=workers).machine.memory == memory_share(workers)
    with pytest.raises(MemoryLimitError):
        plan(nn.Dense(1 << 15), (64, 1 << 15), workers=workers, strategy="data")


def test_a_plan_for_too_many_workers_names_this_machine():
    with pytest.raises(
        OptionError,
        match="plan: this machine has .* workers, one for each processor, was asked for",
    ):
        plan(nn.Dense(64), (64, 64), workers=processor_count() + 1)


def test_a_machine_has_no_more_workers_than_its_levels_connect(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text(_packaged("k80-fdr").replace("fan_out = { value = 0", "fan_out = { value = 2"))
    machine = load_machine(path)
    assert machine.max_workers == 2 * 4 * 2 * 2
    assert load_machine("k80-fdr").max_workers == math.inf
    assert plan(nn.Dense(64), (64, 64), machine=path, workers=32).mesh.workers == 32
    with pytest.raises(OptionError, match=r"has 32 workers, was asked for 33; plan fewer"):
        plan(nn.Dense(64), (64, 64), machine=path, workers=33)


@pytest.mark.parametrize("name", NAMES)
def test_computation_takes_no_longer_on_more_workers_with_as_many_samples_each(name):
    """Each worker of the innermost level has its share of the memory's bandwidth."""
    network = nn.Sequential([nn.Dense(64), nn.ReLU(), nn.Dense(10)])
    seconds = [
        sum(layer.compute for layer in plan(network, (32 * n, 64), name, n, strategy="data").layers)
        for n in (1, 8, 64)
    ]
    assert max(seconds) < 1.001 * seconds[0]


def test_unknown_machine_lists_the_known_ones(tmp_path):
    with pytest.raises(DataError, match="k80-fdr"):
        load_machine("cray-1")
    path = tmp_path / "broken.toml"
    path.write_text("[[")
    with pytest.raises(DataError, match="is not a TOML file"):
        load_machine(path)


LEVELS = (Level("host", 4, 10.0, 1.0), Level("network", 0, 2.0, 3.0))


def test_ring_is_limited_by_the_slowest_port():
    # 8 workers in two hosts: each of 7 steps takes the latency of the network, and an eighth of the
    # bytes passes the port of a host.
    result = {
        cost.algorithm.name: (cost.fixed_seconds, cost.seconds_per_byte)
        for cost in algorithm_costs(LEVELS, "allgather", Group(8, 1, 8))
    }
    assert result["ring"] == pytest.approx((7 * 3.0, 7 / 8 / 2.0))
    # Level by level: half of the bytes between hosts, then three quarters within a host.
    assert result["hierarchical"] == pytest.approx((3.0 + 2 * 1.0, 1 / 2 / 2.0 + 3 / 4 / 10.0))


def test_groups_with_a_stride_share_the_port_of_a_host():
    inner, outer = Group(4, 1, 8), Group(2, 4, 8)
    assert [part.level for part in group_levels(LEVELS, inner)] == [0]
    (part,) = group_levels(LEVELS, outer)
    assert (part.level, part.units, part.members, part.sharing) == (1, 2, 1, 4)


def test_few_bytes_take_few_messages_and_many_bytes_few_passes():
    group = Group(8, 1, 8)
    assert fastest(LEVELS, "allreduce", 0.01, group).algorithm.name == "tree"
    assert fastest(LEVELS, "allreduce", 1e9, group).algorithm.name == "hierarchical"
    assert fastest(LEVELS, "all_to_all", 0.01, group).algorithm.name == "bruck"
    assert fastest(LEVELS, "all_to_all", 1e9, group).algorithm.name == "pairwise"
    assert fastest(LEVELS, "allreduce", 1e9, Group(1, 1, 8)).seconds(1e9) == 0.0


def test_tiles_leave_processors_idle():
    machine = load_machine("k80-fdr")  # 13 processors, tiles of 128 × 64
    assert machine.tile_efficiency(128, 64 * 13) == 1.0
    assert machine.tile_efficiency(128, 64 * 14) == pytest.approx(14 / 26)
    assert machine.tile_efficiency(64, 64 * 13) == 0.5
    assert machine.tile_efficiency(128, 64, parts=13) == 1.0  # the sum is divided

"""Table 1 of the dMath paper: training speed of Expresso on 1 to 64 GPUs, simulated.

The simulation gets the speed on one GPU from the table, and all else from the description of the
machine and of the exchange. No number is fitted to the rows with several GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING, Any, Final, final

from magmath.cost import Level, Machine
from magmath.cost.machine_file import load_machine
from magmath.nn.zoo import NETWORKS
from magmath.parallel.planner import LayerGraph, Plan, layer_graph, measured_speed, plan_graph
from magmath.reproduce.drawing import new_figure
from magmath.reproduce.experiment import Experiment, Options
from magmath.reproduce.section import Finding, Plot, Section, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

PAPER_MACHINE: Final = "k80-fdr"
TODAY: Final = "dgx-h200"
WORKERS: Final = (1, 2, 4, 8, 16, 32, 64)
TOLERANCE: Final = 0.20
EXCHANGE: Final[dict[str, Any]] = {"algorithm": "ring", "fused": False}
"""Collectives of the paper's time: rings, and one collective for each parameter."""


@final
@dataclass(frozen=True)
class Column:
    """A column of the table: images a second of Expresso v0.5 by number of GPUs.

    batches   the batch of all GPUs in total, for each row
    settings  the settings of the network in the model zoo
    """

    title: str
    network: str
    settings: dict[str, Any]
    batches: tuple[int, ...]
    paper: tuple[float, ...]


COLUMNS: Final = (
    Column(
        "AlexNet 1024", "alexnet", {}, (512, *[1024] * 6),
        (479, 940, 1996, 3103, 4198, 5187, 5786),
    ),
    Column("AlexNet 256", "alexnet", {}, (256,) * 7, (533, 915, 1440, 1702, 2008, 2104, 2271)),
    Column(
        "GoogLeNet 1024", "googlenet", {"auxiliary": True}, (*[128] * 3, *[1024] * 4),
        (115, 215, 370, 873, 1498, 2330, 3025),
    ),
)  # fmt: skip

ASSUMPTIONS: Final = (
    "Taken from the table: the images a second on one GPU, one number a column, which sets the "
    "speed of the arithmetic. Taken from the paper's text: the batches, and the exchange of "
    "section 2.1 for all parameters (gradients are reduced and scattered, each GPU updates its "
    "chunk, chunks are replicated). Taken from specifications and published measurements: the "
    "machine (cost/machines/k80-fdr.toml names the source of each number). Assumed: hosts of 16 "
    "GPUs with two risers, one InfiniBand adapter a host, rings, one collective for each "
    "parameter, and that GPUs do not compute while MPI communicates. The paper states the contrary "
    "of the last point for replication, and that dense layers are model-parallel: the table has "
    "both as further columns. Also assumed, and not in the paper: up to 8 GPUs are on one riser. "
    "The column 'both risers' has half of them on each. No number is fitted to the rows with "
    "several GPUs, but these assumptions were chosen with the table at hand, so the errors are no "
    "blind prediction."
)


@final
@dataclass(frozen=True)
class SpeedRow:
    """A speed of the paper's table next to its simulation, in images a second.

    spread      the same exchange between GPUs half of which are on each riser of their host
    overlapped  the same exchange with complete overlap
    hybrid      data-parallel convolutions and model-parallel dense layers, with overlap
    """

    column: Column
    batch: int
    workers: int
    paper: float
    simulated: float
    spread: float
    overlapped: float
    hybrid: float

    @property
    def error(self) -> float:
        """The relative error of the simulation."""
        return self.simulated / self.paper - 1.0

    def as_data(self) -> dict[str, Any]:
        """Return the row as plain data."""
        return {
            "network": self.column.network,
            "batch": self.batch,
            "workers": self.workers,
            "paper": self.paper,
            "simulated": self.simulated,
            "both_risers": self.spread,
            "with_overlap": self.overlapped,
            "hybrid": self.hybrid,
        }


@final
@dataclass(frozen=True)
class TodayRow:
    """The speed of the fastest plan on today's hardware, in images a second."""

    network: str
    batch: int
    workers: int
    simulated: float
    mesh: str


def run(options: Options) -> Section:
    """Simulate the table on the paper's machine, then on today's."""
    rows: list[SpeedRow] = []
    today: list[TodayRow] = []
    for column in COLUMNS:
        options.console.print(f"  {column.title}")
        graphs = _graphs(column)
        rows += simulated_rows(column, graphs)
        today += _today_rows(column, graphs, (1, 8, 64) if options.quick else WORKERS)
    return Section(
        (
            "Expresso, a framework on top of dMath, trains AlexNet and GoogLeNet on Tesla K80s.",
            ASSUMPTIONS,
            *[_plot(column, [r for r in rows if r.column is column]) for column in COLUMNS],
            _table(rows),
            *[_finding(column, [r for r in rows if r.column is column]) for column in COLUMNS],
            _scaling(rows),
            _today_table(today),
        ),
        {
            "rows": [row.as_data() for row in rows],
            "today": [vars(row) for row in today],
        },
    )


def _graphs(column: Column) -> dict[int, LayerGraph]:
    """Return the layer graph of a network for each batch."""
    network = NETWORKS[column.network]
    return {
        batch: layer_graph(network(**column.settings), (batch, *network.image))
        for batch in dict.fromkeys(column.batches)
    }


def simulated_rows(column: Column, graphs: dict[int, LayerGraph]) -> list[SpeedRow]:
    """Return the rows of a column. Only the first number of `column.paper` enters."""
    speed = measured_speed(graphs[column.batches[0]], PAPER_MACHINE, column.paper[0], **EXCHANGE)
    return [_simulated_row(column, position, graphs, speed) for position in range(len(WORKERS))]


def _simulated_row(
    column: Column, position: int, graphs: dict[int, LayerGraph], speed: float
) -> SpeedRow:
    """Return the row at a position of a column; `speed` is that of the arithmetic."""
    workers, batch = WORKERS[position], column.batches[position]
    machine = load_machine(PAPER_MACHINE)

    def plan(machine: Machine, strategy: str) -> Plan:
        return plan_graph(
            graphs[batch], machine, workers, strategy=strategy, speed=speed, **EXCHANGE
        )

    data, hybrid = plan(machine, "data"), plan(machine, "hybrid")
    spread = plan(_on_both_risers(machine, workers), "data")
    return SpeedRow(
        column,
        batch,
        workers,
        column.paper[position],
        simulated=batch / data.simulate(sharded=True, overlap=False).seconds,
        spread=batch / spread.simulate(sharded=True, overlap=False).seconds,
        overlapped=batch / data.simulate(sharded=True).seconds,
        hybrid=hybrid.samples_per_second,
    )


def _on_both_risers(machine: Machine, workers: int) -> Machine:
    """Return the machine with half of the workers of one host on each riser, as whole boards."""

    def divided(level: Level) -> Level:
        boards = max(1, workers // 4)
        return (
            replace(level, fan_out=min(level.fan_out, boards)) if level.name == "riser" else level
        )

    return replace(machine, levels=tuple(divided(level) for level in machine.levels))


def _today_rows(
    column: Column, graphs: dict[int, LayerGraph], workers: tuple[int, ...]
) -> list[TodayRow]:
    """Return the speeds for the largest batch."""
    batch = max(graphs)
    plans = {count: plan_graph(graphs[batch], TODAY, count) for count in workers}
    return [
        TodayRow(column.network, batch, count, plan.samples_per_second, str(plan.mesh))
        for count, plan in plans.items()
    ]


def _plot(column: Column, rows: list[SpeedRow]) -> Plot:
    return Plot(
        f"{column.title}: images a second",
        _figure(rows),
        "Double logarithmic. Only the first point of the paper enters the simulation.",
    )


def _figure(rows: list[SpeedRow]) -> Figure:
    figure = new_figure()
    axes = figure.subplots()
    workers = [row.workers for row in rows]
    axes.plot(workers, [row.paper for row in rows], "ko-", label="paper")
    axes.plot(workers, [row.simulated for row in rows], "s-", label="simulated")
    axes.plot(workers, [row.overlapped for row in rows], ":", label="with overlap")
    axes.plot(workers, [row.hybrid for row in rows], "--", label="hybrid, with overlap")
    axes.set_xscale("log", base=2)
    axes.set_xticks(workers, [str(count) for count in workers])
    axes.set_yscale("log")
    axes.set(xlabel="GPUs", ylabel="images a second")
    axes.grid(alpha=0.3)
    axes.legend()
    return figure


def _table(rows: list[SpeedRow]) -> Table:
    return Table.of(
        "Table 1, Expresso v0.5: images a second",
        (
            "network", "batch", "GPUs", "paper", "simulated", "error", "both risers",
            "with overlap", "hybrid",
        ),
        [
            (
                row.column.network, row.batch, row.workers, row.paper, round(row.simulated),
                f"{row.error:+.0%}", round(row.spread), round(row.overlapped), round(row.hybrid),
            )
            for row in rows
        ],
        "The rows with one GPU are given to the simulation.",
    )  # fmt: skip


def _finding(column: Column, rows: list[SpeedRow]) -> Finding:
    errors = [abs(row.error) for row in rows[1:]]
    worst = max(rows[1:], key=lambda row: abs(row.error))
    near = sum(error <= TOLERANCE for error in errors)
    return Finding.checked(
        f"{column.title}: the simulation is within {TOLERANCE:.0%} of the paper",
        f"{rows[0].paper:,.0f} images a second on one GPU, {rows[-1].paper:,.0f} on 64",
        f"{near} of {len(errors)} predicted rows; median error {median(errors):.0%}, largest "
        f"{worst.error:+.0%} on {worst.workers} GPUs",
        near == len(errors),
        "the paper documents neither the topology of its hosts nor the cost of its "
        "collectives, nor when communication overlaps computation; with half of the GPUs on each "
        f"riser the speed on {worst.workers} GPUs is {worst.spread / worst.paper - 1.0:+.0%}",
    )


def _scaling(rows: list[SpeedRow]) -> Finding:
    """Return whether the simulation orders the three columns by their scaling as the paper does."""

    def order(values: dict[str, float]) -> list[str]:
        return sorted(values, key=values.__getitem__, reverse=True)

    last = [row for row in rows if row.workers == WORKERS[-1]]
    first = {row.column.title: row for row in rows if row.workers == 1}
    paper = {r.column.title: r.paper / first[r.column.title].paper for r in last}
    ours = {r.column.title: r.simulated / first[r.column.title].simulated for r in last}
    return Finding.checked(
        "GoogLeNet scales best, then AlexNet with the larger batch",
        ", ".join(f"{title} {value:.1f} ×" for title, value in paper.items())
        + " from 1 to 64 GPUs",
        ", ".join(f"{title} {value:.1f} ×" for title, value in ours.items()),
        order(paper) == order(ours),
        f"the simulated order is {', '.join(order(ours))}",
    )


def _today_table(rows: list[TodayRow]) -> Table:
    return Table.of(
        "The same networks on DGX H200: images a second of the fastest plan",
        ("network", "batch", "GPUs", "simulated", "mesh"),
        [(row.network, row.batch, row.workers, round(row.simulated), row.mesh) for row in rows],
        "From specifications alone (cost/machines/dgx-h200.toml), float32 by TF32 tensor cores; no "
        "measurement enters, so these are upper bounds for full speed of the arithmetic.",
    )


EXPERIMENT = Experiment(
    "dmath-table1",
    "dMath: training speed on 1 to 64 GPUs, simulated",
    "dMath paper, Table 1",
    run,
)

"""The benchmark runner, with contestants that take given times, and the training problem."""

from __future__ import annotations

import ast
import json
import os
import signal
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from magmath.bench import BENCHES
from magmath.bench.case import Bench, Case, Comparison, RunOptions, System, constant_mark
from magmath.bench.layers import training_case
from magmath.bench.peer_processes import PeerNotInstalled, SystemProcesses
from magmath.bench.peers.problem import Problem
from magmath.bench.peers.repeated import RepeatedContestant
from magmath.bench.result import (
    BenchResult,
    CaseResult,
    ComparisonResult,
    RatioSummary,
    SystemResult,
    compare_systems,
)
from magmath.bench.result_output import memory_text, print_result, rate_text, save_result
from magmath.bench.result_plots import plot_result
from magmath.bench.runner import choose_cases, choose_systems, run_bench
from magmath.errors import MagmathError, OptionError

CASE = Case("case", {}, work=10.0, unit="images/s", group="g", x=1)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return systems of the given contestants, whose module the services must find."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]), prepend=os.pathsep)
    monkeypatch.setattr("magmath.bench.runner.PAUSE_SECONDS", 0.0)

    def make(name: str, seconds: float = 1.0, processes: int = 1, **settings: Any) -> System:
        settings |= {"seconds": seconds, "letter": name[0], "log": str(tmp_path / "log")}
        return System(name, "bench_contestants:scripted", "", processes, settings=settings)

    return make


def run(
    *systems: System,
    comparisons: tuple[Comparison, ...] = (),
    cases: int = 1,
    measures_memory: bool = False,
) -> BenchResult:
    bench = Bench(
        "test",
        "a test",
        "number",
        lambda options: [CASE] * cases,
        lambda options: list(systems),
        lambda options: list(comparisons),
        measures_memory=measures_memory,
    )
    return run_bench(bench, RunOptions(quick=True), Console(file=StringIO()))


def test_systems_take_turns_and_ratios_are_made_in_each_round(
    scripted: Any, tmp_path: Path
) -> None:
    against = Comparison("best", "A own", ("B slow", "C fast"), constant_mark(1.2))
    result = run(
        scripted("A own", 2.0),
        scripted("B slow", 5.0),
        scripted("C fast", 3.0),
        comparisons=(against,),
    )
    assert (tmp_path / "log").read_text() == "ABC" * 4  # the warm-up and three rounds
    (case,) = result.cases
    assert case.systems["B slow"].seconds == [5.0] * 3
    assert case.rate("A own") == 5.0
    (figure,) = case.figures
    assert figure.rounds == [1.5] * 3
    assert figure.has_reached_mark
    assert result.versions == {"scripted": "1"}
    result.raise_if_incomplete()


def test_slowest_process_counts(scripted: Any) -> None:
    (case,) = run(scripted("A two", 2.0, processes=2)).cases
    assert case.systems["A two"].seconds == [4.0] * 3
    assert case.systems["A two"].record["rank"] == 0


def test_missing_packages_are_named(scripted: Any, tmp_path: Path) -> None:
    missing = System("missing", "bench_contestants:absent")
    result = run(scripted("A own"), missing)
    assert list(result.cases[0].systems) == ["A own"]
    assert "a_library_that_is_not_installed" in result.absent["missing"]
    out = StringIO()
    print_result(result, Console(file=out, width=200))
    assert "missing: absent" in out.getvalue()
    save_result(result, tmp_path / "results" / "r.json")
    data = json.loads((tmp_path / "results" / "r.json").read_text())
    assert data["absent"].keys() == {"missing"}
    assert data["cases"][0]["systems"]["A own"]["rate"] == 10.0
    assert {"machine", "versions", "commit", "command", "date"} <= data.keys()


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("prepare", "cannot prepare"),
        ("round", "cannot go round"),
        ("death", "died"),
        ("finish", "cannot finish"),
    ],
)
def test_a_failing_system_takes_no_further_part(scripted: Any, where: str, message: str) -> None:
    against = Comparison("bad", "A own", ("B bad",), constant_mark(1.0))
    result = run(
        scripted("A own"), scripted("B bad", fails_in=where), comparisons=(against,), cases=2
    )
    for case in result.cases:
        assert case.systems["A own"].seconds == [1.0] * 3
        assert case.systems["B bad"].state == "failed"
        assert case.figures == []
    assert message in result.cases[0].systems["B bad"].reason
    with pytest.raises(MagmathError, match="B bad failed in 'case'"):
        result.raise_if_incomplete()


def test_a_system_is_left_out_of_cases_that_it_cannot_do(scripted: Any) -> None:
    able = replace(
        scripted("B some"), unsupported_reason=lambda case: "too large" if case.x > 1 else ""
    )
    result = run(
        scripted("A own"),
        able,
        comparisons=(Comparison("x", "A own", ("B some",), constant_mark(1.0)),),
    )
    assert result.cases[0].systems["B some"].seconds == [1.0] * 3
    bench = Bench("b", "b", "n", lambda _: [replace(CASE, x=2)], lambda _: [able], lambda _: [])
    result = run_bench(bench, RunOptions(quick=True), Console(file=StringIO()))
    assert result.cases[0].systems["B some"] == SystemResult("left out", reason="too large")
    out = StringIO()
    print_result(result, Console(file=out, width=200))
    assert "B some left out: too large" in out.getvalue()
    result.raise_if_incomplete()


def test_missing_packages_of_an_environment_are_reported_once(
    scripted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = SystemProcesses.__init__

    def lacking(self: SystemProcesses, system: System, python: str, device: str) -> None:
        if system.peer:
            raise PeerNotInstalled(f"No module named {python!r}")
        start(self, system, python)

    monkeypatch.setattr(SystemProcesses, "__init__", lacking)
    missing = System("B", "nowhere:b", peer="b")
    bench = Bench(
        "b", "b", "n", lambda _: [CASE], lambda _: [scripted("A own"), missing], lambda _: []
    )
    options = RunOptions(quick=True, pythons=("dask", "heat", "dask"))
    result = run_bench(bench, options, Console(file=StringIO()))
    assert result.absent == {"B": "No module named 'dask'; No module named 'heat'"}


def test_some_calls_of_a_slow_system_stand_for_all() -> None:
    made: list[int] = []
    contestant = RepeatedContestant({}, lambda case: made.append, lambda case, result: 0.0)
    for case, calls in (({"repeats": 6}, 6), ({"repeats": 6, "calls": 2}, 2)):
        contestant.prepare(case)
        made.clear()
        assert contestant.round() >= 0
        assert made == [calls]


def test_work_is_repeated_until_it_is_warm(monkeypatch: pytest.MonkeyPatch) -> None:
    now, made = [0.0], []

    def work(times: int) -> None:
        now[0] += 5.0 if not made else 1.0
        made.append(times)

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    contestant = RepeatedContestant({}, lambda case: work, lambda case, result: 0.0, 8.0)
    assert contestant.prepare({"repeats": 1}) == {"first_seconds": 5.0}
    assert made == [1] * 4


def test_one_failing_process_ends_the_system(scripted: Any) -> None:
    result = run(scripted("A two", processes=2, fails_in="round", fails_on=1), cases=2)
    reasons = [case.systems["A two"].reason for case in result.cases]
    assert all("cannot go round" in reason for reason in reasons)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_system_that_died_is_started_again(scripted: Any, processes: int) -> None:
    system = scripted("A own", processes=processes)
    fatal, usual = (replace(CASE, name=n, parameters=p) for n, p in CASES_OF_A_DEATH.items())
    bench = Bench("b", "b", "n", lambda _: [fatal, usual], lambda _: [system], lambda _: [])
    result = run_bench(bench, RunOptions(quick=True), Console(file=StringIO()))
    states = [case.systems["A own"].state for case in result.cases]
    assert states == ["failed", "measured"]


CASES_OF_A_DEATH = {"fatal": {"fails_in": "death"}, "usual": {}}


def test_a_system_that_cannot_start_fails_in_every_case(scripted: Any) -> None:
    result = run(System("broken", "bench_contestants:broken"), scripted("A own"), cases=2)
    for case in result.cases:
        assert case.systems["A own"].state == "measured"
        assert case.systems["broken"].state == "failed"
        assert "broken from the start" in case.systems["broken"].reason
    assert result.absent == {}
    with pytest.raises(MagmathError, match="broken failed in 'case'"):
        result.raise_if_incomplete()


def interrupt_second_case(monkeypatch: pytest.MonkeyPatch, then: Callable[[], None]) -> None:
    """Ctrl-C when a system is made ready for the second time; `then` is called just before."""
    prepare, prepared = SystemProcesses.prepare, list[Case]()

    def interrupted(processes: SystemProcesses, case: Case) -> Any:
        prepared.append(case)
        if len(prepared) == 2:
            then()
            raise KeyboardInterrupt
        return prepare(processes, case)

    monkeypatch.setattr(SystemProcesses, "prepare", interrupted)


def test_an_interrupted_run_keeps_what_it_has(
    scripted: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    interrupt_second_case(monkeypatch, lambda: None)
    result = run(scripted("A own"), cases=2)
    assert result.cases[0].systems["A own"].seconds == [1.0] * 3
    save_result(result, tmp_path / "result.json")
    data = json.loads((tmp_path / "result.json").read_text())
    assert data["interrupted"]
    assert len(data["cases"]) == 1
    with pytest.raises(KeyboardInterrupt):
        result.raise_if_incomplete()


def test_a_run_that_is_interrupted_in_its_first_case_has_no_result(
    scripted: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(processes: SystemProcesses, case: Case) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(SystemProcesses, "prepare", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(scripted("A own"))


def test_a_second_ctrl_c_loses_nothing(scripted: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It comes while the systems are stopped, as an impatient user's does."""
    stop = SystemProcesses.stop

    def interrupted(processes: SystemProcesses, patience: float = 0.0) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        stop(processes, patience)

    interrupt_second_case(
        monkeypatch, lambda: monkeypatch.setattr(SystemProcesses, "stop", interrupted)
    )
    result = run(scripted("A own"), cases=2)
    assert result.interrupted
    assert len(result.cases) == 1
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_stopping_ends_the_processes_and_leaves_nothing(scripted: Any) -> None:
    import sys

    processes = SystemProcesses(scripted("A two", processes=2), sys.executable)
    children, folder = list(processes._children), Path(processes._folder.name)
    assert folder.is_dir()
    processes.stop()
    processes.stop()
    assert all(child.poll() is not None for child in children)
    assert not folder.exists()


@pytest.mark.parametrize(("losses", "agree"), [((2.0, 2.001), True), ((2.0, 2.1), False)])
def test_losses_are_compared(scripted: Any, losses: tuple[float, float], agree: bool) -> None:
    result = run(
        scripted("A own", loss=losses[0]), scripted("B peer", loss=losses[1]), scripted("C none")
    )
    assert (result.cases[0].disagreement() == {}) == agree
    if not agree:
        with pytest.raises(MagmathError, match="results differ"):
            result.raise_if_incomplete()
    out = StringIO()
    print_result(result, Console(file=out, width=200))
    assert ("results differ" in out.getvalue()) != agree


def test_nan_loss_is_a_disagreement(scripted: Any) -> None:
    assert run(scripted("A own", loss=float("nan"))).cases[0].disagreement()


def test_memory_is_that_of_new_processes(scripted: Any) -> None:
    against = Comparison("memory", "A own", ("B two",), constant_mark(1.0), quantity="peak_bytes")
    result = run(
        scripted("A own", megabytes=50),
        scripted("B two", processes=2, megabytes=20),
        scripted("C bad", megabytes=0, fails_in="memory"),
        comparisons=(against,),
        measures_memory=True,
    )
    (case,) = result.cases
    peaks = {name: system.peak_bytes for name, system in case.systems.items()}
    assert peaks == {"A own": [50_000_000], "B two": [60_000_000], "C bad": []}
    assert case.figures[0].rounds == [1.2]
    assert "cannot be measured" in case.systems["C bad"].reason
    assert "peak of resident memory" in _printed(result)
    assert "MB" not in _printed(run(scripted("A own")))


def _printed(result: BenchResult) -> str:
    out = StringIO()
    print_result(result, Console(file=out, width=200))
    return out.getvalue()


@pytest.mark.parametrize(
    ("peaks", "text"),
    [
        ([], "–"),
        ([12_345_678], "12"),
        ([1_000_000_000] * 2, "1,000"),
        ([1_000_000, 9_000_000, 2_000_000], "2 (1 to 9)"),
    ],
)
def test_memory_is_told_in_megabytes(peaks: list[int], text: str) -> None:
    assert memory_text(peaks) == text


def test_excess_is_a_difference_in_seconds() -> None:
    systems = {
        "own": SystemResult("measured", seconds=[1.0, 1.5, 2.0]),
        "base": SystemResult("measured", seconds=[0.75, 1.0, 1.0]),
        "gone": SystemResult("failed"),
    }
    asked = [
        Comparison("over", "own", ("base", "gone"), constant_mark(0.4), "excess"),
        Comparison("nothing", "own", ("gone",), constant_mark(0.4)),
    ]
    (figure,) = compare_systems(CASE, systems, asked)
    assert figure.rounds == [0.25, 0.5, 1.0]
    assert figure.has_reached_mark is False


@pytest.mark.parametrize("width", [60, 80, 250])
def test_tables_are_whole_in_any_terminal(scripted: Any, width: int) -> None:
    names = [f"{letter} system of a long name" for letter in "ABCDE"]
    against = Comparison("all the others", names[0], tuple(names[1:]), constant_mark(1.0))
    case = replace(CASE, name="2048×2048×2048 float32, columns @ columns")
    systems = [scripted(name, 2.0) for name in names]
    bench = Bench("b", "b", "n", lambda _: [case], lambda _: systems, lambda _: [against])
    out = StringIO()
    result = run_bench(bench, RunOptions(quick=True), Console(file=StringIO()))
    print_result(result, Console(file=out, width=width))
    lines = out.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    for text in (case.name, *names, "× all the others", "1.00 (1.00–1.00)"):
        assert any(text in line for line in lines)
    side_by_side = any(all(name in line for name in names) for line in lines)
    assert side_by_side == (width == 250)
    assert (case.name in lines) != side_by_side


@pytest.mark.parametrize(
    ("rate", "unit", "text"),
    [
        (12345.6, "images/s", "12,346"),
        (12.3456, "GB/s", "12.3"),
        (1.2345, "s", "1.23 s"),
        (0.99961, "s", "1000 ms"),
        (2.7e-6, "s", "2.7 µs"),
        (3.4e-8, "s", "34 ns"),
        (0.0, "s", "0 s"),
    ],
)
def test_rates_are_told_in_three_digits(rate: float, unit: str, text: str) -> None:
    assert rate_text(rate, unit) == text


def test_seconds_are_those_of_one_unit_of_work() -> None:
    case = CaseResult(replace(CASE, unit="s"), {"own": SystemResult("measured", "", [20.0])}, [])
    assert case.rate("own") == 2.0


def test_peers_are_chosen_by_name() -> None:
    systems = BENCHES["layers"].systems(RunOptions())
    assert choose_systems(systems, ("all",)) == systems
    assert [s.name for s in choose_systems(systems, ("none",))] == ["magmath", "bare GEMMs"]
    assert {s.peer for s in choose_systems(systems, ("torch",))} == {"", "torch"}
    with pytest.raises(OptionError, match=r"unknown peers keras.*jax, tensorflow, torch"):
        choose_systems(systems, ("keras", "jax"))


def test_cases_are_chosen_by_a_part_of_their_names() -> None:
    cases = BENCHES["collectives"].cases(RunOptions())
    assert choose_cases(cases, ()) == cases
    names = [case.name for case in choose_cases(cases, ("allgather 4 ", "to_all 32"))]
    assert names == ["allgather 4 KB", "allgather 4 MB", "all_to_all 32 KB"]
    with pytest.raises(OptionError, match=r"'gather 5' in its name; there are\n  allreduce 4 KB\n"):
        choose_cases(cases, ("gather 5",))


@pytest.mark.parametrize("name", BENCHES)
@pytest.mark.parametrize("quick", [True, False])
def test_every_benchmark_is_consistent(name: str, quick: bool) -> None:
    bench, options = BENCHES[name], RunOptions(quick=quick)
    cases, systems = bench.cases(options), {s.name for s in bench.systems(options)}
    assert len({case.name for case in cases}) == len(cases)
    json.dumps([case.parameters for case in cases])
    comparisons = bench.comparisons(options)
    for comparison in comparisons:
        assert {comparison.own, *comparison.others} <= systems
    # The marks of simulated steps are those of `simulation_accuracy`.
    marked = any(comparison.mark(case) for comparison in comparisons for case in cases)
    assert marked or bench.plot == "simulation"


def test_plot_is_drawn(scripted: Any, tmp_path: Path) -> None:
    result = run(scripted("A own", 2.0), scripted("B peer", 5.0), cases=2)
    plot_result(result, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("unit", ["s", "GB/s"])
@pytest.mark.parametrize("without", [0, 1])
def test_plot_omits_cases_in_which_a_system_is_not_measured(
    unit: Any, without: int, tmp_path: Path
) -> None:
    cases = [
        CaseResult(
            replace(CASE, name=f"case {x}", unit=unit, x=x + 1),
            {
                "own": SystemResult("measured", seconds=[1.0]),
                "peer": SystemResult("left out")
                if x == without
                else SystemResult("measured", seconds=[2.0]),
            },
            [],
        )
        for x in range(2)
    ]
    machine: dict[str, str | int] = {"cpu": "a processor", "cores": 2}
    result = BenchResult(
        "test", "a test", "n", True, 1, "", "", None, machine, {}, {}, {}, False, cases
    )
    plot_result(result, tmp_path / "plot.svg")
    text = (tmp_path / "plot.svg").read_text()
    assert "<!-- own -->" in text
    assert "<!-- peer -->" in text


def test_plot_has_a_panel_for_each_group_and_a_place_for_each_case(tmp_path: Path) -> None:
    """Cases of several groups may alternate, and x may only number them."""
    cases = [
        CaseResult(
            replace(CASE, name=f"{network}, batch {batch}", group=f"batch {batch}", x=x),
            {"own": SystemResult("measured", seconds=[10.0 ** (x + batch)])},
            [],
        )
        for x, network in enumerate(("first", "second", "third", "fourth"))
        for batch in (1, 2)
    ]
    result = BenchResult(
        "test", "a test", "network", True, 1, "", "", None, {"cpu": "a processor", "cores": 2},
        {}, {}, {}, False, cases,
    )  # fmt: skip
    plot_result(result, tmp_path / "plot.svg")
    text = (tmp_path / "plot.svg").read_text()
    for group in ("batch 1", "batch 2"):
        assert text.count(f"<!-- {group} -->") == 1
    for case in cases:
        assert text.count(f"<!-- {case.name} -->") == 1


# The problem, and that a peer solves it


def test_problem_is_the_same_for_everyone() -> None:
    case = training_case(100, 32, 2, 600)
    problem = Problem.of(case.parameters | {"workers": 2})
    assert problem.sizes == [784, 32, 32, 10]
    assert problem.flops_per_epoch == 2 * 600 * (3 * (784 * 32 + 32 * 32 + 320) - 784 * 32)
    images, labels = problem.data()
    assert images.shape == (600, 784)
    assert labels.max() == 9
    np.testing.assert_array_equal(images, problem.data()[0])
    for (matrix, bias), (again, _) in zip(problem.weights(), problem.weights(), strict=True):
        np.testing.assert_array_equal(matrix, again)
        assert not bias.any()


def loss_after(problem: Problem, steps: int) -> float:
    """The problem's loss after some steps of SGD, from the definition, in float64."""
    images, labels = problem.data()
    weights = [(w.astype(np.float64), b.astype(np.float64)) for w, b in problem.weights()]

    def forward(x: Any) -> tuple[list[Any], Any]:
        inputs = [x.astype(np.float64)]
        for w, b in weights[:-1]:
            inputs.append(np.maximum(inputs[-1] @ w + b, 0))
        logits = inputs[-1] @ weights[-1][0] + weights[-1][1]
        exponentials = np.exp(logits - logits.max(1, keepdims=True))
        return inputs, exponentials / exponentials.sum(1, keepdims=True)

    for step in range(steps):
        part = slice(step * problem.batch, (step + 1) * problem.batch)
        inputs, slope = forward(images[part])
        slope[np.arange(problem.batch), labels[part]] -= 1
        slope /= problem.batch
        for layer in reversed(range(len(weights))):
            (w, b), x = weights[layer], inputs[layer]
            weights[layer] = (
                w - problem.learning_rate * x.T @ slope,
                b - problem.learning_rate * slope.sum(0),
            )
            slope = (slope @ w.T) * (x > 0)
    shares = forward(images)[1]
    return float(-np.log(shares[np.arange(len(labels)), labels]).mean())


def test_torch_solves_the_problem() -> None:
    from magmath.bench.peers.torch import LoopTrainer

    problem = Problem(batch=50, width=16, layers=2, images=300, epochs=1)
    trainer = LoopTrainer(problem)
    trainer.train(1)
    assert trainer.loss() == pytest.approx(loss_after(problem, 6), rel=1e-5)
    trainer.reset()
    assert trainer.loss() == pytest.approx(loss_after(problem, 0), rel=1e-5)


def test_jax_solves_the_problem() -> None:
    pytest.importorskip("jax", reason="JAX comes with the extra 'bench'")
    from magmath.bench.peers.jax import JaxTrainer

    problem = Problem(batch=50, width=16, layers=2, images=300, epochs=1)
    for unroll in (0, 1, 4):
        trainer = JaxTrainer(problem, unroll)
        trainer.train(1)
        assert trainer.loss() == pytest.approx(loss_after(problem, 6), rel=1e-5)


def test_roof_computes_the_products_of_the_step() -> None:
    import torch

    from magmath.bench.contestants.gemm_roofline import _candidates

    random = np.random.default_rng(0)
    a, b = (torch.from_numpy(random.standard_normal((5, 7), dtype=np.float32)) for _ in range(2))
    for left, right in ((a, b.T), (a.T, b), (a.contiguous(), b.T.contiguous())):
        out = torch.zeros(left.shape[0], right.shape[1])
        for name, call in _candidates(left, right, out).items():
            out.zero_()
            returned = call()
            result = returned if name == "oneDNN" else out  # the others write into `out`
            np.testing.assert_allclose(result, left.numpy() @ right.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", BENCHES)
def test_every_contestant_exists(name: str) -> None:
    """A library that is not installed leaves a system out; a wrong name would do so silently."""
    for system in BENCHES[name].systems(RunOptions()):
        module, function = system.factory.split(":")
        spec = find_spec(module)
        assert spec is not None, system.factory
        assert spec.origin is not None, system.factory
        definitions = ast.walk(ast.parse(Path(spec.origin).read_text()))
        functions = {node.name for node in definitions if isinstance(node, ast.FunctionDef)}
        assert function in functions, system.factory


def test_a_missing_module_of_magmath_is_a_failure(scripted: Any) -> None:
    wrong = System("wrong", "magmath.bench.peers.no_such_module:numpy")
    result = run(scripted("A own"), wrong)
    assert not result.absent
    assert result.cases[0].systems["wrong"].state == "failed"


def test_ratios_of_several_cases_are_summarized() -> None:
    figures = {"a": 2.0, "b": 0.5}
    cases = [
        CaseResult(replace(CASE, name=name), {}, [ComparisonResult("best", "ratio", [x], 1.0)])
        for name, x in figures.items()
    ]
    result = BenchResult("test", "a test", "n", True, 1, "", "", None, {}, {}, {}, {}, False, cases)
    (summary,) = result.summaries()
    assert summary == RatioSummary("g", "best", pytest.approx(1.0), 0.5, "b")
    assert result.as_data()["summaries"][0]["worst_case"] == "b"

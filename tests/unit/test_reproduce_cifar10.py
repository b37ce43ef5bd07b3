"""The scaling experiment of SHM-Learn-Dist, in a small form on workers that are threads."""

from __future__ import annotations

import math
import subprocess
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import magmath as mm
from magmath.bench.peer_processes import SystemProcesses
from magmath.data import Dataset
from magmath.errors import MissingDataError
from magmath.reproduce import (
    Options,
    image_task,
    shm_cifar10,
    shm_cifar10_findings,
    shm_cifar10_training,
)
from magmath.reproduce.ddp import DdpRun
from magmath.reproduce.image_task import ImageTask
from magmath.reproduce.section import Finding, Plot, Table
from magmath.reproduce.shm_cifar10 import run
from magmath.reproduce.shm_cifar10_training import (
    STAGES,
    WORKERS,
    CifarProblem,
    CifarRun,
    problem_of,
    train,
    train_peer,
)


def small(data: Dataset, images: int) -> CifarProblem:
    return CifarProblem(ImageTask(data, "mlp", f"A reduced form: {data.name}"), images)


def test_the_reduced_form_runs_on_every_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = small(mm.data.load("digits"), 4000)
    monkeypatch.setattr(shm_cifar10, "problem_of", lambda options: problem)
    monkeypatch.setattr(mm, "init", partial(mm.init, launcher="threads"))
    monkeypatch.setattr(shm_cifar10_training, "WARM_SECONDS", 0.1)
    section = run(Options(quick=True, peers=("none",)))
    results, stages = section.of_kind(Table)
    assert [row[0] for row in results.rows] == list(WORKERS)
    assert [row[0] for row in stages.rows] == list(WORKERS)
    for row in results.rows:
        loss, accuracy, seconds = row[3:6]
        assert 0 < loss < 2.3, "it has learnt more than chance"
        assert 30 < accuracy <= 100
        assert seconds > 0
    for result in (section.data[str(workers)] for workers in WORKERS):
        assert len(result["losses"]) == len(result["accuracies"]) == len(result["seconds"]) == 3
        assert result["seconds"] == sorted(result["seconds"])
        assert all(result["stages"][stage] > 0 for stage in STAGES)
    assert len(section.of_kind(Finding)) == 4
    loss_plot, accuracy_plot, bars = section.of_kind(Plot)
    assert loss_plot.figure.axes[0].get_ylabel() == "mean loss of an epoch"
    assert accuracy_plot.figure.axes[0].get_ylabel() == "test accuracy, %"
    shown = [line.get_ydata()[-1] for line in accuracy_plot.figure.axes[0].lines]
    np.testing.assert_allclose(shown, [row[4] for row in results.rows])
    assert bars.figure.axes[0].get_ylabel() == "ms"
    assert bars.caption.startswith("Milliseconds")
    assert "digits" in section.parts[0]


def test_ddp_has_the_same_losses_on_the_same_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """On two processes, with a last batch that is smaller and odd."""
    monkeypatch.setattr(mm, "init", partial(mm.init, launcher="threads"))
    monkeypatch.setattr(shm_cifar10_training, "REPEATS", 1)
    monkeypatch.setattr(shm_cifar10_training, "WARM_SECONDS", 0.1)
    digits = mm.data.load("digits")
    part = replace(
        digits, train_images=digits.train_images[:333], train_labels=digits.train_labels[:333]
    )
    problem = small(part, 999)
    ours, theirs = train(problem, 2), train_peer(problem, 2)
    np.testing.assert_allclose(theirs.losses, ours.losses, rtol=1e-4)
    np.testing.assert_allclose(theirs.accuracies, ours.accuracies, atol=0.01)
    assert theirs.seconds == sorted(theirs.seconds)
    runs, peers = {2: ours}, {2: theirs}
    same = shm_cifar10_findings._same_losses(runs, peers)
    assert same.agrees
    wrong = {2: replace(theirs, losses=[2 * loss for loss in theirs.losses])}
    assert not shm_cifar10_findings._same_losses(runs, wrong).agrees
    assert shm_cifar10_findings._peer_speed(runs, {2: replace(theirs, seconds=[1e3])}).agrees
    assert len(shm_cifar10._peer_table(runs, peers).rows) == 1


def constant_run(seconds: float, losses: list[float]) -> CifarRun:
    return CifarRun(
        [seconds] * len(losses), losses, [0.5] * len(losses), dict.fromkeys(STAGES, 1.0), 9
    )


def test_losses_that_part_after_the_first_epoch_are_explained() -> None:
    runs = {1: constant_run(1.0, [2.0, 0.5]), 8: constant_run(1.0, [2.0, 0.9])}

    def compared(first: float, second: float) -> Finding:
        last = {1: first, 8: second}
        peers = {w: DdpRun([1.0, 1.0], [2.0, loss], [0.5, 0.5]) for w, loss in last.items()}
        return shm_cifar10_findings._same_losses(runs, peers)

    same, parted = compared(0.501, 0.9), compared(0.5, 0.6)
    assert same.agrees
    assert not same.reason
    assert parted.agrees, "the first epoch has the same losses"
    assert "5.0e-01" in parted.ours
    assert "unstable at this learning rate" in parted.reason


@pytest.mark.parametrize("workers", [1, 8])
@pytest.mark.parametrize("losses", [[math.nan, math.nan], [2.0, math.nan]])
@pytest.mark.parametrize("is_ours", [True, False])
def test_losses_that_are_not_numbers_differ(
    workers: int, losses: list[float], is_ours: bool
) -> None:
    """Training has diverged; that does not end the experiment, and no other run hides it."""
    usual = [2.0, 0.5]
    ours = {w: losses if is_ours and w == workers else usual for w in (1, 8)}
    others = {w: usual if is_ours or w != workers else losses for w in (1, 8)}
    runs = {w: constant_run(1.0, values) for w, values in ours.items()}
    peers = {w: DdpRun([1.0, 1.0], values, [0.5, 0.5]) for w, values in others.items()}
    result = shm_cifar10_findings._same_losses(runs, peers)
    assert result.agrees is (losses[0] == 2.0)
    assert "unstable at this learning rate" in result.reason
    assert "nan" in result.ours


def test_the_numbers_of_workers_with_which_ddp_is_faster_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shm_cifar10_findings, "processor_count", lambda: 2)
    runs = {workers: constant_run(2.0, [1.0]) for workers in WORKERS}

    def reason(*faster: int) -> str:
        peers = {w: DdpRun([1.0 if w in faster else 3.0], [1.0], [0.5]) for w in WORKERS}
        result = shm_cifar10_findings._peer_speed(runs, peers)
        assert result.agrees is (not faster)
        return result.reason

    assert reason() == ""
    assert reason(1).startswith("DDP is faster with 1 worker. ")
    assert "share" not in reason(2), "two workers have two cores"
    assert reason(2, 4, 8).startswith(
        "DDP is faster with 2 workers, 4 workers and 8 workers; above 2 workers, several share one"
    )


def test_an_interrupt_ends_the_processes_of_ddp(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    started: list[subprocess.Popen[bytes]] = []

    def interrupted(self: SystemProcesses) -> float:
        started.extend(self._children)
        for channel in self._channels:
            channel.send({"do": "round"})  # they compute while the interrupt arrives
        raise KeyboardInterrupt

    monkeypatch.setattr(SystemProcesses, "round", interrupted)
    problem = small(mm.data.load("digits"), 200_000)
    with pytest.raises(KeyboardInterrupt):
        train_peer(problem, 2)
    assert len(started) == 2
    assert all(child.poll() is not None for child in started), "no process is left"
    assert not [*tmp_path.iterdir()], "the data are removed"


def finding(runs: dict[int, CifarRun], start: str) -> Finding:
    (result,) = [
        f for f in shm_cifar10_findings.findings(runs, {}) if f.statement.startswith(start)
    ]
    return result


@pytest.mark.parametrize("falls", [True, False])
def test_findings_follow_the_numbers(falls: bool) -> None:
    runs = {
        workers: CifarRun(
            [1.0, 8.0 / workers],
            [2.0, 1.0],
            [0.1, (0.9 - 0.05 * workers) if falls else 0.5 + 0.01 * workers],
            dict.fromkeys(STAGES, 0.001 * (workers if falls else 1)),
            1000,
        )
        for workers in WORKERS
    }
    assert finding(runs, "For the same images").agrees is falls
    assert finding(runs, "The time of averaging").agrees is falls
    for result, average in zip(runs.values(), (0.001, 0.01, 0.05, 0.113), strict=True):
        result.stages["average"] = average
    assert not finding(runs, "The time of averaging").agrees, "113 × is not linear"
    assert finding(runs, "Gathering is faster").agrees is False


def test_a_folder_without_the_data_set_is_an_error(tmp_path: Path) -> None:
    """It names what was expected and what was found; only without --data another set is taken."""
    (tmp_path / "photo.jpg").write_bytes(b"no data")
    with pytest.raises(
        MissingDataError, match=r"needs a folder with data_batch_1.* has photo\.jpg"
    ):
        problem_of(Options(data=tmp_path))
    assert problem_of(Options(quick=True)).data.name in ("cifar-10", "mnist-5k", "digits")


def write_cifar_10(folder: Path, count: int) -> None:
    """Write files in the binary format of CIFAR-10 with `count` random images each."""
    random = np.random.default_rng(0)
    names = [*[f"data_batch_{i}.bin" for i in range(1, 6)], "test_batch.bin"]
    for name in names:
        records = random.integers(0, 256, (count, 3073), np.uint8)
        records[:, 0] = np.arange(count) % 10
        records.tofile(folder / name)


def test_a_quick_run_takes_a_part_of_cifar_10(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """AlexNet on all images would take an hour."""
    write_cifar_10(tmp_path, 20)
    monkeypatch.setattr(image_task, "QUICK_TRAINING", 60)
    monkeypatch.setattr(image_task, "QUICK_TEST", 10)
    whole = problem_of(Options(data=tmp_path)).task
    assert (whole.network, whole.is_paper) == ("alexnet_cifar", True)
    assert whole.data.train_images.shape == (100, 3, 32, 32)
    quick = problem_of(Options(quick=True, data=tmp_path)).task
    assert (quick.network, quick.is_paper) == ("lenet5", False)
    assert len(quick.data.train_labels) == 60
    assert len(quick.data.test_labels) == 10
    assert "60 of the 100 training images of CIFAR-10, and the network lenet5" in quick.text
    scores = quick.build(0.1, seed=0).predict(quick.data.test_images)
    assert np.asarray(scores).shape == (10, 10)

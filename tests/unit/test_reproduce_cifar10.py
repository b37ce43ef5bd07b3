"""The scaling experiment of SHM-Learn-Dist, in a small form on workers that are threads."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

import magmath as mm
from magmath.errors import MissingDataError
from magmath.reproduce import Options, shm_cifar10
from magmath.reproduce.section import Finding, Table
from magmath.reproduce.shm_cifar10 import STAGES, WORKERS, Problem, Run, problem_of, run


def test_the_reduced_form_runs_on_every_number_of_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem(mm.data.load("digits"), "mlp", 4000, is_paper=False)
    monkeypatch.setattr(shm_cifar10, "problem_of", lambda options: problem)
    monkeypatch.setattr(mm, "init", partial(mm.init, launcher="threads"))
    section = run(Options(quick=True))
    results, stages = section.of_kind(Table)
    assert [row[0] for row in results.rows] == list(WORKERS)
    assert [row[0] for row in stages.rows] == list(WORKERS)
    for row in results.rows:
        loss, accuracy, seconds = row[3:6]
        assert 0 < loss < 2.3, "it has learnt more than chance"
        assert 30 < accuracy <= 100
        assert seconds > 0
    for found in section.data.values():
        assert len(found["losses"]) == len(found["accuracies"]) == len(found["seconds"]) == 3
        assert found["seconds"] == sorted(found["seconds"])
        assert all(found["stages"][stage] > 0 for stage in STAGES)
    assert len(section.of_kind(Finding)) == 4
    assert "digits" in section.parts[0]


def finding(runs: dict[int, Run], start: str) -> Finding:
    (found,) = [f for f in shm_cifar10._findings(runs) if f.statement.startswith(start)]
    return found


@pytest.mark.parametrize("falls", [True, False])
def test_findings_follow_the_numbers(falls: bool) -> None:
    runs = {
        workers: Run(
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
    assert finding(runs, "Gathering is faster").agrees is False


def test_a_folder_without_the_data_set_is_an_error(tmp_path: Path) -> None:
    """It names what was expected and what was found; only without --data another set is taken."""
    (tmp_path / "photo.jpg").write_bytes(b"no data")
    with pytest.raises(
        MissingDataError, match=r"needs a folder with data_batch_1.* has photo\.jpg"
    ):
        problem_of(Options(data=tmp_path))
    assert problem_of(Options(quick=True)).data.name in ("cifar-10", "mnist-5k", "digits")

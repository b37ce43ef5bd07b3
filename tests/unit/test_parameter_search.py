"""Parameter search: the metric, early stopping, continuation after a kill, and invalid input."""

from __future__ import annotations

import csv
import json
import math
import sqlite3
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import magmath as mm
from engines import current
from magmath.cli.main import main
from magmath.engine import session
from magmath.errors import DataError, MagmathError, MissingDataError, OptionError
from magmath.reproduce import Options, shm_search
from magmath.reproduce.section import Table
from magmath.train import EpochRecord, LossCurve, SearchResults, Trainer, Trial
from magmath.train.parameter_search import histograms, matrices
from magmath.train.parameter_search.space import Amount, Space
from magmath.train.parameter_search.trial_run import TrialRun

losses = st.lists(st.floats(0, 5), min_size=1, max_size=12)


def data(count: int = 96) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    x = generator.normal(size=(count, 6)).astype(np.float32)
    return x, (x[:, 0] > 0).astype(np.int64) + (x[:, 1] > 0)


def build(learning_rate: float = 0.1) -> Any:
    layers = [mm.nn.Dense(8, activation="relu"), mm.nn.Dense(3)]
    return mm.nn.NeuralNetwork(layers, optimizer=mm.optim.GradientDescent(learning_rate))


SPACE = {"batch_per_worker": [8, 16], "learning_rate": [0.1, 0.5, 1e30]}


def searched(**options: Any) -> SearchResults:
    options = {"images": 480, "threshold": 1.2, "early_stopping": False, **options}
    return mm.train.search(build, *data(), options.pop("space", SPACE), **options)


def not_json(name: str) -> None:
    raise AssertionError(f"{name} is not JSON")


# the metric ---------------------------------------------------------------------------------------


@given(st.lists(losses, min_size=1, max_size=4), st.integers(1, 5))
@settings(deadline=None)
def test_the_area_is_the_integral_and_never_falls(epochs: list[list[float]], points: int) -> None:
    curve, areas = LossCurve(), [0.0]
    for epoch in epochs:
        curve = curve.extended(epoch, 2.0, points)
        areas.append(curve.area)
    times = np.array([0.0, *curve.seconds])
    heights = np.array([curve.losses[0], *curve.losses])
    assert math.isclose(curve.area, np.trapezoid(heights, times), rel_tol=1e-9, abs_tol=1e-9)
    assert math.isclose(curve.seconds[-1], 2.0 * len(epochs))
    assert all(later >= earlier - 1e-9 for earlier, later in pairwise(areas))
    assert curve.minimum >= min(map(min, epochs)) - 1e-9


class Recorded:
    """A network and its trainer, whose epochs have given losses and last a second each."""

    def __init__(self, epochs: list[list[float]]) -> None:
        self.epochs, self.is_stopped = epochs, False
        self.history = SimpleNamespace(step_losses=[], records=[])

    def fit(self, *data: Any, epochs: int, callbacks: list[TrialRun], **options: Any) -> None:
        for losses in self.epochs[:epochs]:
            self.history.step_losses += losses
            self.history.records.append(None)
            callbacks[0].on_epoch_end(self, SimpleNamespace(seconds=1.0))  # type: ignore[arg-type]
            if self.is_stopped:
                return

    def stop(self) -> None:
        self.is_stopped = True


def run_of(number: int, epochs: list[list[float]], limit: float) -> Trial:
    trial = Trial(number, {"batch_per_worker": 1}, "finished", LossCurve())
    run = TrialRun(Recorded(epochs), trial, (), len(epochs), 4, lambda _: limit)  # type: ignore[arg-type]
    run.train(len(epochs))
    return run.trial


@given(st.lists(st.lists(losses, min_size=3, max_size=3), min_size=1, max_size=6), st.floats(0, 5))
@settings(deadline=None)
def test_stopping_at_the_best_area_does_not_change_the_winner(
    trials: list[list[list[float]]], threshold: float
) -> None:
    """Both searches on the same curves, each epoch lasting a second."""

    def winner(stops: bool) -> Trial | None:
        done: list[Trial] = []
        for number, epochs in enumerate(trials):
            steps = min(map(len, epochs))
            best = SearchResults(tuple(done), threshold, 1).best
            limit = best.curve.area if stops and best is not None else math.inf
            done.append(run_of(number, [epoch[:steps] for epoch in epochs], limit))
        return SearchResults(tuple(done), threshold, 1).best

    assert winner(stops=True) == winner(stops=False)


def test_a_trial_is_stopped_before_its_last_epoch_or_not_at_all() -> None:
    high = [[2.0, 2.0]] * 3
    assert run_of(0, high, math.inf).state == "finished"
    early, late = run_of(1, high, 3.0), run_of(2, high, 5.0)
    assert (early.state, early.curve.seconds[-1]) == ("stopped", 2.0)
    assert (late.state, late.curve.seconds[-1]) == ("finished", 3.0), "nothing was left to stop"


@given(st.integers(1, 400), st.lists(st.sampled_from([1, 2, 3, 4, 6, 8]), min_size=1, unique=True),
       st.integers(8, 90))  # fmt: skip
@settings(deadline=None)
def test_every_trial_sees_the_images_in_whole_steps(
    images: int, batches: list[int], available: int
) -> None:
    space = Space.of({"batch_per_worker": batches, "workers": [0, 1]})
    fits = [e for e in range(1, images + 1)
            if images % e == 0 and images // e <= available
            and all(images // e % b == 0 for b in batches)]  # fmt: skip
    if not fits:
        with pytest.raises(OptionError, match="cannot be divided"):
            Amount.of(space, images, available)
        return
    assert Amount.of(space, images, available) == Amount(fits[0], images // fits[0])


def test_values_may_be_those_of_numpy() -> None:
    given = {
        "batch_per_worker": np.array([16, 32]),
        "learning_rate": np.array([0.1, 0.25, 0.5]),
        "workers": [np.int64(1)],
    }
    space = Space.of(given)
    plain = Space.of(
        {"batch_per_worker": [16, 32], "learning_rate": [0.1, 0.25, 0.5], "workers": [1]}
    )
    assert space == plain
    assert json.loads(json.dumps(space.settings())) == plain.settings()


def test_the_reports_numbers() -> None:
    space = Space.of({"batch_per_worker": [16, 32, 64, 128, 256, 512], "workers": [1, 2, 4, 8]})
    amount = Amount.of(space, 307_200, 50_000)
    assert amount.epochs * amount.samples == 307_200
    assert amount.samples % (512 * 8) == 0


# trials -------------------------------------------------------------------------------------------


def test_a_grid_is_compared_by_area_above_the_threshold(tmp_path: Path) -> None:
    results = searched()
    assert len(results.trials) == 6
    states = {
        (t.settings["batch_per_worker"], t.settings["learning_rate"]): t.state
        for t in results.trials
    }
    assert states[8, 1e30] == states[16, 1e30] == "diverged"
    assert states[8, 0.1] == states[16, 0.5] == "finished"
    best = results.best
    assert best is not None
    for trial in results.trials:
        if trial.is_admissible(1.2):
            assert trial.curve.area >= best.curve.area
    results.save(tmp_path / "r.csv")
    results.save(tmp_path / "r.json")
    rows = list(csv.DictReader((tmp_path / "r.csv").read_text().splitlines()))
    assert [row["state"] for row in rows] == [t.state for t in results.trials]
    stored = json.loads((tmp_path / "r.json").read_text(), parse_constant=not_json)
    assert stored["trials"][2]["minimum_loss"] is None, "it diverged in the first epoch"
    assert stored["best"] == best.number
    assert len(stored["trials"][0]["curve"]["losses"]) == len(results.trials[0].curve.losses)
    assert len(histograms(results).axes[0].patches) == 4, "diverged trials have no bar"
    marks = [text.get_text() for text in matrices(results).axes[0].texts]
    assert marks == ["×", "×"], "they are marked in the matrix"


def test_trials_are_reproducible_and_independent_of_their_order() -> None:
    once = searched(space={"batch_per_worker": [8], "learning_rate": [0.1, 0.5]})
    again = searched(space={"batch_per_worker": [8], "learning_rate": [0.5]})
    assert once.trials[1].curve.losses == again.trials[0].curve.losses


@pytest.mark.parametrize("seed", [None, 4])
@pytest.mark.parametrize("metrics", [None, ["top_2_accuracy"]])
def test_trainers_keep_what_the_builder_gives_them(
    metrics: list[str] | None, seed: int | None
) -> None:
    layouts, names = set(), set()

    def record_epoch(record: EpochRecord) -> None:
        names.update(record.metrics)
        layouts.add(networks[-1].history.strategy)

    def built() -> Any:
        module = mm.nn.Sequential(mm.nn.Dense(8), mm.nn.Dense(3))
        net = mm.nn.NeuralNetwork(module)
        net.trainer = Trainer(
            module, strategy="model-input", metrics=metrics, callbacks=[record_epoch], seed=seed
        )
        networks.append(net)
        return net

    networks: list[Any] = []
    with current("shared", 2):
        mm.train.search(built, *data(), {"batch_per_worker": [48]}, images=96)
    assert layouts == {"0: input, 1: input"}
    assert names == set(metrics or ())
    assert networks[-1].seed == (0 if seed is None else seed)


def test_random_and_halving() -> None:
    some = searched(method="random", trials=3, seed=1)
    assert len(some.trials) == 3
    halved = searched(halving=2)
    states = [t.state for t in halved.trials]
    assert states.count("diverged") == 2
    assert states.count("eliminated") >= 2
    finished = [t for t in halved.trials if t.state == "finished"]
    assert finished
    shorter = [t for t in halved.trials if t.state == "eliminated"]
    assert all(len(t.curve.losses) < len(finished[0].curve.losses) for t in shorter)


@pytest.mark.skipif(find_spec("optuna") is None, reason="Optuna is not installed")
def test_optuna_proposes(tmp_path: Path) -> None:
    store = tmp_path / "s.sqlite"
    first = searched(method="optuna", trials=4, storage=store)
    assert 1 <= len(first.trials) <= 4
    again = searched(method="optuna", trials=4, storage=store)
    assert again.trials[: len(first.trials)] == first.trials


@pytest.mark.skipif(find_spec("optuna") is not None, reason="Optuna is installed")
def test_without_optuna_the_error_names_the_extra() -> None:
    with pytest.raises(OptionError, match=r"magmath\[search\]"):
        searched(method="optuna")


def test_trials_share_compiled_programs() -> None:
    """With the same batch, other learning rates compile nothing."""
    counts: list[int] = []

    def count(results: SearchResults, trial: Trial) -> None:
        if len(results.trials) > len(counts):
            counts.append(session.engine()._programs.built)

    with mm.init():
        searched(
            space={"batch_per_worker": [8, 16], "learning_rate": [0.1, 0.2, 0.5]}, on_progress=count
        )
    first, again, last = counts[:3]
    assert first == again == last
    assert counts[3] > last, "another batch is another program"
    assert counts[3] == counts[4] == counts[5]


def test_workers_are_pools_that_trials_share() -> None:
    space = {"batch_per_worker": [8], "workers": [0, 1], "learning_rate": [0.1, 0.5]}
    results = searched(space=space, device="cpu")
    assert [t.workers for t in results.trials] == [0, 0, 1, 1]
    for one, other in zip(results.trials[:2], results.trials[2:], strict=True):
        np.testing.assert_allclose(one.curve.losses, other.curve.losses, rtol=1e-4)
    assert list(results.best_by_workers) == [0, 1]


def test_plots_mark_what_was_stopped_and_nothing_that_was_not_tried() -> None:
    curve = LossCurve((1.0, 2.0), (1.0, 0.5))
    longer = LossCurve((1.0, 3.0), (2.0, 1.5))
    tried: list[tuple[int, float, Any, LossCurve]] = [
        (8, 0.1, "finished", curve), (16, 0.1, "stopped", longer), (32, 0.5, "diverged", LossCurve())
    ]  # fmt: skip
    trials = [
        Trial(i, {"batch_per_worker": batch, "learning_rate": rate}, state, result)
        for i, (batch, rate, state, result) in enumerate(tried)
    ]
    results = SearchResults(tuple(trials), 1.8, 480)
    axes = matrices(results).axes[0]
    assert {(t.get_position(), t.get_text()) for t in axes.texts} == {((0, 1), "≥"), ((1, 2), "×")}
    (frame,) = axes.patches
    assert frame.get_xy() == (-0.5, -0.5), "around the winner"
    assert histograms(results).axes[0].get_title() == "best: batch per worker 8, learning rate 0.1"


# a killed search ----------------------------------------------------------------------------------


class Killed(BaseException):
    """As a signal would end the process."""


def test_a_killed_search_goes_on(tmp_path: Path) -> None:
    store = tmp_path / "search.sqlite"
    ended: list[int] = []

    def kill(results: SearchResults, trial: Trial) -> None:
        if len(results.trials) == 2:
            raise Killed

    def record_trial(results: SearchResults, trial: Trial) -> None:
        ended.append(trial.number)

    with pytest.raises(Killed):
        searched(storage=store, on_progress=kill)
    resumed = searched(storage=store, on_progress=record_trial)
    assert set(ended) == {2, 3, 4, 5}, "the first two are not trained again"
    whole = searched()
    for one, other in zip(resumed.trials, whole.trials, strict=True):
        assert one.settings == other.settings
        assert one.curve.losses == other.curve.losses
    assert searched(storage=store) == resumed


def test_halving_that_was_killed_starts_its_group_again(tmp_path: Path) -> None:
    """The trials of the first run, which are measured again, must not stop themselves."""
    store = tmp_path / "search.sqlite"
    space = {"batch_per_worker": [8, 16], "learning_rate": [0.1, 0.5]}
    options: dict[str, Any] = {
        "space": space, "images": 288, "threshold": 5.0, "halving": 2, "early_stopping": True,
        "storage": store,
    }  # fmt: skip

    def kill(results: SearchResults, trial: Trial) -> None:
        if any(t.state == "finished" for t in results.trials):
            raise Killed

    with pytest.raises(Killed):
        searched(**options, on_progress=kill)
    with sqlite3.connect(store) as connection:
        ((curve,),) = connection.execute("SELECT curve FROM trials WHERE state = 'finished'")
        fast = {**json.loads(curve), "seconds": [1e-12] * len(json.loads(curve)["seconds"])}
        connection.execute(
            "UPDATE trials SET curve = ? WHERE state = 'finished'", (json.dumps(fast),)
        )
    connection.close()
    resumed = searched(**options)
    assert len(resumed.trials) == 4
    assert resumed.best is not None
    assert resumed.best.curve.area > 1e-9, "it was measured again"


def test_the_database_of_another_search_is_refused(tmp_path: Path) -> None:
    store = tmp_path / "search.sqlite"
    searched(storage=store, space={"batch_per_worker": [8]})
    with pytest.raises(DataError, match=r"another search: threshold is 1.2 there and 1.0 here"):
        searched(storage=store, space={"batch_per_worker": [8]}, threshold=1.0)
    with pytest.raises(DataError, match="space is "):
        searched(storage=store, space={"batch_per_worker": [16]})
    x, y = data()
    common: dict[str, Any] = {"images": 480, "threshold": 1.2, "early_stopping": False}
    with pytest.raises(DataError, match="targets is "):
        mm.train.search(build, x, y * 0, {"batch_per_worker": [8]}, **common, storage=store)

    def wider() -> Any:
        return mm.nn.NeuralNetwork([mm.nn.Dense(9), mm.nn.Dense(3)], optimizer=mm.optim.Adam(0.1))

    with pytest.raises(DataError, match=r"network is .*GradientDescent.* there and .*Adam.* here"):
        mm.train.search(wider, x, y, {"batch_per_worker": [8]}, **common, storage=store)

    def squared(scores: Any, targets: Any) -> Any:
        return mm.mean((scores - mm.nn.functional.one_hot(targets, 3)) ** 2)

    def other_loss() -> Any:
        layers = [mm.nn.Dense(8, activation="relu"), mm.nn.Dense(3)]
        return mm.nn.NeuralNetwork(layers, loss=squared, optimizer=mm.optim.GradientDescent(0.1))

    with pytest.raises(DataError, match=r"network is .*cross_entropy.* there and .*squared.* here"):
        mm.train.search(other_loss, x, y, {"batch_per_worker": [8]}, **common, storage=store)
    with pytest.raises(DataError, match="device is .*auto.* there and .*cpu.* here"):
        mm.train.search(
            build, x, y, {"batch_per_worker": [8]}, **common, storage=store, device="cpu"
        )
    with pytest.raises(DataError, match="are a folder; name a file in it"):
        searched(storage=tmp_path)
    text = tmp_path / "notes.txt"
    text.write_text("no database" * 100)
    with pytest.raises(DataError, match="not a results database"):
        searched(storage=text)
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE music (title TEXT)")
    with pytest.raises(DataError, match="not a results database"):
        searched(storage=other)
    with pytest.raises(DataError, match="folder .* does not exist"):
        searched(storage=tmp_path / "absent" / "s.sqlite")
    assert text.read_text().startswith("no database")


def test_a_search_that_failed_before_its_first_trial_leaves_nothing_to_protect(
    tmp_path: Path,
) -> None:
    """After the correction of its settings the same file is accepted."""
    store = tmp_path / "search.sqlite"
    space = {"batch_per_worker": [8]}
    with pytest.raises(MagmathError, match="device must be"):
        searched(storage=store, space={**space, "workers": [0]}, device="abacus")
    assert store.exists()
    result = searched(storage=store, space=space)
    assert searched(storage=store, space=space) == result, "now it belongs to this search"
    with pytest.raises(DataError, match="threshold is 1.2 there and 1.0 here"):
        searched(storage=store, space=space, threshold=1.0)


@pytest.mark.parametrize(("seconds", "per_trial"), [(0.0, 1), (math.inf, 2 * 5)])
def test_epochs_before_a_new_step_size_are_not_measured(
    seconds: float, per_trial: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At least one, at most twice those of a trial, and only once for each batch."""
    ended: list[tuple[int, int]] = []
    original = TrialRun.on_epoch_end

    def noted(self: TrialRun, trainer: Any, record: Any) -> None:
        original(self, trainer, record)
        ended.append((self.trial.number, self.trial.settings["batch_per_worker"]))

    module = import_module("magmath.train.parameter_search.search")
    monkeypatch.setattr(module, "WARM_SECONDS", seconds)
    monkeypatch.setattr(TrialRun, "on_epoch_end", noted)
    searched(space={"batch_per_worker": [8, 16], "learning_rate": [0.1, 0.5]})
    before = ended.count((-1, 8))
    assert before == ended.count((-1, 16)) == per_trial
    assert ended.index((1, 8)) > before, "the second trial begins without them"
    assert [ended.count((number, 8)) for number in (0, 1)] == [5, 5]


def test_a_step_has_the_batches_of_all_workers_of_the_current_pool() -> None:
    space = {"batch_per_worker": [16], "learning_rate": [0.1]}
    with current("shared", 2):
        actual = searched(space=space, images=96)
    with current("inline"):
        expected = searched(space={**space, "batch_per_worker": [32]}, images=96)
    (ours,), (theirs,) = actual.trials, expected.trials
    assert len(ours.curve.losses) == len(theirs.curve.losses) == 3
    np.testing.assert_allclose(ours.curve.losses, theirs.curve.losses, rtol=1e-4)


def test_each_network_is_warmed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if the space changes its layers: the first one of them must not gain by it."""
    warmed: list[dict[str, Any]] = []
    search = import_module("magmath.train.parameter_search.search")._Search
    warm_up = lambda self, settings, *_: warmed.append(settings)  # noqa: E731
    monkeypatch.setattr(search, "_warm_up", warm_up)

    def built(units: int, name: str, rate: float) -> Any:
        activation = {"relu": mm.relu, "sine": lambda x: mm.sin(x)}[name]
        layers = [mm.nn.Dense(units, activation=activation), mm.nn.Dense(3)]
        return mm.nn.NeuralNetwork(layers, optimizer=mm.optim.GradientDescent(rate))

    space = {
        "batch_per_worker": [32], "units": [4, 5], "name": ["relu", "sine"], "rate": [0.1, 0.2]
    }  # fmt: skip
    with current("inline"):
        mm.train.search(built, *data(), space, images=96)
    assert [(x["units"], x["name"], x["rate"]) for x in warmed] == [
        (4, "relu", 0.1), (4, "sine", 0.1), (5, "relu", 0.1), (5, "sine", 0.1)
    ]  # fmt: skip


# bad input ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"space": {}}, OptionError, "the space is empty"),
        (
            {"space": {"batch_per_worker": []}},
            OptionError,
            "batch_per_worker needs a list of at least one",
        ),
        ({"space": {"learning_rate": [0.1]}}, OptionError, 'needs "batch_per_worker"'),
        (
            {"space": {"batch_per_worker": [97]}},
            DataError,
            "a step takes 97 images .* the data set has 96",
        ),
        (
            {"space": {"batch_per_worker": [32], "workers": [4]}},
            DataError,
            "a step takes 128 images",
        ),
        ({"space": {"batch_per_worker": [7]}}, OptionError, "cannot be divided .* 455 images can"),
        ({"space": {"batch_per_worker": [8, 8]}}, OptionError, "must differ"),
        (
            {"space": {"batch_per_worker": [8], "learning_rate": [{}]}},
            OptionError,
            "numbers or names",
        ),
        ({"method": "magic"}, OptionError, "known are grid, random, optuna"),
        ({"trials": 0}, OptionError, "at least 1"),
        ({"halving": 1}, OptionError, "halving must be at least 2"),
        ({"halving": 2, "method": "optuna"}, OptionError, "method 'grid' or 'random'"),
        ({"halving": 6}, OptionError, "needs trials of at least 6 epochs, 480 images are 5 of 96"),
    ],
)
def test_bad_input(changes: dict[str, Any], error: type[MagmathError], message: str) -> None:
    with pytest.raises(error, match=message):
        searched(**changes)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [
        "search", "--network", "mlp", "--data", "digits", "--batch-per-worker", "64,128",
        "--learning-rate", "0.5", "--images", "1280", "--threshold", "2.5", "--no-early-stopping",
        "--output", str(tmp_path / "out"), "--json",
    ]  # fmt: skip
    assert main(command) == 0
    out, err = capsys.readouterr()
    content = json.loads(out)
    assert content["best"] in (0, 1)
    assert "learning rate" in err
    names = {file.name for file in (tmp_path / "out").iterdir()}
    assert names == {
        "search.sqlite",
        "results.csv",
        "results.json",
        "histograms.png",
        "matrices.png",
    }
    command[command.index("2.5")] = "2"
    assert main(command) == 1
    assert "another search" in " ".join(capsys.readouterr().err.split())
    assert main(["search", "--network", "perceptron"]) == 1
    assert "unknown network" in capsys.readouterr().err
    assert main(["search", "--batch-per-worker", "8,x", "--output", str(tmp_path)]) == 1
    assert "--batch-per-worker needs numbers" in capsys.readouterr().err


def test_an_impossible_learning_rate_is_an_error_before_the_first_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for rate in ("-1", "nan"):
        command = [
            "search",
            "--batch-per-worker",
            "64",
            "--learning-rate",
            f"0.1,{rate}",
            "--images",
            "640",
        ]
        assert main([*command, "--output", str(tmp_path)]) == 1
        assert "learning_rate must be at least 0" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_the_command_says_that_there_is_no_winner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["search", "--batch-per-worker", "64", "--learning-rate", "0.1", "--images", "640"]
    assert main([*command, "--threshold", "1e-9", "--output", str(tmp_path)]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert (
        "no winner with 0 workers: no finished trial has a least loss of at most 1e-09" in printed
    )


def test_the_experiment_shows_the_trials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name, value in (
        ("QUICK_WORKERS", (0,)),
        ("QUICK_IMAGES", 1280),
        ("REDUCED_THRESHOLD", {"digits": 2.5}),
    ):
        monkeypatch.setattr(shm_search, name, value)
    section = shm_search.run(Options(quick=True))
    (best,) = section.of_kind(Table)
    assert [row[0] for row in best.rows] == [0]
    assert best.rows[0][1] in shm_search.QUICK_BATCHES
    trials = section.data["trials"]
    sizes = len(shm_search.QUICK_BATCHES) * len(shm_search.QUICK_RATES)
    assert len(trials) == sizes
    admissible = [t["area"] for t in trials if t["admissible"]]
    assert best.rows[0][3] == min(admissible)
    with pytest.raises(MissingDataError, match="needs a folder with data_batch_1"):
        shm_search.run(Options(data=tmp_path))

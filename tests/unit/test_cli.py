"""The command `magmath`: its output, its exit codes, and the files that it writes."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any, get_args

import pytest
from rich.console import Console

import magmath
from magmath.cli.main import main
from magmath.cli.output_folder import output_folder
from magmath.cli.progress_reporter import ProgressReporter
from magmath.cli.train import command_line, learning_rate, next_commands, resolved_options
from magmath.cli.train_data import TrainData, train_data
from magmath.cli.train_options import (
    IMAGES,
    TRAIN_DEFAULTS,
    DataName,
    OptimizerName,
    TrainOptions,
)
from magmath.cost import Machine, store_machine
from magmath.data.datasets import _LOADERS
from magmath.kernels.dispatch.tuner import DECISIONS, TunerDecision, _encoded, _name, machine
from magmath.runtime.hosts import parse_hosts
from magmath.train import EpochRecord

Here = Callable[..., subprocess.CompletedProcess[str]]
COMMAND = [sys.executable, "-m", "magmath"]


def magmath_command(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=100,
        env={**os.environ, "COLUMNS": "100", **environment},
    )


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Here]:
    """Runs the command in this process, which has loaded what it needs: takes what
    `magmath_command` takes, and returns the same."""
    monkeypatch.setenv("COLUMNS", "100")
    handler = signal.getsignal(signal.SIGTERM)

    def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        capsys.readouterr()
        code = main(arguments)
        out, err = capsys.readouterr()
        return subprocess.CompletedProcess(arguments, code, out, err)

    yield run
    signal.signal(signal.SIGTERM, handler)
    magmath.shutdown()


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("train",),
        ("train", "mlp"),
        ("train", "resnet18"),
        ("info",),
        ("bench",),
        ("cache",),
        ("search",),
        ("reproduce",),
    ],
    ids=" ".join,
)
def test_help(arguments: tuple[str, ...], here: Here) -> None:
    done = here(*arguments, "--help")
    assert done.returncode == 0
    assert "Usage: magmath" in done.stdout
    if arguments not in ((), ("train",)):
        assert "For example:" in done.stdout
        assert f"magmath {' '.join(arguments)}" in done.stdout


def test_help_loads_no_heavy_library() -> None:
    code = (
        "import sys; from magmath.cli.main import main; main(['--help']); "
        "print([m for m in ('torch', 'numpy', 'llvmlite', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


def test_version() -> None:
    assert magmath_command("--version").stdout.strip() == magmath.__version__


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("bench", "nonsense"), "known are programs, layers, cnn"),
        (("bench", "layers", "--peers", "keras"), "unknown peers keras"),
        (("train", "mlp", "--data", "mnist"), r"$MAGMATH_DATA (which is not set)"),
        (
            ("train", "mlp", "--output", "/proc/x"),
            "--output: the folder /proc/x cannot be created: No",
        ),
        (("train", "mlp", "--layers", "3", "--width", "10", "20"), "each of the 3 hidden layers"),
        (
            ("train", "vgg16", "--data", "digits", "--image-size", "31"),
            "takes images from 32×32 on",
        ),
        (
            ("train", "mlp", "--data", "digits", "--corrupt", "warn"),
            "--corrupt warn: --data digits does not take this option; --data images does",
        ),
        (("train", "resnet50", "--data", "images"), "needs --data-path, a folder"),
        (("train", "resnet50", "--data", "images", "--data-path", "/etc"), "'train' and 'val'"),
        (("train", "lenet5", "--data", "cifar-10", "--data-path", "/etc"), "data_batch_1.bin"),
    ],
)
def test_errors_are_one_message(arguments: tuple[str, ...], message: str, here: Here) -> None:
    done = here(*arguments, MAGMATH_DATA="")
    assert done.returncode == 1
    assert message in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    with pytest.raises(Exception):  # noqa: B017, PT011  Python shows any exception
        here("--traceback", *arguments)


def test_errors_are_the_exit_code() -> None:
    done = magmath_command("bench", "nonsense")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    traced = magmath_command("--traceback", "bench", "nonsense")
    assert traced.returncode == 1
    assert "Traceback" in traced.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("frobnicate",),
        ("train",),
        ("train", "mlp", "--epochs", "0"),
        ("train", "mlp", "--optimizer", "magic"),
        ("train", "mlp", "--data", "imagenet"),
    ],
)
def test_wrong_command_lines(arguments: tuple[str, ...]) -> None:
    done = magmath_command(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_info(here: Here) -> None:
    done = here("info", "--json")
    assert done.returncode == 0, done.stderr
    content = json.loads(done.stdout)
    assert content["versions"]["magmath"] == magmath.__version__
    assert content["machine"]["cores"] >= 1
    assert "MPI" in json.dumps(content["MPI"]).upper()
    assert any("openblas" in name for name in content["BLAS and threads"])
    text = here("info")
    assert text.returncode == 0
    for title in content:
        assert title in text.stdout


def test_info_counts_the_caches(tmp_path: Path, here: Here) -> None:
    (tmp_path / "native").mkdir()
    (tmp_path / "native" / "one").write_bytes(b"x" * 10_000)
    done = here("info", "--json", MAGMATH_CACHE=str(tmp_path))
    assert json.loads(done.stdout)["caches"]["native"] >= 10_000


def test_info_shows_what_the_tuner_has_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = {"torch": 5e-6, "numpy": 4e-6}
    monkeypatch.setenv("MAGMATH_CACHE", str(tmp_path))
    keys = [f"gemm 70x72x71 | {machine()}, 3 threads", "gemm 1x1x1 | another machine, 1 threads"]
    for key in keys:
        DECISIONS.write(_name(key), _encoded(TunerDecision(key, "numpy", seconds)))
    done = magmath_command("info", "--tuner", "--json", MAGMATH_CACHE=str(tmp_path))
    assert json.loads(done.stdout) == {
        "tuner": [
            {"operation": "gemm 70x72x71", "threads": 3, "chosen": "numpy", "seconds": seconds}
        ]
    }
    text = magmath_command("info", "--tuner", MAGMATH_CACHE=str(tmp_path)).stdout
    assert "gemm 70x72x71" in text
    assert "torch 5, numpy 4" in text
    assert "another" not in text
    assert "1x1x1" not in text


def test_cache_shows_and_clears_its_folder(tmp_path: Path, here: Here) -> None:
    folder = tmp_path / "cache"
    (folder / "tuner").mkdir(parents=True)
    for name in ("one", "two", ".lock"):
        (folder / "tuner" / name).write_bytes(b"x" * 5000)
    (folder / "diary.txt").write_text("dear diary")
    shown = here("cache", "--json", MAGMATH_CACHE=str(folder), MAGMATH_CACHE_LIMIT="7")
    assert shown.returncode == 0
    content = json.loads(shown.stdout)
    assert (content["folder"], content["entries"], content["limit"]) == (str(folder), 2, 7_000_000)
    assert content["bytes"] >= 10_000
    assert content["kinds"]["tuner"]["entries"] == 2
    assert not content["problem"]
    text = here("cache").stdout
    assert str(folder) in text
    assert "of at most 7 MB" in text
    cleared = here("cache", "--clear", "--json")
    assert cleared.returncode == 0
    assert json.loads(cleared.stdout)["deleted"] == 2
    assert not list((folder / "tuner").iterdir())
    assert (folder / "diary.txt").exists(), "what is not the cache's stays"
    assert "deleted 0 entries" in here("cache", "--clear").stdout


def test_calibrate_shows_the_constants_in_use(tmp_path: Path, here: Here) -> None:
    folder = str(tmp_path / "cache")
    content = json.loads(here("calibrate", "--show", "--json", MAGMATH_CACHE=folder).stdout)
    assert content["source"] == "default"
    assert content["shared"]["shared_memory"]
    store_machine(Machine(bandwidth=12.5e9, source="a test"))
    text = here("calibrate", "--show").stdout
    assert "a test" in text
    assert "12.5 GB/s" in text
    assert here("cache", "--clear").returncode == 0
    assert "default" in here("calibrate", "--show").stdout


def test_cache_of_a_folder_that_cannot_be_used(tmp_path: Path, here: Here) -> None:
    file = tmp_path / "file"
    file.touch()
    shown = here("cache", "--json", MAGMATH_CACHE=str(file))
    assert shown.returncode == 0
    assert json.loads(shown.stdout)["problem"] == f"{file} is no folder"
    assert not here("cache", "--clear", MAGMATH_CACHE="/proc/self/fdinfo").stderr


# Progress


def record(epoch: int, validated: bool = True) -> EpochRecord:
    validation = (0.25, 0.9) if validated else (None, None)
    return EpochRecord(epoch, 0.5, 0.875, *validation, 1.5, 1000.0)


def test_progress_without_a_terminal_is_a_line_an_epoch() -> None:
    out = StringIO()
    reporter = ProgressReporter(Console(file=out, width=100))
    reporter.begin(10, 4)
    for epoch in (1, 2):
        for step in range(1, 5):
            reporter.step(step, 0.5, 1000.0)
        reporter.epoch(record(epoch, validated=epoch == 1))
    reporter.end()
    reporter.end()
    assert out.getvalue().splitlines() == [
        "epoch  1/10  loss 0.5000 (87.50%)  validation 0.2500 (90.00%)  1.50 s",
        "epoch  2/10  loss 0.5000 (87.50%)  1.50 s",
    ]


def test_progress_in_a_terminal_shows_speed_and_time_left() -> None:
    out = StringIO()
    reporter = ProgressReporter(Console(file=out, width=120, force_terminal=True))
    reporter.begin(2, 4)
    reporter.step(3, 0.75, 12345.0)
    reporter.epoch(record(1))
    reporter.step(1, 0.5, 12345.0)
    reporter.end()
    drawn = out.getvalue()
    assert "12,345 images/s" in drawn
    assert "left" in drawn
    assert "epoch 1/2" in drawn


def test_progress_of_a_resumed_training_begins_where_the_former_one_ended() -> None:
    out = StringIO()
    reporter = ProgressReporter(Console(file=out, width=120, force_terminal=True), lambda: 6)
    reporter.begin(8, 4)
    reporter.step(2, 0.75, 12345.0)
    reporter.end()
    drawn = out.getvalue()
    assert "epoch 7/8" in drawn
    assert "epoch 1/8" not in drawn
    assert "81%" in drawn


# Training


@pytest.mark.parametrize("workers", ["0", "2"])
def test_train_leaves_history_plot_and_weights(tmp_path: Path, workers: str, here: Here) -> None:
    folder = tmp_path / "run"
    command = here if workers == "0" else magmath_command
    done = command(
        "train", "mlp", "--epochs", "3", "--workers", workers, "--output", str(folder), "--json",
        "--tensorboard",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["test_accuracy"] > 0.8
    assert result["options"]["width"] == [128, 128]
    assert sorted(Path(file).name for file in result["files"]) == [
        "history.json",
        "history.png",
        "options.json",
        "weights.safetensors",
    ]
    assert len(json.loads((folder / "history.json").read_text())["epochs"]) == 3
    curves = {file.parent.name for file in (folder / "tensorboard").glob("*/events.*")}
    assert curves == {"training", "validation"}
    assert (folder / "history.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "weights.safetensors").stat().st_size > 4 * (64 * 128 + 128 * 128)


def test_train_says_what_came_out_and_what_to_try(tmp_path: Path, here: Here) -> None:
    done = here("train", "mlp", "--epochs", "1", "--output", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "Test accuracy" in done.stdout
    assert "What to try next" in done.stdout


def test_every_network_of_the_zoo_can_be_trained() -> None:
    assert set(TRAIN_DEFAULTS) == set(magmath.nn.zoo.NETWORKS)
    assert set(get_args(OptimizerName)) == set(magmath.optim.OPTIMIZERS)
    assert {*get_args(DataName)} == {*_LOADERS, IMAGES}


@pytest.mark.parametrize(
    "arguments",
    [
        ("lenet5",),
        ("mlp", "--layers", "3", "--width", "32", "--workers", "2", "--activation", "tanh"),
        ("mlp", "--width", "32", "64", "--seed", "3", "--checkpoint"),
        ("vgg16", "--data", "images", "--data-path", "my photos", "--image-size", "64"),
        ("resnet18", "--batch", "8", "--no-augment", "--no-checkpoint", "--output", "there"),
        ("resnet18", "--optimizer", "adam", "--lr", "0.1", "--precision", "mixed-float16"),
    ],
)
def test_proposed_commands_have_the_options_of_the_run(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[tuple[dict[str, Any], Path]] = []

    def record(network: str, options: TrainOptions, _: Any, extra: dict[str, Any]) -> None:
        runs.append((resolved_options(network, options) | extra, options.output or Path("here")))

    monkeypatch.setattr("magmath.cli.train.train", record)
    assert main(["train", *arguments]) == 0
    command = command_line(*runs[0], epochs=7)
    assert main(shlex.split(command)[1:]) == 0
    assert runs[1] == ({**runs[0][0], "epochs": 7}, runs[0][1])


@pytest.mark.parametrize("workers", [0, 4])
@pytest.mark.parametrize("network", [("mlp",), ("mlp", "--checkpoint"), ("lenet5",)])
def test_proposed_commands_are_valid(
    network: tuple[str, ...], workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One with other workers leaves out the hosts, which have room for the workers of the run. No
    command replaces the files of the run or of another command; one that resumes adds epochs."""
    runs: list[dict[str, Any]] = []
    folders: list[Path | None] = []

    def record(network: str, options: TrainOptions, _: Any, extra: dict[str, Any]) -> None:
        runs.append(resolved_options(network, options) | extra)
        if not options.resume:
            folders.append(options.output)
        if runs[-1]["hosts"] is not None:
            parse_hosts(runs[-1]["hosts"], runs[-1]["workers"])

    monkeypatch.setattr("magmath.cli.train.train", record)
    given = ["--workers", str(workers), "--hosts", "a:2,b:2", "--output", "runs/here"]
    assert main(["train", *network, *given]) == 0
    for command, _ in next_commands(runs[0], Path("runs/here")):
        if command.startswith("magmath train"):
            assert main(shlex.split(command)[1:]) == 0
    assert (runs[1]["workers"], runs[1]["hosts"]) == (2 - workers // 2, None)
    named = [folder for folder in folders if folder is not None]
    assert len({*named}) == len(named) > 1
    assert [run["epochs"] for run in runs if run["resume"]] == [2 * runs[0]["epochs"]] * (
        network != ("mlp",)
    )


def test_warnings_are_lines_of_the_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "magmath.cli.train.train", lambda *_: warnings.warn("a file is [broken]", stacklevel=1)
    )
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        assert main(["train", "lenet5"]) == 0
    assert capsys.readouterr().err == "magmath: warning: a file is [broken]\n"


@pytest.mark.parametrize(
    ("schedule", "first", "highest", "last"),
    [("constant", 0.1, 0.1, 0.1), ("cosine", 0.1, 0.1, 0.0), ("one-cycle", 0.004, 0.1, 0.0)],
)
def test_schedules_span_all_steps(schedule: str, first: float, highest: float, last: float) -> None:
    options = {"learning_rate": 0.1, "batch": 8, "epochs": 50, "schedule": schedule}
    rate = learning_rate(options, 100)  # 13 steps an epoch
    rates = [rate(step) if callable(rate) else rate for step in range(650)]
    assert rates[0] == pytest.approx(first)
    assert max(rates) == pytest.approx(highest, rel=1e-3)
    assert rates[-1] == pytest.approx(last, abs=1e-5)


def test_a_convolutional_network_is_trained_and_resumed(tmp_path: Path, here: Here) -> None:
    arguments = (
        "train", "lenet5", "--data", "digits", "--precision", "mixed-float16",
        "--output", str(tmp_path), "--json",
    )  # fmt: skip
    first = json.loads(here(*arguments, "--epochs", "1").stdout)
    done = here(*arguments, "--epochs", "3", "--resume", "--workers", "0")
    result = json.loads(done.stdout)
    epochs = json.loads((tmp_path / "history.json").read_text())["epochs"]
    assert [epoch["skipped_steps"] is not None for epoch in epochs] == [True] * 3
    assert result["test_accuracy"] > first["test_accuracy"]
    assert result["test_accuracy"] > 0.5
    assert result["options"]["optimizer"] == "adam"
    saved = json.loads((tmp_path / "options.json").read_text())
    assert saved["image_shape"] == [1, 12, 12]  # the least that LeNet-5 takes
    assert len(saved["mean"]) == 1
    assert (tmp_path / "checkpoint.safetensors").is_file()


def test_an_interrupted_training_saves_all_epochs_also_those_before_it_was_resumed(
    tmp_path: Path, here: Here, monkeypatch: pytest.MonkeyPatch
) -> None:
    arguments = ("train", "mlp", "--width", "8", "--checkpoint", "--output", str(tmp_path))
    assert here(*arguments, "--epochs", "2").returncode == 0
    show = ProgressReporter.epoch

    def interrupted(self: ProgressReporter, record: EpochRecord) -> None:
        show(self, record)
        if record.epoch == 4:
            raise KeyboardInterrupt

    monkeypatch.setattr(ProgressReporter, "epoch", interrupted)
    done = here(*arguments, "--epochs", "9", "--resume")
    assert done.returncode == 130
    assert "Stopped after 4 epochs." in done.stdout
    history = json.loads((tmp_path / "history.json").read_text())
    assert [epoch["epoch"] for epoch in history["epochs"]] == [1, 2, 3, 4]
    assert history["strategy"]


def test_resuming_says_what_it_continues(tmp_path: Path, here: Here) -> None:
    arguments = ("train", "mlp", "--width", "8", "--resume", "--output", str(tmp_path))
    assert "There is no checkpoint in" in here(*arguments, "--epochs", "1").stdout
    assert "Training continues after epoch 1." in here(*arguments, "--epochs", "2").stdout
    assert "All 2 epochs are done already" in here(*arguments, "--epochs", "2").stdout
    other = here("train", "mlp", "--width", "9", *arguments[4:], "--epochs", "3")
    assert other.returncode == 1
    assert "belongs to another module: " in " ".join(other.stderr.split())
    (tmp_path / "history.json").write_text("{")
    assert "Training continues after epoch 2." in here(*arguments, "--epochs", "3").stdout
    (tmp_path / "checkpoint.safetensors").write_bytes(b"no checkpoint")
    damaged = here(*arguments, "--epochs", "4")
    assert damaged.returncode == 1
    assert "is not a safetensors file, or is damaged" in " ".join(damaged.stderr.split())


def test_training_on_a_folder_of_images(tmp_path: Path, here: Here) -> None:
    image = pytest.importorskip("PIL.Image", reason="image folders need Pillow")
    for part, count in (("train", 12), ("val", 4)):
        for i, name in enumerate(("dark", "light")):
            folder = tmp_path / "images" / part / name
            folder.mkdir(parents=True)
            for j in range(count):
                image.new("RGB", (20 + j, 24), (150 * i + j,) * 3).save(folder / f"{j}.png")
    (folder / "broken.png").write_text("no image")
    arguments = (
        "train", "mlp", "--data", "images", "--data-path", str(tmp_path / "images"), "--json",
        "--image-size", "8", "--epochs", "6", "--batch", "6", "--output", str(tmp_path / "run"),
    )  # fmt: skip
    done = here(*arguments)
    assert done.returncode == 1
    assert "broken.png is not a readable image" in " ".join(done.stderr.split())
    done = here(*arguments, "--corrupt", "skip")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["training_images"] == 24
    assert result["test_accuracy"] > 0.7
    assert json.loads((tmp_path / "run" / "options.json").read_text())["classes"] == [
        "dark",
        "light",
    ]


def test_data_are_augmented_and_resized(tmp_path: Path) -> None:
    def data(network: str, **options: object) -> TrainData:
        given = TrainOptions(data="digits", **options)  # type: ignore[arg-type]
        return train_data(resolved_options(network, given))

    plain = data("resnet18")
    assert isinstance(plain.train, tuple)
    assert plain.shape == (1, 8, 8)
    images = plain.train[0]
    assert abs(images.mean()) < 1e-5
    assert abs(images.std() - 1) < 1e-4
    loader = data("vgg11", augment=True, batch=10, seed=3).train
    assert loader.sample_shape == (1, 32, 32)
    assert loader.batch_size == 10
    assert loader.seed == 3
    assert data("vgg11", image_size=40).shape == (1, 40, 40)


@pytest.mark.parametrize(
    "arguments", [["plan"], ["info"], ["plan", "lenet5", "--machine", "k80-fdr"]]
)
def test_a_reader_that_ends_early_is_no_error(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as output:
        done = subprocess.run(
            [*COMMAND, *arguments], stdout=output, stderr=subprocess.PIPE, text=True, timeout=100
        )
    assert done.stderr == ""
    assert done.returncode in (141, 1)  # 1 where rich prints


def test_an_error_is_reported_also_without_a_reader_of_the_output() -> None:
    for redirection in (">&-", "| true"):
        command = f"'{sys.executable}' -m magmath plan nonsense {redirection}"
        done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=100)
        assert "nonsense" in done.stderr
        assert "Traceback" not in done.stderr


def test_ctrl_c_saves_what_there_is(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [*COMMAND, "train", "mlp", "--epochs", "100000", "--output", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1", "COLUMNS": "100"},
    )
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith("epoch"):
            break
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "Saved:" in out
    assert (tmp_path / "weights.safetensors").is_file()
    assert len(json.loads((tmp_path / "history.json").read_text())["epochs"]) >= 1
    saved = json.loads((tmp_path / "options.json").read_text())
    assert saved["options"]["epochs"] == 100000
    assert str(tmp_path / "options.json") in "".join(out.split())


def test_a_run_without_results_keeps_those_of_the_run_before(tmp_path: Path, here: Here) -> None:
    """The options belong to the weights next to them."""
    arguments = ("train", "mlp", "--epochs", "1", "--output", str(tmp_path), "--width")
    assert here(*arguments, "8").returncode == 0
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    failed = here(*arguments, "16", "--optimizer", "momentum", "--learning-rate", "1e30")
    assert failed.returncode == 1
    assert "the loss became" in " ".join(failed.stderr.split())
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_resuming_without_remaining_epochs_keeps_the_record(tmp_path: Path, here: Here) -> None:
    """Neither the options of the weights nor the suggestions are those that trained nothing."""
    record = tmp_path / "options.json"
    arguments = ("train", "mlp", "--width", "8", "--checkpoint", "--output", str(tmp_path))
    assert here(*arguments, "--epochs", "2").returncode == 0
    before = record.read_bytes()
    resumed = (*arguments, "--epochs", "1", "--batch", "50", "--lr", "0.9", "--resume")
    done = here(*resumed)
    assert "All 2 epochs are done already" in done.stdout
    assert record.read_bytes() == before
    assert "--epochs 4" in done.stdout
    assert "--batch" not in done.stdout
    for lost in ("{", '{"options": 3}', None):
        record.unlink() if lost is None else record.write_text(lost)
        assert "--epochs 4" in here(*resumed).stdout
        assert json.loads(record.read_text())["options"]["epochs"] == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("train", "mlp", "--strategy", "fast"),
        ("train", "mlp", "--device", "foo"),
        ("train", "mlp", "--strategy", "weight-averaging:7"),
        ("train", "mlp", "--optimizer", "sgd", "--lr", "1e30"),
        ("search", "--images", "1442"),
    ],
)
@pytest.mark.parametrize("exists", [False, True])
def test_a_failing_command_leaves_no_new_folder(
    arguments: tuple[str, ...], exists: bool, tmp_path: Path, here: Here
) -> None:
    folder = tmp_path / "runs"
    if exists:
        folder.mkdir()
    assert here(*arguments, "--output", str(folder / "new" / "one")).returncode == 1
    assert [*tmp_path.rglob("*")] == [folder] * exists


def test_a_failing_command_keeps_folders_with_files(tmp_path: Path) -> None:

    def interrupted() -> None:
        with output_folder(tmp_path / "a" / "b"):
            (tmp_path / "a" / "report").touch()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [*tmp_path.rglob("*")] == [tmp_path / "a", tmp_path / "a" / "report"]

"""`magmath search`: compares batch sizes, learning rates and numbers of workers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.types import NonNegativeInt, PositiveFloat, PositiveInt
from rich.console import Console
from rich.live import Live
from rich.table import Table

from magmath.cli.output_folder import output_folder
from magmath.errors import OptionError

if TYPE_CHECKING:
    from magmath.data import Dataset
    from magmath.train import SearchResults, Trial


def search(
    *,
    network: str = "mlp",
    data: str = "digits",
    data_path: Path | None = None,
    batch_per_worker: str = "16,32,64,128,256,512",
    learning_rate: str = "0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9",
    workers: str = "0",
    optimizer: str = "sgd",
    images: PositiveInt = 307_200,
    threshold: PositiveFloat = 1.8,
    method: Literal["grid", "random", "optuna"] = "grid",
    trials: PositiveInt | None = None,
    early_stopping: bool = True,
    halving: PositiveInt | None = None,
    seed: NonNegativeInt = 0,
    device: str = "auto",
    output: Path | None = None,
    json: Annotated[bool, Parameter(negative=())] = False,
) -> None:
    """Search for the best batch size, learning rate and number of workers of a network.

    Every trial sees the same number of images. The best one has the smallest area under its
    loss–time curve among those whose least loss is at most the threshold. A search that was
    stopped or killed continues if it is started again with the same options.

    For example:

        magmath search --data digits --batch-per-worker 16,64 --images 30720 --threshold 0.5

        magmath search --network lenet5 --data mnist-5k --workers 1,2 --halving 3

    Parameters
    ----------
    network
        A network of `mm.nn.zoo`.
    data
        A data set of `mm.data.load`, such as "digits", "fashion-mnist", "mnist-5k" or "cifar-10".
    data_path
        Folder of the data set's files, where it does not come with a package.
    batch_per_worker
        Images of each worker in a step, separated by commas.
    learning_rate
        Learning rates, separated by commas.
    workers
        Numbers of worker processes, separated by commas; 0 computes in this process.
    optimizer
        A name in `mm.optim.OPTIMIZERS`; "sgd" is plain gradient descent.
    images
        Images that each trial sees.
    threshold
        The least loss of a trial must be at most this.
    method
        "grid" tries all combinations, "random" `--trials` of them, "optuna" proposes them.
    trials
        Number of trials.
    early_stopping
        End trials that cannot win any more.
    halving
        Successive halving with this factor; needs at least as many epochs of a trial.
    seed
        Seed of initial weights, order of images, and random choices.
    device
        "auto", "cpu" or "cuda".
    output
        Folder for search.sqlite, results.csv, results.json, histograms.png and matrices.png;
        default runs/search-NETWORK-DATA.
    json
        Print the result as one JSON object; everything else goes to standard error.
    """
    import magmath as mm

    space = {
        "batch_per_worker": _numbers("--batch-per-worker", batch_per_worker, int),
        "learning_rate": _numbers("--learning-rate", learning_rate, float),
        "workers": _numbers("--workers", workers, int),
    }
    build = _builder(network, optimizer, space["learning_rate"])
    dataset = mm.data.load(data, None if data_path is None else str(data_path))
    folder = output or Path("runs") / f"search-{network}-{data}"
    console = Console(stderr=json, highlight=False)
    console.print(dataset, markup=False)
    with (
        output_folder(folder),
        Live(console=console, refresh_per_second=4, transient=True) as live,
    ):
        results = mm.train.search(
            lambda learning_rate: build(dataset, learning_rate),
            dataset.train_images,
            dataset.train_labels,
            space,
            images=images,
            threshold=threshold,
            method=method,
            trials=trials,
            early_stopping=early_stopping,
            halving=halving,
            storage=folder / "search.sqlite",
            seed=seed,
            device=device,
            on_progress=lambda partial, trial: live.update(
                _table(partial, trial, live.console.height)
            ),
        )
    _report(results, folder, console, as_json=json)


def _report(results: SearchResults, folder: Path, console: Console, *, as_json: bool) -> None:
    """Save the results and print them: tables and the saved files, or one JSON object."""
    files = _save(results, folder)
    console.print(_table(results, None))
    console.print(_best_table(results))
    if without := [str(n) for n, best in results.best_by_workers.items() if best is None]:
        console.print(
            f"no winner with {', '.join(without)} workers: no finished trial has a least loss of "
            f"at most {results.threshold:g} (--threshold)"
        )
    if as_json:
        print((folder / "results.json").read_text(), end="")
    for file in files:
        console.print(f"  {file}", markup=False)


def _numbers(option: str, text: str, kind: type[int] | type[float]) -> list[Any]:
    """Return the numbers of an option. Raises OptionError for other text."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    try:
        return [kind(part) for part in parts]
    except ValueError as error:
        raise OptionError(
            f"{option} needs numbers separated by commas, was given {text!r}"
        ) from error


def _builder(network: str, optimizer: str, rates: list[float]) -> Any:
    """Return a function of data set and learning rate that returns a network.

    Raises OptionError if one of the learning rates is impossible, so before the first trial.
    """
    import magmath as mm

    known = mm.nn.zoo.NETWORKS
    if network not in known:
        raise OptionError(f"--network: unknown network {network!r}; known are {', '.join(known)}")
    if optimizer not in mm.optim.OPTIMIZERS:
        names = ", ".join(mm.optim.OPTIMIZERS)
        raise OptionError(f"--optimizer: unknown optimizer {optimizer!r}; known are {names}")

    make = mm.optim.OPTIMIZERS[optimizer]
    for rate in rates:
        make(learning_rate=rate)

    def build(images: Dataset, learning_rate: float) -> Any:
        height, width = images.train_images.shape[-2:]
        module = known[network].for_images(height, width, classes=len(images.classes))
        return mm.nn.NeuralNetwork(module, optimizer=make(learning_rate=learning_rate))

    return build


def _save(results: SearchResults, folder: Path) -> list[Path]:
    """Write the results as tables and pictures; return the files."""
    from magmath.train.parameter_search import histograms, matrices

    files = [folder / "results.csv", folder / "results.json"]
    for file in files:
        results.save(file)
    for name, figure in (("histograms", histograms(results)), ("matrices", matrices(results))):
        files.append(folder / f"{name}.png")
        figure.savefig(files[-1], dpi=150)
    return files


def _table(results: SearchResults, current: Trial | None, height: int = 10_000) -> Table:
    """Return the trials as a table, the last ones if it is higher than the terminal; the current
    one is among them."""
    rows = results.rows()
    if current is not None and all(row["trial"] != current.number for row in rows):
        rows.append({**current.row(results.threshold), "state": "running", "admissible": False})
    names = [name for name in (rows[0] if rows else {}) if name != "admissible"]
    headers = [name.replace("_", " ") for name in names]
    table = Table(*headers, title="trials", title_justify="left")
    best = results.best
    for row in rows[-max(3, height - 6) :]:
        wins = best is not None and row["trial"] == best.number
        style = "bold green" if wins else None if row["admissible"] else "dim"
        table.add_row(*[_cell(row[name]) for name in names], style=style)
    return table


def _best_table(results: SearchResults) -> Table:
    """Return the best settings for each number of workers, as in Table 5.1 of the report."""
    headers = ("workers", "batch per worker", "learning rate", "area (loss · s)")
    table = Table(*headers, title="best", title_justify="left")
    for workers, trial in results.best_by_workers.items():
        if trial is None:
            table.add_row(*map(_cell, (workers, None, None, None)))
        else:
            settings = trial.settings
            values = (
                workers,
                settings["batch_per_worker"],
                settings["learning_rate"],
                trial.curve.area,
            )
            table.add_row(*map(_cell, values))
    return table


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4g}" if isinstance(value, float) else str(value)

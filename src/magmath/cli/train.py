"""`magmath train`: trains a network on a data set and saves history, plot and weights in a folder.

It uses only the public names, as a user's script would.
"""

from __future__ import annotations

import json as jsonlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Group, Parameter
from cyclopts.types import NonNegativeInt, PositiveFloat, PositiveInt
from rich.console import Console

from magmath.cli.output_folder import create_folder
from magmath.cli.progress_reporter import ProgressReporter
from magmath.errors import OptionError

if TYPE_CHECKING:
    from magmath.data import Dataset
    from magmath.train import History, NeuralNetwork

HELP = """\
Train a network on a data set.

For example:

    magmath train mlp --data digits --workers 2 --output runs/digits
"""
train_app = App(name="train", help=HELP, help_format="markdown")

_NETWORK = Group("Network")
_TRAINING = Group("Training")
_MACHINE = Group("Machine")
_OUTPUT = Group("Data and output")


@train_app.command
def mlp(
    *,
    layers: Annotated[PositiveInt, Parameter(group=_NETWORK)] = 2,
    width: Annotated[
        tuple[PositiveInt, ...], Parameter(group=_NETWORK, consume_multiple=True, negative=())
    ] = (128,),
    activation: Annotated[Literal["relu", "tanh", "sigmoid"], Parameter(group=_NETWORK)] = "relu",
    batch: Annotated[PositiveInt, Parameter(group=_TRAINING)] = 64,
    epochs: Annotated[PositiveInt, Parameter(group=_TRAINING)] = 20,
    optimizer: Annotated[
        Literal["sgd", "momentum", "nesterov", "adagrad", "rmsprop", "adam", "adamw", "lars"],
        Parameter(group=_TRAINING),
    ] = "adam",
    learning_rate: Annotated[PositiveFloat, Parameter(group=_TRAINING)] = 1e-3,
    seed: Annotated[NonNegativeInt, Parameter(group=_TRAINING)] = 0,
    workers: Annotated[NonNegativeInt, Parameter(group=_MACHINE)] = 0,
    strategy: Annotated[str, Parameter(group=_MACHINE)] = "auto",
    device: Annotated[str, Parameter(group=_MACHINE)] = "auto",
    data: Annotated[str, Parameter(group=_OUTPUT)] = "digits",
    data_path: Annotated[Path | None, Parameter(group=_OUTPUT)] = None,
    output: Annotated[Path | None, Parameter(group=_OUTPUT)] = None,
    json: Annotated[bool, Parameter(group=_OUTPUT, negative=())] = False,
) -> None:
    """Train a multi-layer perceptron to classify images.

    For example:

        magmath train mlp --data digits --workers 2 --output runs/digits

        magmath train mlp --data mnist --data-path ~/mnist --layers 3 --width 528 --batch 100

        magmath train mlp --width 256 64 --optimizer momentum --learning-rate 0.05 --json

    Parameters
    ----------
    layers
        Number of hidden layers.
    width
        Neurons of every hidden layer, or one number for each of them.
    activation
        Activation of the hidden layers.
    batch
        Images a step, over all workers together.
    epochs
        Passes over the training images.
    optimizer
        "sgd" is plain gradient descent.
    learning_rate
        Step size of the optimizer.
    seed
        Seed of the initial weights and of the order of the images.
    workers
        Worker processes; 0 computes in this one.
    strategy
        How the work is divided over the workers; "auto" takes the cheapest plan.
    device
        "auto", "cpu" or "cuda".
    data
        "digits", "fashion-mnist", "mnist-5k" or "mnist".
    data_path
        Folder of the data set's files, where it does not come with a package.
    output
        Folder for history.json, history.png and weights.safetensors; default runs/DATA.
    json
        Print the result as one JSON object; everything else goes to standard error.
    """
    options = {name: value for name, value in locals().items() if name not in ("output", "json")}
    options["width"] = _widths(width, layers)
    options["data_path"] = None if data_path is None else str(data_path)
    folder = output or Path("runs") / data
    console = Console(stderr=json, highlight=False)
    result = _run(options, folder, console)
    if json:
        print(jsonlib.dumps(result, indent=2))
    else:
        _print_result(result, console)


def _widths(width: tuple[int, ...], layers: int) -> list[int]:
    if len(width) not in (1, layers):
        raise OptionError(
            f"--width needs one number, or one for each of the {layers} hidden layers; it was "
            f"given {len(width)}: {' '.join(map(str, width))}"
        )
    return list(width) * (layers // len(width))


def _run(options: dict[str, Any], folder: Path, console: Console) -> dict[str, Any]:
    """Train, save, and return the data that `--json` prints."""
    import magmath as mm

    images = mm.data.load(options["data"], options["data_path"])
    create_folder(folder)
    console.print(images, markup=False)
    with mm.init(options["workers"], device=options["device"], seed=options["seed"]):
        network = _build(options, len(images.classes))
        reporter = ProgressReporter(console)
        try:
            history = _fit(network, images, options, reporter)
        except KeyboardInterrupt:
            _save_interrupted(network, reporter, folder, console)
            raise
        files = _save(network, history, folder)
    return _result(options, images, history, files)


def _build(options: dict[str, Any], classes: int) -> NeuralNetwork:
    import magmath as mm

    make = mm.optim.OPTIMIZERS[options["optimizer"]]
    hidden = [mm.nn.Dense(n, activation=options["activation"]) for n in options["width"]]
    return mm.nn.NeuralNetwork(
        [mm.nn.Flatten(), *hidden, mm.nn.Dense(classes)],
        loss="cross_entropy",
        optimizer=make(learning_rate=options["learning_rate"]),
    )


def _fit(
    network: NeuralNetwork, images: Dataset, options: dict[str, Any], reporter: ProgressReporter
) -> History:
    return network.fit(
        images.train_images,
        images.train_labels,
        batch_size=options["batch"],
        epochs=options["epochs"],
        strategy=options["strategy"],
        validation=(images.test_images, images.test_labels),
        reporter=reporter,
    )


def _save(network: NeuralNetwork, history: History, folder: Path) -> list[Path]:
    files = [folder / name for name in ("history.json", "history.png", "weights.safetensors")]
    history.save(files[0])
    history.plot(files[1])
    network.save(files[2])
    return files


def _save_interrupted(
    network: NeuralNetwork, reporter: ProgressReporter, folder: Path, console: Console
) -> None:
    """Save the current weights and the completed epochs after Ctrl-C."""
    from magmath.train import History

    epochs = len(reporter.records)
    if not epochs:
        console.print("Stopped before the end of the first epoch; nothing was saved.")
        return
    files = _save(network, History(reporter.records), folder)
    console.print(f"Stopped after {epochs} epoch{'s' * (epochs > 1)}. Saved:")
    for file in files:
        console.print(f"  {file}", markup=False)


def _result(
    options: dict[str, Any], images: Dataset, history: History, files: list[Path]
) -> dict[str, Any]:
    seconds = sum(history.seconds)
    return {
        "options": options,
        "training_images": len(images.train_labels),
        "test_images": len(images.test_labels),
        "loss": history.loss[-1],
        "accuracy": history.accuracy[-1],
        "test_loss": history.validation_loss[-1],
        "test_accuracy": history.validation_accuracy[-1],
        "seconds": seconds,
        "images_per_second": len(images.train_labels) * len(history.loss) / seconds,
        "files": [str(file) for file in files],
    }


def _print_result(result: dict[str, Any], console: Console) -> None:
    console.print(
        f"\n[bold]Test accuracy {result['test_accuracy']:.2%}[/] on {result['test_images']} images "
        f"that the network has not seen, after {result['seconds']:.1f} s of training "
        f"({result['images_per_second']:,.0f} images/s)."
    )
    console.print("Saved:")
    for file in result["files"]:
        console.print(f"  {file}", markup=False)
    console.print("What to try next:")
    for command, purpose in _next_commands(result["options"]):
        console.print(f"  {command}\n      {purpose}", markup=False)


def _next_commands(options: dict[str, Any]) -> list[tuple[str, str]]:
    """Return suggested next commands, each with its purpose."""
    layers, width = len(options["width"]), options["width"][0]
    other = 0 if options["workers"] else 2
    data = "mnist-5k" if options["data"] == "digits" else "digits"
    again = f"magmath train mlp --data {options['data']}"
    return [
        (f"{again} --workers {other}", f"the same with {other} workers"),
        (f"{again} --layers {layers + 2} --width {2 * width}", "a deeper and wider network"),
        (f"magmath train mlp --data {data}", "other images"),
        ("magmath bench layers", "how fast this machine trains, compared with other frameworks"),
        ("magmath info", "what magmath found on this machine"),
    ]

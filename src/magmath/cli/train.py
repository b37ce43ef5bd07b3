"""`magmath train`: trains a network on a data set and saves history, plot and weights in a folder.

It uses only the public names, as a user's script would.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, Parameter
from cyclopts.types import PositiveInt
from rich.console import Console

from magmath.cli.output_folder import output_folder
from magmath.cli.progress_reporter import ProgressReporter
from magmath.cli.train_options import NETWORK, TRAIN_DEFAULTS, TrainOptions
from magmath.core.json_text import json_text
from magmath.errors import OptionError

if TYPE_CHECKING:
    from magmath.cli.train_data import TrainData
    from magmath.optim.schedules import Schedule
    from magmath.train import History, NeuralNetwork

HELP = """\
Train a network on a data set.

For example:

    magmath train mlp --data digits --workers 2 --output runs/digits

    magmath train lenet5 --data mnist-5k

    magmath train resnet18 --data cifar-10 --data-path ~/cifar-10-batches-bin --epochs 30

    magmath train resnet50 --data images --data-path ~/imagenet --corrupt warn
"""
train_app = App(name="train", help=HELP, help_format="markdown")

_DEFAULT_OPTIONS = TrainOptions()
_RESOLVED = ("data", "batch", "epochs", "optimizer", "learning_rate", "schedule", "weight_decay")
"""The options whose default depends on the network."""
_MLP = {"width": [128, 128], "activation": "relu"}
"""The defaults of the options that only `mlp` has."""
_OPTIONS = "options.json"
"""The file with the options of the weights next to it."""


@train_app.command
def mlp(
    *,
    layers: Annotated[PositiveInt, Parameter(group=NETWORK)] = 2,
    width: Annotated[
        tuple[PositiveInt, ...], Parameter(group=NETWORK, consume_multiple=True, negative=())
    ] = (128,),
    activation: Annotated[Literal["relu", "tanh", "sigmoid"], Parameter(group=NETWORK)] = "relu",
    options: TrainOptions = _DEFAULT_OPTIONS,
) -> None:
    """Train a multi-layer perceptron to classify images.

    The defaults are the data set digits, 20 epochs, batches of 64, Adam, and a learning rate of
    0.001.

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
    """
    widths = _widths(width, layers)
    train(
        "mlp",
        options,
        {"units": widths, "activation": activation},
        {"width": widths, "activation": activation},
    )


def _zoo_command(name: str) -> Callable[..., None]:
    """Return the command that trains a network of the zoo."""
    default = TRAIN_DEFAULTS[name]

    def command(*, options: TrainOptions = _DEFAULT_OPTIONS) -> None:
        train(name, options, {}, {})

    command.__doc__ = f"""Train {default.title} to classify images.

    By default on {default.data}, {default.epochs} epochs with batches of {default.batch}, the
    optimizer "{default.optimizer}", a learning rate of {default.learning_rate:g} (schedule
    "{default.schedule}") and a weight decay of {default.weight_decay:g}.

    For example:

        magmath train {name} --data {default.data}

        magmath train {name} --data cifar-10 --data-path ~/cifar-10-batches-bin --workers 2

        magmath train {name} --data images --data-path ~/imagenet --corrupt warn --resume
    """
    return command


for _name in TRAIN_DEFAULTS:
    if _name != "mlp":
        train_app.command(_zoo_command(_name), name=_name)


def train(
    network: str, options: TrainOptions, settings: dict[str, Any], extra: dict[str, Any]
) -> None:
    """Train a network of the zoo with these settings, and print the result.

    `extra`: further options for the record of the run.
    """
    resolved = resolved_options(network, options) | extra
    folder = options.output or Path("runs") / (
        resolved["data"] if network == "mlp" else f"{network}-{resolved['data']}"
    )
    console = Console(stderr=options.json, highlight=False)
    with output_folder(folder):
        result = _run(resolved, settings, folder, console)
    if options.json:
        print(json_text(result))
    else:
        _print_result(result, folder, console)


def resolved_options(network: str, options: TrainOptions) -> dict[str, Any]:
    """Return the options as plain values, with the network's defaults."""
    default = TRAIN_DEFAULTS[network]
    values = asdict(options)
    for name in (*_RESOLVED, "checkpoint"):
        if values[name] is None:
            values[name] = getattr(default, name)
    values["checkpoint"] |= values["resume"]
    values["data_path"] = None if values["data_path"] is None else str(values["data_path"])
    return {"network": network} | {k: v for k, v in values.items() if k not in ("output", "json")}


def _widths(width: tuple[int, ...], layers: int) -> list[int]:
    if len(width) not in (1, layers):
        raise OptionError(
            f"--width needs one number, or one for each of the {layers} hidden layers; it was "
            f"given {len(width)}: {' '.join(map(str, width))}"
        )
    return list(width) * (layers // len(width))


def _run(
    options: dict[str, Any], settings: dict[str, Any], folder: Path, console: Console
) -> dict[str, Any]:
    """Train, save, and return the data that `--json` prints."""
    import magmath as mm
    from magmath.cli.train_data import train_data
    from magmath.train.checkpoint import epochs_in

    data = train_data(options)
    console.print(data.description, markup=False)
    done = epochs_in(folder) if options["resume"] else None
    if options["resume"]:
        console.print(_resumption(folder, done, options["epochs"]), markup=False)
    with mm.init(
        options["workers"],
        hosts=options["hosts"],
        device=options["device"],
        seed=options["seed"],
    ):
        network = _build(options, settings, data)
        trains = done is None or done < options["epochs"]
        recorded = {} if trains else _recorded_options(folder)
        trained = options if trains else options | {"epochs": done} | recorded
        record = None if recorded else _content_of_options(trained, data)
        save = partial(_save, network, record, folder)
        try:
            history = _fit(network, data, options, folder, console)
        except KeyboardInterrupt:
            _save_interrupted(save, network.history, console)
            raise
        files = save(history)
    return _result(trained, data, history, files)


def _recorded_options(folder: Path) -> dict[str, Any]:
    """Return the options of the run that has trained the weights in a folder; none without a
    readable record of them."""
    try:
        return dict(json.loads((folder / _OPTIONS).read_text())["options"])
    except (OSError, ValueError, LookupError, TypeError):
        return {}


def _resumption(folder: Path, done: int | None, epochs: int) -> str:
    """Return what `--resume` continues after so many epochs, and what to do if that is nothing."""
    if done is None:
        return f"There is no checkpoint in {folder}: training starts from the beginning."
    if done >= epochs:
        return f"All {done} epochs are done already; give a larger --epochs to train on."
    return f"Training continues after epoch {done}."


def _build(options: dict[str, Any], settings: dict[str, Any], data: TrainData) -> NeuralNetwork:
    """Return the network of the resolved options."""
    import magmath as mm

    architecture = mm.nn.zoo.NETWORKS[options["network"]]
    module = architecture.for_images(*data.shape[1:], classes=len(data.classes), **settings)
    make = mm.optim.OPTIMIZERS[options["optimizer"]]
    return mm.nn.NeuralNetwork(
        module,
        loss="cross_entropy",
        optimizer=make(
            learning_rate=learning_rate(options, data.train_count),
            weight_decay=options["weight_decay"],
        ),
        precision=options["precision"],
    )


def learning_rate(options: dict[str, Any], images: int) -> float | Schedule:
    """Return the rate or the schedule of these options, for so many training images."""
    from magmath.optim.schedules import Cosine, OneCycle

    rate = float(options["learning_rate"])
    steps = -(-images // options["batch"]) * options["epochs"]
    match options["schedule"]:
        case "cosine":
            return Cosine(rate, steps, per="step")
        case "one-cycle":
            return OneCycle(rate, steps)
    return rate


def _fit(
    network: NeuralNetwork,
    data: TrainData,
    options: dict[str, Any],
    folder: Path,
    console: Console,
) -> History:
    """Train the network on the data as the options say."""
    from magmath.train import TensorBoard

    def completed() -> int:
        return 0 if network.history is None else len(network.history.records)

    resident = isinstance(data.train, tuple)
    return network.fit(
        *(data.train if resident else (data.train,)),
        batch_size=options["batch"] if resident else None,
        epochs=options["epochs"],
        strategy=options["strategy"],
        validation=data.test,
        reporter=ProgressReporter(console, completed),
        checkpoint=folder if options["checkpoint"] else None,
        callbacks=[TensorBoard(folder / "tensorboard")] if options["tensorboard"] else [],
        resume=options["resume"],
        restarts=options["restarts"] if options["checkpoint"] else 0,
    )


def _save(
    network: NeuralNetwork, record: dict[str, Any] | None, folder: Path, history: History
) -> list[Path]:
    """Save the results of a run, and return their files.

    All are written together: a run that saves no weights leaves the options of the weights that
    are in the folder. Without a record of options, the file of a run before it is still true.
    """
    names = ("history.json", "history.png", "weights.safetensors", _OPTIONS)
    files = [folder / name for name in names]
    history.save(files[0])
    history.plot(files[1])
    network.save(files[2])
    if record is not None:
        files[3].write_text(json_text(record) + "\n")
    return files


def _content_of_options(options: dict[str, Any], data: TrainData) -> dict[str, Any]:
    """Return what is needed to use the weights: network, normalization, names of the classes."""
    mean, std = data.normalization
    return {
        "options": options,
        "image_shape": data.shape,
        "mean": mean,
        "std": std,
        "classes": data.classes,
    }


def _save_interrupted(
    save: Callable[[History], list[Path]], history: History | None, console: Console
) -> None:
    """Save the current weights and the completed epochs after Ctrl-C."""
    epochs = 0 if history is None else len(history.records)
    if history is None or not epochs:
        console.print("Stopped before the end of the first epoch; nothing was saved.")
        return
    files = save(history)
    console.print(f"Stopped after {epochs} epoch{'s' * (epochs > 1)}. Saved:")
    for file in files:
        console.print(f"  {file}", markup=False)


def _result(
    options: dict[str, Any], data: TrainData, history: History, files: list[Path]
) -> dict[str, Any]:
    """Return the results of a run as plain data."""
    seconds = sum(history.seconds)
    return {
        "options": options,
        "training_images": data.train_count,
        "test_images": data.test_count,
        "loss": history.loss[-1],
        "accuracy": history.accuracy[-1],
        "test_loss": history.validation_loss[-1],
        "test_accuracy": history.validation_accuracy[-1],
        "seconds": seconds,
        "images_per_second": data.train_count * len(history.loss) / seconds,
        "files": [str(file) for file in files],
    }


def _print_result(result: dict[str, Any], folder: Path, console: Console) -> None:
    """Print the accuracy, the saved files, and what to try next."""
    console.print(
        f"\n[bold]Test accuracy {result['test_accuracy']:.2%}[/] on {result['test_images']} images "
        f"that the network has not seen, after {result['seconds']:.1f} s of training "
        f"({result['images_per_second']:,.0f} images/s)."
    )
    console.print("Saved:")
    for file in result["files"]:
        console.print(f"  {file}", markup=False)
    console.print("What to try next:")
    for command, purpose in next_commands(result["options"], folder):
        console.print(f"  {command}\n      {purpose}", markup=False, soft_wrap=True)


def command_line(options: dict[str, Any], output: Path, **changes: Any) -> str:
    """Return the command that has these resolved options, some of them changed; without those that
    are the defaults of the network."""
    defaults = resolved_options(options["network"], _DEFAULT_OPTIONS) | _MLP
    chosen = options | {"output": output} | changes
    words = ["magmath", "train", chosen.pop("network"), "--data", chosen.pop("data")]
    if (width := chosen.get("width", defaults["width"])) != defaults["width"]:
        chosen["layers"] = len(width)
    if chosen["resume"]:
        chosen.pop("checkpoint")
    for name, value in chosen.items():
        if value is None or value == defaults.get(name):
            continue
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            values = value if isinstance(value, list) else [value]
            words += [f"--{flag}", *map(str, values)]
    return shlex.join(words)


def next_commands(options: dict[str, Any], folder: Path) -> list[tuple[str, str]]:
    """Return suggested next commands, each with its purpose.

    One that trains anew has an output folder of its own, so that the results of this run stay.
    """

    def anew(suffix: str, **changes: Any) -> str:
        other = folder.with_name(f"{folder.name}-{suffix}")
        return command_line(options, other, resume=False, **changes)

    other_workers = 0 if options["workers"] else 2
    with_others = anew(f"workers-{other_workers}", workers=other_workers, hosts=None)
    commands = [(with_others, f"the same with {other_workers} workers")]
    if options["checkpoint"]:
        more = command_line(options, folder, epochs=2 * options["epochs"], resume=True)
        commands.append((more, "more epochs, from the checkpoint"))
    if options["network"] == "mlp":
        layers, width = len(options["width"]), options["width"][0]
        data = "mnist-5k" if options["data"] == "digits" else "digits"
        commands += [
            (anew("wider", width=[2 * width] * (layers + 2)), "a deeper and wider network"),
            (f"magmath train mlp --data {data}", "other images"),
            ("magmath train lenet5 --data mnist-5k", "a convolutional network"),
        ]
    else:
        commands.append(("magmath train --help", "other networks"))
    return [
        *commands,
        ("magmath bench --help", "how fast this machine trains, compared with other frameworks"),
        ("magmath info", "what magmath found on this machine"),
    ]

"""The options of `magmath train`, and their defaults for each network and data set.

The tables are plain data: the help of the command loads no network and no numerical library.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, final

from cyclopts import Group, Parameter
from cyclopts.types import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt

OptimizerName = Literal[
    "sgd", "momentum", "nesterov", "adadelta", "adagrad", "rmsprop", "adam", "adamw", "lars"
]
ScheduleName = Literal["constant", "cosine", "one-cycle"]
NETWORK = Group("Network")
_TRAINING = Group("Training")
_MACHINE = Group("Machine")
_DATA = Group("Data")
_OUTPUT = Group("Output")

DataName = Literal[
    "digits", "fashion-mnist", "mnist-5k", "mnist", "cifar-10", "cifar-100", "idx", "images"
]
IMAGES: DataName = "images"
"""The name of the data set that is a folder of image files."""


@final
@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """The options that all networks have. None stands for the default of the network.

    Parameters
    ----------
    batch
        Images per step, of all workers in total.
    epochs
        Passes over the training images.
    optimizer
        "sgd" is plain gradient descent.
    learning_rate
        Step size of the optimizer.
    schedule
        "cosine" lowers the learning rate to 0 along half a cosine; "one-cycle" raises it first,
        in 30 % of the steps.
    weight_decay
        Factor of the L2 penalty.
    seed
        Seed of the initial weights, the order of the images, and their augmentation.
    workers
        Worker processes; 0 computes in this process, or with --hosts starts as many as these name.
    hosts
        Hosts of the workers, each with or without its number of workers, such as a:2,b:2.
    strategy
        The division of the work over the workers; "auto" chooses the fastest plan, and
        "weight-averaging:16:10" averages the weights of 16 replicas every 10 steps.
    device
        "auto", "cpu" or "cuda".
    precision
        Type in which the network computes; mixed precision has float32 parameters, and activations
        and gradients of the half type.
    data
        "idx" is a folder of IDX files, "images" a folder with the sub-folders train and val, each
        with a folder of image files for each class.
    data_path
        Folder of the data set's files, where it does not come with a package.
    image_size
        Height and width of the images; by default those of the data set, or the smallest that the
        network accepts, and for "images" those for which it was designed.
    augment
        Crop training images at random positions, and mirror those of CIFAR, Fashion-MNIST and
        "images"; by default for CIFAR and "images".
    corrupt
        The reaction to a file of "images" that is not readable: stop, warn, or ignore it; the next
        readable image replaces it.
    output
        Folder for history.json, history.png, weights.safetensors, options.json and the checkpoint;
        default runs/DATA for mlp, runs/NETWORK-DATA for others. Files of an earlier run in the
        folder are replaced.
    checkpoint
        Write the complete state of training after each epoch; by default for all networks but mlp.
    resume
        Resume from the checkpoint in the output folder, if there is one. A constant learning rate
        is that of the checkpoint.
    restarts
        How often training continues in a new pool after a worker was lost; it needs the checkpoint.
    tensorboard
        Write losses, metrics and learning rates for TensorBoard to the folder tensorboard in the
        output folder.
    json
        Print the result as one JSON object; everything else goes to standard error.
    """

    batch: Annotated[PositiveInt | None, Parameter(group=_TRAINING)] = None
    epochs: Annotated[PositiveInt | None, Parameter(group=_TRAINING)] = None
    optimizer: Annotated[OptimizerName | None, Parameter(group=_TRAINING)] = None
    learning_rate: Annotated[
        PositiveFloat | None, Parameter(name=("--learning-rate", "--lr"), group=_TRAINING)
    ] = None
    schedule: Annotated[ScheduleName | None, Parameter(group=_TRAINING)] = None
    weight_decay: Annotated[NonNegativeFloat | None, Parameter(group=_TRAINING)] = None
    seed: Annotated[NonNegativeInt, Parameter(group=_TRAINING)] = 0
    workers: Annotated[NonNegativeInt, Parameter(group=_MACHINE)] = 0
    hosts: Annotated[str | None, Parameter(group=_MACHINE)] = None
    strategy: Annotated[str, Parameter(group=_MACHINE)] = "auto"
    device: Annotated[str, Parameter(group=_MACHINE)] = "auto"
    precision: Annotated[
        Literal["float32", "mixed-bfloat16", "mixed-float16"], Parameter(group=_MACHINE)
    ] = "float32"
    data: Annotated[DataName | None, Parameter(group=_DATA)] = None
    data_path: Annotated[Path | None, Parameter(group=_DATA)] = None
    image_size: Annotated[PositiveInt | None, Parameter(group=_DATA)] = None
    augment: Annotated[bool | None, Parameter(group=_DATA)] = None
    corrupt: Annotated[Literal["error", "warn", "skip"], Parameter(group=_DATA)] = "error"
    output: Annotated[Path | None, Parameter(group=_OUTPUT)] = None
    checkpoint: Annotated[bool | None, Parameter(group=_OUTPUT)] = None
    resume: Annotated[bool, Parameter(group=_OUTPUT, negative=())] = False
    restarts: Annotated[NonNegativeInt, Parameter(group=_OUTPUT)] = 3
    tensorboard: Annotated[bool, Parameter(group=_OUTPUT, negative=())] = False
    json: Annotated[bool, Parameter(group=_OUTPUT, negative=())] = False


@final
@dataclass(frozen=True)
class TrainDefaults:
    """The defaults of a network."""

    title: str
    data: str = "fashion-mnist"
    batch: int = 128
    epochs: int = 30
    optimizer: OptimizerName = "momentum"
    learning_rate: float = 0.05
    schedule: ScheduleName = "cosine"
    weight_decay: float = 5e-4
    checkpoint: bool = True


_SMALL_STEPS = 0.01
"""The learning rate of momentum for GoogLeNet, which has no batch normalization."""


def _with_adam(title: str, batch: int = 128) -> TrainDefaults:
    """Return defaults for a deep chain of layers without batch normalization: Adam scales the steps
    of each layer, and the rate rises first, so that the first steps do not undo the initialization.
    """
    return TrainDefaults(
        title, batch=batch, optimizer="adam", learning_rate=3e-4, schedule="one-cycle"
    )


TRAIN_DEFAULTS: dict[str, TrainDefaults] = {
    "mlp": TrainDefaults(
        "a multi-layer perceptron",
        data="digits",
        batch=64,
        epochs=20,
        optimizer="adam",
        learning_rate=1e-3,
        schedule="constant",
        weight_decay=0.0,
        checkpoint=False,
    ),
    "lenet5": TrainDefaults(
        "LeNet-5",
        epochs=15,
        optimizer="adam",
        learning_rate=2e-3,
    ),
    "alexnet": _with_adam("AlexNet"),
    "alexnet_cifar": _with_adam("AlexNet for small images"),
    "vgg11": _with_adam("VGG-11", batch=64),
    "vgg16": _with_adam("VGG-16", batch=64),
    "googlenet": TrainDefaults("GoogLeNet", batch=64, learning_rate=_SMALL_STEPS),
    "inception_v3": TrainDefaults("Inception v3", batch=32),
    "resnet18": TrainDefaults("ResNet-18"),
    "resnet20": TrainDefaults("ResNet-20", epochs=10, learning_rate=0.1, schedule="one-cycle"),
    "resnet34": TrainDefaults("ResNet-34"),
    "resnet50": TrainDefaults("ResNet-50", batch=64),
    "mobilenet_v2": TrainDefaults("MobileNet v2"),
}

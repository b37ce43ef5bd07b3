"""Known networks: functions that return modules, which take images (N, channels, H, W) and return
scores (N, classes).

`NETWORKS` has all of them by name, with the images for which they were designed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from magmath.nn.module import Module
from magmath.nn.zoo.alexnet import alexnet, alexnet_cifar
from magmath.nn.zoo.auxiliary import auxiliary_cross_entropy
from magmath.nn.zoo.googlenet import googlenet
from magmath.nn.zoo.inception import inception_v3
from magmath.nn.zoo.lenet import lenet5
from magmath.nn.zoo.mlp import mlp
from magmath.nn.zoo.mobilenet import mobilenet_v2
from magmath.nn.zoo.resnet import resnet18, resnet20, resnet34, resnet50
from magmath.nn.zoo.vgg import vgg11, vgg16

__all__ = [
    "NETWORKS",
    "Architecture",
    "alexnet",
    "alexnet_cifar",
    "auxiliary_cross_entropy",
    "googlenet",
    "inception_v3",
    "lenet5",
    "mlp",
    "mobilenet_v2",
    "resnet18",
    "resnet20",
    "resnet34",
    "resnet50",
    "vgg11",
    "vgg16",
]


def __dir__() -> list[str]:
    return __all__


@final
@dataclass(frozen=True)
class Architecture:
    """A network of the zoo, which is called as its function: `NETWORKS["lenet5"](classes=10)`.

    make         the function that returns the module
    image        (channels, height, width) of the images for which the network was designed
    min_extent   the smallest height and width that it takes
    small        the settings for images smaller than half of `image`
    """

    make: Callable[..., Module]
    image: tuple[int, int, int]
    min_extent: int
    small: dict[str, Any]

    def __call__(self, **settings: Any) -> Module:
        """Return the network with these settings, such as `classes`."""
        return self.make(**settings)

    def for_images(self, height: int, width: int, **settings: Any) -> Module:
        """Return the network with the settings that suit images of this size."""
        chosen = self.small if 2 * min(height, width) < self.image[1] else {}
        return self.make(**{**chosen, **settings})


_SMALL_STEM = {"stem": "small"}

NETWORKS: dict[str, Architecture] = {
    "mlp": Architecture(mlp, (1, 28, 28), 1, {}),
    "lenet5": Architecture(lenet5, (1, 28, 28), 12, {}),
    "alexnet": Architecture(alexnet, (3, 224, 224), 63, {}),
    "alexnet_cifar": Architecture(alexnet_cifar, (3, 32, 32), 8, {}),
    "vgg11": Architecture(vgg11, (3, 224, 224), 32, {"units": 512}),
    "vgg16": Architecture(vgg16, (3, 224, 224), 32, {"units": 512}),
    "googlenet": Architecture(googlenet, (3, 224, 224), 32, {}),
    "inception_v3": Architecture(inception_v3, (3, 299, 299), 75, {}),
    "resnet18": Architecture(resnet18, (3, 224, 224), 1, _SMALL_STEM),
    "resnet20": Architecture(resnet20, (3, 32, 32), 1, {}),
    "resnet34": Architecture(resnet34, (3, 224, 224), 1, _SMALL_STEM),
    "resnet50": Architecture(resnet50, (3, 224, 224), 1, _SMALL_STEM),
    "mobilenet_v2": Architecture(mobilenet_v2, (3, 224, 224), 32, {}),
}
"""The networks by name."""

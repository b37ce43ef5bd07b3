"""Optional packages: imported on first use, or an error with the remedy."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from magmath.errors import MissingPackageError

_EXTRAS = {
    "h5py": "hdf5",
    "onnx": "onnx",
    "zarr": "zarr",
    "PIL.Image": "data",
    "tensorboard": "tensorboard",
}


def import_package(name: str, user: str) -> Any:
    """Import the module `name`, which a file or a function needs.

    Raises MissingPackageError with the pip command.
    """
    try:
        return import_module(name)
    except ImportError as error:
        raise MissingPackageError(
            f"{user} needs the package {name}, which is not installed ({error}); "
            f"pip install 'magmath[{_EXTRAS[name]}]'"
        ) from None

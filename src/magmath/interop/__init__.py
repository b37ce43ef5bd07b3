"""Models of other libraries."""

from magmath.interop.torch_module import TorchModule, from_torch

__all__ = ["TorchModule", "from_torch"]


def __dir__() -> list[str]:
    return __all__

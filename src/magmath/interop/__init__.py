"""Models of other libraries."""

from typing import TYPE_CHECKING, Any

from magmath.core.optional_packages import import_package
from magmath.interop.reading_torch.torch_module import TorchModule, from_torch

if TYPE_CHECKING:
    from magmath.interop.reading_onnx.onnx_module import OnnxModule as OnnxModule
    from magmath.interop.reading_onnx.onnx_module import from_onnx as from_onnx
    from magmath.interop.writing_onnx.onnx_export import to_onnx as to_onnx

_OF_ONNX = ("OnnxModule", "from_onnx", "to_onnx")
__all__ = ["OnnxModule", "TorchModule", "from_onnx", "from_torch", "to_onnx"]


def __getattr__(name: str) -> Any:
    """Import what needs the package onnx on first use."""
    if name not in _OF_ONNX:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    import_package("onnx", f"mm.interop.{name}")
    from magmath.interop.reading_onnx import onnx_module
    from magmath.interop.writing_onnx import onnx_export

    return getattr(onnx_export if name == "to_onnx" else onnx_module, name)


def __dir__() -> list[str]:
    return __all__

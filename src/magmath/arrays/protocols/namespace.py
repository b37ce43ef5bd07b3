"""The inspection functions of the array API: capabilities, devices and types of the namespace."""

from __future__ import annotations

from sys import modules
from typing import Any, final

from magmath.core.dtypes import DTYPES, KINDS, DType, int64
from magmath.core.promotion import default_complex_dtype, get_default_dtype
from magmath.core.shapes import MAX_DIMENSIONS
from magmath.engine.devices import check_device, current_device

VERSIONS = ("2021.12", "2022.12", "2023.12", "2024.12", "2025.12")
EXTENSIONS_OF_THE_STANDARD = ("float16", "bfloat16")  # types that magmath adds to the standard


@final
class NamespaceInfo:
    """The result of `mm.__array_namespace_info__()`."""

    def capabilities(self) -> dict[str, Any]:
        """Return which optional parts of the standard are supported."""
        return {
            "boolean indexing": True,
            "data-dependent shapes": True,
            "max dimensions": MAX_DIMENSIONS,
        }

    def default_device(self) -> str:
        """Return the device of new arrays, which is that of the current pool."""
        return current_device()

    def devices(self) -> tuple[str, ...]:
        """Return the available devices: only that of the current pool."""
        return (current_device(),)

    def default_dtypes(self, *, device: object = None) -> dict[str, DType]:
        """Return the default types of numbers; see `set_default_dtype`."""
        check_device("default_dtypes", device)
        return {
            "real floating": get_default_dtype(),
            "complex floating": default_complex_dtype(),
            "integral": int64,
            "indexing": int64,
        }

    def dtypes(
        self, *, device: object = None, kind: str | tuple[str, ...] | None = None
    ) -> dict[str, DType]:
        """Return the standard's types by name: all, or those of one or several kinds (see
        `isdtype`)."""
        check_device("dtypes", device)
        names = tuple(KINDS) if kind is None else (kind,) if isinstance(kind, str) else kind
        if unknown := set(names) - set(KINDS):
            raise ValueError(f"dtypes: no kind {unknown}; there are {', '.join(KINDS)}")
        element_kinds = frozenset().union(*(KINDS[name] for name in names))
        return {
            name: dtype
            for name, dtype in DTYPES.items()
            if dtype.kind in element_kinds and name not in EXTENSIONS_OF_THE_STANDARD
        }


def __array_namespace_info__() -> NamespaceInfo:
    """Return the namespace's capabilities, devices and types, as the array API requires."""
    return NamespaceInfo()


def array_namespace(api_version: str | None = None) -> Any:
    """Return the module with the functions on arrays. Raises ValueError for an unknown version."""
    if api_version not in (None, *VERSIONS):
        raise ValueError(
            f"array API version {api_version!r} is not known; there are {', '.join(VERSIONS)}"
        )
    return modules["magmath"]  # which Python imports before each of its modules

"""safetensors files: a JSON header with the type, shape and offset of each array, then the data.

Format: https://github.com/huggingface/safetensors, "Format". It is the only format with bfloat16.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, final

import msgspec

from magmath.core.dtypes import DTYPES
from magmath.errors import DataError, DTypeError, MagmathError
from magmath.files.array_specs import ArraySpec, RawBytes, array_spec, extend_file, name_error
from magmath.files.format_errors import entry_or_error

MAX_HEADER: Final = 100_000_000
"""The format's own limit, in bytes."""

_METADATA: Final = "__metadata__"
"""The name that the format reserves, for texts."""
_NO_TEXTS: Final = msgspec.Raw(b"{}")

_NAMES: Final = {
    "bool": "BOOL", "uint8": "U8", "int8": "I8", "uint16": "U16", "int16": "I16", "uint32": "U32",
    "int32": "I32", "uint64": "U64", "int64": "I64", "float16": "F16", "bfloat16": "BF16",
    "float32": "F32", "float64": "F64", "complex64": "C64",
}  # fmt: skip
_DTYPES: Final = {name: DTYPES[dtype] for dtype, name in _NAMES.items()}


NO_METADATA: Final[Mapping[str, str]] = MappingProxyType({})


@final
class _Tensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


def entries(path: str, name: str | None) -> dict[str, tuple[ArraySpec, RawBytes] | MagmathError]:
    """Return the arrays of a file by name, whatever `name` is, or the error of one that cannot be
    read. Raises DataError if the header is damaged or truncated."""
    return read_header(path)[0]


def read_header(
    path: str,
) -> tuple[dict[str, tuple[ArraySpec, RawBytes] | MagmathError], dict[str, str]]:
    """Return the arrays of a file by name, and its texts. Raises as `entries`."""
    size = os.path.getsize(path)
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(size - 8, MAX_HEADER):
            raise DataError(
                f"load: {path} is not a safetensors file, or its header is truncated"
                "; give the path of a safetensors file, or write it again"
            )
        header = file.read(length)
    try:
        tensors = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
        texts = msgspec.json.decode(tensors.pop(_METADATA, _NO_TEXTS), type=dict[str, str])
        described = {n: msgspec.json.decode(raw, type=_Tensor) for n, raw in tensors.items()}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise DataError(
            f"load: {path} has a damaged header: {error}; write the file again"
        ) from None
    return {
        name: entry_or_error(
            f"{path}: {name}", partial(_entry, path, name, tensor, 8 + length, size)
        )
        for name, tensor in described.items()
    }, texts


def _entry(
    path: str, name: str, tensor: _Tensor, begin: int, size: int
) -> tuple[ArraySpec, RawBytes]:
    dtype = _DTYPES.get(tensor.dtype)
    if dtype is None:
        raise DTypeError(
            f"load: {path}: {name} has elements of type {tensor.dtype}, which has no "
            f"counterpart here"
            "; convert it to float32 where it was written"
        )
    spec = array_spec(f"{path}: {name}", tensor.shape, dtype)
    first, last = tensor.data_offsets
    if first < 0 or last - first != spec.nbytes:
        raise DataError(
            f"load: {path}: {name} has shape {spec.shape} of {dtype}, but bytes {first} to {last}"
            "; write the file again"
        )
    if begin + last > size:
        raise DataError(
            f"load: {path} is truncated: {name} ends at byte {begin + last}, the file has {size}"
            "; write the file again"
        )
    return spec, RawBytes(begin + first)


def create(
    path: str, specs: Mapping[str, ArraySpec], metadata: Mapping[str, str] = NO_METADATA
) -> dict[str, RawBytes]:
    """Create a file with a header and space for the elements. Raises DataError for a header that
    readers of the format would refuse."""
    if _METADATA in specs:
        raise name_error("safetensors files", _METADATA, "it is the name of texts")
    tensors: dict[str, _Tensor] = {}
    position = 0
    for name, spec in specs.items():
        if spec.dtype.name not in _NAMES:
            raise DTypeError(
                f"save: safetensors files have no {spec.dtype}; save as .npy"
                ", or convert the array with mm.astype"
            )
        offsets = (position, position + spec.nbytes)
        tensors[name] = _Tensor(_NAMES[spec.dtype.name], list(spec.shape), offsets)
        position += spec.nbytes
    described = {_METADATA: metadata} if metadata else {}
    header = msgspec.json.encode({**described, **tensors})
    header += b" " * (-(8 + len(header)) % 64)  # aligns the elements to cache lines
    if len(header) > MAX_HEADER:
        raise DataError(
            f"save: the names and texts of a safetensors file have at most {MAX_HEADER} bytes, was "
            f"given {len(header)}; store long texts and lists as arrays"
        )
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
    begin = 8 + len(header)
    extend_file(path, begin + position)
    return {name: RawBytes(begin + tensor.data_offsets[0]) for name, tensor in tensors.items()}

"""Truth values as the bits of bytes: `packbits`, `unpackbits`."""

from __future__ import annotations

from typing import Any

from magmath.api.creation import zeros
from magmath.api.elementwise import truth_values
from magmath.api.manipulation import concat, moveaxis, reshape
from magmath.arrays.array import Array, as_array
from magmath.core.dtypes import bool_, uint8
from magmath.core.shapes import normalize_axis
from magmath.engine.user_line import user_line
from magmath.errors import DTypeError, OptionError
from magmath.graph import apply
from magmath.ops.bits import PACK_BITS, UNPACK_BITS


def _check_order(name: str, bitorder: str) -> None:
    if bitorder not in ("big", "little"):
        raise OptionError(f'{name}: bitorder is "big" or "little", was given {bitorder!r}')


def packbits(x: Any, /, axis: int | None = None, bitorder: str = "big") -> Array:
    """Return truth values as the bits of uint8 along an axis (of the flattened array for None),
    which is padded with zeros."""
    _check_order("packbits", bitorder)
    x = as_array("packbits", x)
    if not (x.dtype.is_integer or x.dtype is bool_):
        raise DTypeError(
            f"packbits: takes integers or truth values, was given {x.dtype}; write x != 0"
        )
    if axis is None:
        x, axis = reshape(x, (-1,)), 0
    dim = normalize_axis("packbits", axis, x.ndim)
    bits = moveaxis(truth_values("packbits", x), dim, -1)
    if missing := -bits.shape[-1] % 8:
        bits = concat([bits, zeros((*bits.shape[:-1], missing), dtype=bool_)], axis=-1)
    parts = reshape(bits, (*bits.shape[:-1], bits.shape[-1] // 8, 8))
    packed = apply(PACK_BITS, parts.node, bitorder=bitorder, line=user_line())
    return moveaxis(Array(packed), -1, dim)


def unpackbits(
    x: Any, /, axis: int | None = None, count: int | None = None, bitorder: str = "big"
) -> Array:
    """Return the bits of uint8 along an axis (of the flattened array for None), as 0 and 1 in
    uint8.

    count: the number of bits to return; a negative one omits that many at the end.
    """
    _check_order("unpackbits", bitorder)
    x = as_array("unpackbits", x)
    if axis is None:
        x, axis = reshape(x, (-1,)), 0
    dim = normalize_axis("unpackbits", axis, x.ndim)
    packed = moveaxis(x, dim, -1)
    octets = Array(apply(UNPACK_BITS, packed.node, bitorder=bitorder, line=user_line()))
    bits = reshape(octets, (*packed.shape[:-1], packed.shape[-1] * 8))
    if count is not None:
        extent = bits.shape[-1]
        if count > extent:
            none = zeros((*bits.shape[:-1], count - extent), dtype=uint8)
            bits = concat([bits, none], axis=-1)
        bits = bits[..., :count]
    return moveaxis(bits, -1, dim)

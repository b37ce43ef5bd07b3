"""The epilogue of a convolution: bias, residual and activation, applied while the result is in a
cache.

oneDNN adds the bias itself. What a library cannot apply, `finish` applies to blocks of the result
that fit a second-level cache, so that main memory is read and written once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, final

import torch

from magmath.core.cpu import second_level_cache

BLOCK_BYTES: Final = second_level_cache() // 2


@final
@dataclass(frozen=True, slots=True)
class Epilogue:
    """activation(y + bias + residual); `bias` broadcasts to y, `residual` has its shape, and may be
    y itself: then the result is added to the memory's content."""

    bias: torch.Tensor | None = None
    residual: torch.Tensor | None = None
    activation: str = "none"

    def __bool__(self) -> bool:
        return self != NO_EPILOGUE

    def has_residual_in(self, y: torch.Tensor) -> bool:
        """Return True if the residual is stored in the memory of y."""
        return self.residual is not None and self.residual.data_ptr() == y.data_ptr()

    def of(self, images: slice) -> Epilogue:
        """Return the epilogue of a part of the images."""
        residual = None if self.residual is None else self.residual[images]
        return replace(self, residual=residual)


NO_EPILOGUE: Final = Epilogue()
Index = tuple[Any, ...]


def finish(
    source: torch.Tensor, y: torch.Tensor, epilogue: Epilogue, parts: Sequence[Index]
) -> None:
    """Set y to the epilogue of `source`, which may be y, block by block (`blocks`)."""
    for part in parts:
        out = y[part]
        value = source[part]
        if epilogue.residual is not None:
            value = torch.add(value, epilogue.residual[part], out=out)
        if epilogue.bias is not None:
            value = torch.add(value, epilogue.bias, out=out)
        if epilogue.activation == "relu":
            value = torch.clamp_min(value, 0, out=out)
        if value.data_ptr() != out.data_ptr():
            out.copy_(value)


def blocks(y: torch.Tensor) -> Sequence[Index]:
    """Return the indices of blocks of images, or of rows of an image, of about `BLOCK_BYTES`."""
    if not y.numel():
        return ()
    image = y[0].nbytes
    images = max(1, BLOCK_BYTES // image)
    rows = max(1, min(y.shape[2], y.shape[2] * BLOCK_BYTES // image))
    return [
        (slice(i, i + images), slice(None), slice(j, j + rows))
        for i in range(0, y.shape[0], images)
        for j in range(0, y.shape[2], rows)
    ]

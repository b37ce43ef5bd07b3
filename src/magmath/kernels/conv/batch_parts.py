"""Parts of a batch, for functions of libraries that allocate their results.

torch's convolutions and gradients of pooling return new tensors, and oneDNN allocates operands and
results in orders of its own, with channels rounded up. Together they can take several times the
memory of the images. So kernels call such functions for a few images at a time, and copy each part
to its place.
"""

from __future__ import annotations

from collections.abc import Sequence

PART_BYTES = 8 << 20


def batch_parts(count: int, nbytes: int, min_bytes: int = 0) -> Sequence[slice]:
    """Return equal parts of `count` images that take `nbytes` in total: of `PART_BYTES` or of
    `min_bytes`, whichever is more, but of one image at least."""
    fitting = max(1, count * max(PART_BYTES, min_bytes) // max(nbytes, 1))
    parts = -(-count // fitting)
    size = -(-count // max(parts, 1))
    return [slice(first, first + size) for first in range(0, count, max(size, 1))]

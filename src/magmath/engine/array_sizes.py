"""Sizes of small arrays, which are computed and stored in another way than large ones."""

from __future__ import annotations

MAX_EAGER_BYTES = 256 << 10
"""The size of the largest array for which computing node by node beats a program of one worker: at
twice this size, programs that fuse a few element-wise operations take the same time."""
MAX_REPLICATED_BYTES = 128 << 10
"""The size of the largest array that is replicated by default, not split. Up to this size computing
node by node also beats programs of several workers, which are messages."""

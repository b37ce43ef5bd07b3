"""Sizes of small arrays, which are computed and stored in another way than large ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

if TYPE_CHECKING:
    from magmath.runtime.pool import Pool

MAX_BYTES_INLINE = 256 << 10
"""The size of the largest small array if the only worker is in this process. Up to it, computing
node by node beats a program of one worker: at twice this size, programs that fuse a few
element-wise operations take the same time."""
MAX_BYTES_WITH_WORKERS = 128 << 10
"""The same for pools with other workers, whose programs are messages. Arrays up to this size are
replicated by default, not split."""


@final
@dataclass(frozen=True)
class SmallSizes:
    """The sizes, in bytes, of the largest arrays that are computed without a program.

    interpreted  when their values are needed, by the worker of this process
    eager        when their expressions are built, in this process
    """

    interpreted: int
    eager: int

    @staticmethod
    def of(pool: Pool) -> SmallSizes:
        """Return the sizes for a pool."""
        size = MAX_BYTES_INLINE if pool.is_inline else MAX_BYTES_WITH_WORKERS
        is_eager = not pool.deterministic and pool.memory_limit is None and pool.is_on_cpu
        return SmallSizes(size, size if is_eager else 0)

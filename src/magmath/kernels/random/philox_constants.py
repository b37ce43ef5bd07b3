"""The constants of Philox4x32-10, and the kinds of numbers that are made of its words."""

from __future__ import annotations

from typing import Final

import torch

LOW: Final = 0xFFFFFFFF
"""The lower 32 bits."""
MULTIPLIER_0: Final = 0xD2511F53
MULTIPLIER_1: Final = 0xCD9E8D57
WEYL_0: Final = 0x9E3779B9
WEYL_1: Final = 0xBB67AE85
ROUNDS: Final = 10

UNIFORM, NORMAL, BITS, EXPONENTIAL = 0, 1, 2, 3

SeedOrStream = int | torch.Tensor
"""A seed or a stream: an integer, or a 0-d int64 tensor, which the host does not wait for if it is
on a GPU."""

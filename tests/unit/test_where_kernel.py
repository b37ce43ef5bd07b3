"""`where` by words of bits: the bits of torch's, for every type and memory order."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from magmath.kernels import selection

TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64, torch.int8,
         torch.int64, torch.bool]  # fmt: skip


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.flatten().clone().view(torch.uint8)


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.sampled_from(TYPES),
    st.permutations(range(4)),
    st.integers(0, 15),
    st.sampled_from(["new", "x", "y"]),
)
@settings(deadline=None)
def test_equal_bits(
    shape: list[int], dtype: torch.dtype, order: list[int], broadcast: int, target: str
) -> None:
    """Of views in any order, operands that are broadcast, and results in an operand's memory."""
    order = [axis for axis in order if axis < len(shape)]

    def random(extents: list[int]) -> torch.Tensor:
        numbers = torch.randn([extents[axis] for axis in order]) * 3
        numbers[numbers > 2.5] = torch.nan
        if dtype in (torch.int8, torch.int64):
            numbers = numbers.nan_to_num()
        placed = numbers.to(dtype)
        return placed.permute([order.index(axis) for axis in range(len(shape))])

    small = [1 if broadcast >> axis & 1 else n for axis, n in enumerate(shape)]
    x, y = random(shape), random(shape if target == "y" else small)
    condition = torch.rand(shape) < 0.5
    expected = torch.where(condition, x, y)
    out = {"new": random(shape), "x": x, "y": y}[target]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(selection, "BLOCK_ELEMENTS", 50)
        selection.bind(condition, x, y, out)()
    assert torch.equal(_bits(out), _bits(expected))


def test_only_large_arrays_of_one_type() -> None:
    x = torch.zeros(selection.MIN_ELEMENTS)
    condition = x > 0
    assert selection.can_bind(condition, x, x, x)
    assert not selection.can_bind(condition[1:], x[1:], x[1:], x[1:])
    assert not selection.can_bind(condition, x.double(), x, x)
    assert not selection.can_bind(condition, x.to(torch.complex128), *[x.to(torch.complex128)] * 2)

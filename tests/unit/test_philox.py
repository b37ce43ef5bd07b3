"""Philox against published vectors, and its fills against each other: tiles, devices, scalars.

The fills for other devices run here on the processor; both must return the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from magmath.core.index_set import IndexSet, Tile, tile_shape
from magmath.errors import DTypeError
from magmath.kernels.random import philox, philox_tensors, portable_math

Fill = Callable[[torch.Tensor, Tile, tuple[int, ...], int, int], None]

# Each fill with the types it makes, its kind for `fill_tensor`, and the bits of a type.
FLOATS = {torch.float32: 24, torch.float64: 53, torch.float16: 11, torch.bfloat16: 8}
CASES: list[tuple[Fill, torch.dtype, int, int]] = [
    *((philox.fill_uniform, dtype, 0, bits) for dtype, bits in FLOATS.items()),
    *((philox.fill_normal, dtype, 1, bits) for dtype, bits in FLOATS.items()),
    *((philox.fill_exponential, dtype, 3, bits) for dtype, bits in FLOATS.items()),
    (philox.fill_bits, torch.int64, 2, 63),
]
each_case = pytest.mark.parametrize(
    ("fill", "dtype", "kind", "bits"),
    CASES,
    ids=[f"{c[0].__name__}-{str(c[1]).removeprefix('torch.')}" for c in CASES],
)

words = st.integers(-(2**63), 2**63 - 1)


def whole(shape: tuple[int, ...]) -> Tile:
    return tuple(IndexSet.range(0, extent) for extent in shape)


def filled(fill: Fill, dtype: torch.dtype, shape: tuple[int, ...], tile: Tile) -> torch.Tensor:
    out = torch.empty(tile_shape(tile), dtype=dtype)
    fill(out, tile, shape, 12, 34)
    return out


@st.composite
def tiled(draw: Any) -> tuple[tuple[int, ...], Tile]:
    """A shape and a part of it: ranges, cyclic and irregular sets of indices, also empty ones."""
    shape = tuple(draw(st.lists(st.integers(1, 9), min_size=0, max_size=3)))
    tile = []
    for extent in shape:
        kept = draw(st.lists(st.integers(0, extent - 1), unique=True).map(sorted))
        some = IndexSet.from_segments(kept, [i + 1 for i in kept])
        tile.append(draw(st.sampled_from([IndexSet.range(0, extent), some])))
    return shape, tuple(tile)


@pytest.mark.parametrize(
    ("key", "counter", "expected"),
    [  # philox4x32, 10 rounds, from Random123's kat_vectors
        ((0, 0), (0, 0, 0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 4, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0xA4093822, 0x299F31D0),
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_known_answers(key: tuple[int, ...], counter: tuple[int, ...], expected: str) -> None:
    seed, block, stream = (low | high << 32 for low, high in (key, counter[:2], counter[2:]))
    actual = np.empty(4, np.uint64)
    philox.CODE.function("generate")(actual.ctypes.data, seed, stream, block, 1)
    assert " ".join(f"{int(word):08x}" for word in actual) == expected


@each_case
@given(part=tiled())
def test_a_tile_is_that_part_of_the_whole(
    fill: Fill, dtype: torch.dtype, kind: int, bits: int, part: tuple[tuple[int, ...], Tile]
) -> None:
    shape, tile = part
    expected = filled(fill, dtype, shape, whole(shape))
    for d, indices in enumerate(tile):
        expected = expected.index_select(d, torch.as_tensor(indices.indices()))
    assert torch.equal(filled(fill, dtype, shape, tile), expected)


@each_case
def test_both_implementations_agree_bit_for_bit(
    fill: Fill, dtype: torch.dtype, kind: int, bits: int
) -> None:
    shape = (61, 1031)
    tile = IndexSet.regular(1, 61, 2, 5), IndexSet.range(3, 1030)
    compiled, tensors = (torch.empty(tile_shape(tile), dtype=dtype) for _ in range(2))
    fill(compiled, tile, shape, -7, 2**40 + 5)
    philox_tensors.fill_by_torch(tensors, tile, shape, -7, 2**40 + 5, kind, bits)
    assert torch.equal(compiled, tensors)


@each_case
def test_strided_tensors_keep_the_elements_in_between(
    fill: Fill, dtype: torch.dtype, kind: int, bits: int
) -> None:
    memory = torch.full((12, 10), 77, dtype=dtype)
    out = memory[::2, 1::3].T
    fill(out, whole((3, 6)), (3, 6), 12, 34)
    assert torch.equal(out, filled(fill, dtype, (3, 6), whole((3, 6))))
    assert (memory[1::2] == 77).all()
    assert (memory[:, ::3] == 77).all()


@each_case
def test_seed_and_stream_change_the_numbers(
    fill: Fill, dtype: torch.dtype, kind: int, bits: int
) -> None:
    tile, drawn = whole((64,)), []
    for seed, stream in ((0, 0), (1, 0), (2**32, 0), (0, 1), (0, 2**32), (-1, 0), (0, -1)):
        out = torch.empty(64, dtype=dtype)
        fill(out, tile, (64,), seed, stream)
        drawn.append(tuple(out.tolist()))
    assert len(set(drawn)) == len(drawn)


@given(seed=words, stream=words, start=st.integers(0, 2**40))
def test_the_scalar_gives_the_bits_of_the_fill(seed: int, stream: int, start: int) -> None:
    out = torch.empty(9)
    philox.fill_uniform(out, (IndexSet.range(start, start + 9),), (start + 9,), seed, stream)
    assert [philox.uniform32(seed, stream, start + i) for i in range(9)] == out.tolist()


@pytest.mark.parametrize("dtype", FLOATS)
def test_uniform_is_even_and_below_one(dtype: torch.dtype) -> None:
    values = filled(philox.fill_uniform, dtype, (200_000,), whole((200_000,))).double()
    assert values.min() >= 0
    assert values.max() < 1
    counts = torch.histc(values, 16, 0, 1)
    chi_square = ((counts - 12_500) ** 2 / 12_500).sum()
    assert chi_square < 50  # 15 degrees of freedom: exceeded once in 10^5 seeds


@pytest.mark.parametrize("dtype", FLOATS)
def test_normal_has_its_moments(dtype: torch.dtype) -> None:
    values = filled(philox.fill_normal, dtype, (200_000,), whole((200_000,))).double()
    moments = [float((values**power).mean()) for power in (1, 2, 3, 4)]
    assert moments == pytest.approx([0, 1, 0, 3], abs=0.06)
    pairs = values.view(-1, 2)  # cosine and sine of one pair are independent
    assert float((pairs[:, 0] * pairs[:, 1]).mean()) == pytest.approx(0, abs=0.02)


@pytest.mark.parametrize("dtype", FLOATS)
def test_the_least_exponential_numbers_are_positive_in_every_type(dtype: torch.dtype) -> None:
    """Of these seed and stream, elements whose words are below 128 of 2^32: -log of them is less
    than half of float16's least positive number."""
    tile = (IndexSet.from_segments([2840068, 16170304], [2840069, 16170305]),)
    compiled, tensors = (torch.empty(2, dtype=dtype) for _ in range(2))
    philox.fill_exponential(compiled, tile, (1 << 28,), 3, 5)
    philox_tensors.fill_by_torch(tensors, tile, (1 << 28,), 3, 5, 3, FLOATS[dtype])
    assert torch.equal(compiled, tensors)
    assert (compiled > 0).all()
    if FLOATS[dtype] < 32:
        assert (compiled < 2.0**-23).all()


def test_bits_use_all_63() -> None:
    values = filled(philox.fill_bits, torch.int64, (4096,), whole((4096,)))
    assert values.min() >= 0
    set_often = [int((values >> bit & 1).sum()) for bit in range(63)]
    assert all(1800 < count < 2300 for count in set_often)


@given(count=st.integers(0, 300), more=st.integers(0, 2000), seed=words)
def test_a_permutation_holds_each_number_once(count: int, more: int, seed: int) -> None:
    order = philox.permutation(count, count, seed, 5)
    assert order.dtype == torch.int64
    assert order.sort().values.tolist() == list(range(count))
    first = philox.permutation(count, count + more, seed, 5).tolist()
    assert len(set(first)) == count
    assert set(first) <= set(range(count + more))


def test_a_permutation_depends_on_seed_and_stream() -> None:
    drawn = [philox.permutation(50, 50, *key).tolist() for key in ((1, 2), (1, 2), (2, 2), (1, 3))]
    assert drawn[0] == drawn[1]
    assert len(set(map(tuple, drawn))) == 3


@pytest.mark.parametrize("below", [6, 12])
def test_each_number_is_as_frequent_at_each_place(below: int) -> None:
    drawn = torch.stack([philox.permutation(3, below, 7, stream) for stream in range(1000 * below)])
    for place in drawn.T:
        assert all(850 < int((place == number).sum()) < 1150 for number in range(below))
    pairs = torch.bincount(drawn[:, 0] * below + drawn[:, 1], minlength=below * below)
    counts = pairs.reshape(below, below)
    assert int(counts.diagonal().sum()) == 0
    expected = 1000 / (below - 1)
    others = counts[~torch.eye(below, dtype=torch.bool)]
    assert 0.4 * expected < int(others.min()) < int(others.max()) < 1.6 * expected


def test_a_type_that_is_not_made_is_refused() -> None:
    with pytest.raises(DTypeError, match=r"float32.*given torch\.int32"):
        philox.fill_uniform(torch.empty(3, dtype=torch.int32), whole((3,)), (3,), 0, 0)
    with pytest.raises(DTypeError, match="int64"):
        philox.fill_bits(torch.empty(3), whole((3,)), (3,), 0, 0)


def test_elementary_functions_are_accurate() -> None:
    for angle in np.linspace(-0.125, 0.125, 1001):
        assert portable_math.cosine_series(angle) == pytest.approx(
            math.cos(math.tau * angle), 1e-15
        )
        assert portable_math.sine_series(angle) == pytest.approx(
            math.sin(math.tau * angle), rel=4e-16, abs=1e-300
        )
    for mantissa in np.linspace(math.sqrt(0.5), math.sqrt(2), 1001):
        result = portable_math.log_series(mantissa, -3.0)
        assert result == pytest.approx(math.log(mantissa) - 3 * math.log(2), rel=4e-16)

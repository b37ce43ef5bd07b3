"""The Fourier transforms of local tensors, by either library, on tensors with any strides."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from magmath.kernels.fft import fft, mkl_fft

PROVIDERS = ["dfti", "torch"]
SHAPES = st.lists(st.integers(1, 7), min_size=1, max_size=4)
REAL_OF = {torch.complex64: torch.float32, torch.complex128: torch.float64}


@pytest.fixture(params=PROVIDERS)
def provider(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Transforms with MKL's routines for everything that they support, or without them."""
    if request.param == "torch":
        monkeypatch.setattr(mkl_fft, "_library", lambda: None)
    elif mkl_fft._library() is None:
        pytest.skip("this torch brings no MKL")
    monkeypatch.setattr(mkl_fft, "CALL_ELEMENTS", 1)
    return str(request.param)


def strided(data: st.DataObject, shape: list[int], dtype: torch.dtype) -> torch.Tensor:
    """Memory of some shape, its axes in any order, with or without gaps between the elements."""
    order = data.draw(st.permutations(range(len(shape))))
    gaps = [data.draw(st.sampled_from([1, 1, 2])) for _ in shape]
    whole = torch.full([shape[d] * gaps[d] for d in order], torch.nan, dtype=dtype)
    spaced = whole[tuple(slice(None, None, gaps[d]) for d in order)]
    return spaced.permute([order.index(d) for d in range(len(shape))])


def numbers(data: st.DataObject, x: torch.Tensor) -> torch.Tensor:
    """The tensor with numbers in it."""
    generator = torch.Generator().manual_seed(data.draw(st.integers(0, 99)))
    return x.copy_(torch.randn(x.shape, dtype=x.dtype, generator=generator))


def check(out: torch.Tensor, expected: np.ndarray) -> None:
    limit = 1e-5 if out.dtype in (torch.complex64, torch.float32) else 1e-13
    np.testing.assert_allclose(out.numpy(), expected, rtol=0, atol=limit * 50)


drawn = {
    "data": st.data(),
    "shape": SHAPES,
    "dtype": st.sampled_from(list(REAL_OF)),
    "inverse": st.booleans(),
    "norm": st.sampled_from(["backward", "ortho", "forward"]),
}
some = settings(max_examples=60, suppress_health_check=list(HealthCheck))


@given(**drawn, in_place=st.booleans())
@some
def test_complex(
    provider: str, data: st.DataObject, shape: list[int], dtype: torch.dtype, inverse: bool,
    norm: str, in_place: bool,
) -> None:  # fmt: skip
    x = numbers(data, strided(data, shape, dtype))
    out = x if in_place else strided(data, shape, dtype)
    axes = data.draw(st.lists(st.sampled_from(range(len(shape))), min_size=1, unique=True))
    expected = (np.fft.ifftn if inverse else np.fft.fftn)(x.numpy(), axes=axes, norm=norm)
    before = x.clone()
    fft.transform(out, x, tuple(axes), inverse=inverse, norm=norm)()
    check(out, expected)
    assert in_place or torch.equal(x, before)


@given(**drawn)
@some
def test_of_real(
    provider: str, data: st.DataObject, shape: list[int], dtype: torch.dtype, inverse: bool,
    norm: str,
) -> None:  # fmt: skip
    x = numbers(data, strided(data, shape, REAL_OF[dtype]))
    axis = data.draw(st.sampled_from(range(len(shape))))
    expected = (np.fft.ihfft if inverse else np.fft.rfft)(x.numpy(), axis=axis, norm=norm)
    out = strided(data, list(expected.shape), dtype)
    fft.transform_of_real(out, x, axis, inverse=inverse, norm=norm)()
    check(out, expected)


@given(**drawn)
@some
def test_to_real(
    provider: str, data: st.DataObject, shape: list[int], dtype: torch.dtype, inverse: bool,
    norm: str,
) -> None:  # fmt: skip
    axis = data.draw(st.sampled_from(range(len(shape))))
    n = shape[axis]
    x = numbers(data, strided(data, [*shape[:axis], n // 2 + 1, *shape[axis + 1 :]], dtype))
    function = np.fft.irfft if inverse else np.fft.hfft
    expected = function(x.numpy(), n, axis=axis, norm=norm)
    out, before = strided(data, shape, REAL_OF[dtype]), x.clone()
    fft.transform_to_real(out, x, axis, inverse=inverse, norm=norm)()
    check(out, expected)
    assert torch.equal(x, before)

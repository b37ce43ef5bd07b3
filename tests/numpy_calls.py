"""Calls as NumPy's users write them, evaluated with `np` as NumPy and as magmath.

Each line is one call. The names of arrays are those of `samples`. The parts of a result and their
element types are compared.
"""

from __future__ import annotations

from typing import Any

import numpy


def samples() -> dict[str, Any]:
    """Arrays by name: of each kind of numbers, 0-d, empty, of one to three dimensions."""
    random = numpy.random.default_rng(7)
    m = random.normal(size=(7, 5))
    n = m.copy()
    n[random.random(n.shape) < 0.3] = numpy.nan
    n[:, 2] = m[:, 2]
    return {
        "v": random.normal(size=11),
        "w": random.normal(size=11),
        "s": numpy.sort(random.normal(size=9)),
        "m": m,
        "p": numpy.abs(m) + 0.1,
        "n": n,
        "nn": numpy.full((3, 2), numpy.nan),
        "t": random.normal(size=(3, 4, 5)),
        "q": random.normal(size=(5, 5)),
        "z": numpy.array(2.5),
        "e": numpy.zeros((0, 3)),
        "i": random.integers(-5, 9, 12),
        "j": random.integers(0, 6, (4, 3)),
        "k": random.integers(1, 60, 12),
        "b": random.random((4, 3)) < 0.5,
        "u": random.integers(0, 256, (3, 5)).astype("uint8"),
        "c": random.normal(size=6) + 1j * random.normal(size=6),
        "x": numpy.array([0.0, -0.0, 1.5, -2.5, numpy.inf, -numpy.inf, numpy.nan, 1e-300, 3e10]),
        "f": random.normal(size=(4, 3)).astype("float32"),
    }


ELEMENTWISE = """
np.absolute(m); np.fabs(i); np.cbrt(v); np.cbrt(x); np.exp2(v); np.exp2(i); np.deg2rad(v); np.rad2deg(v)
np.degrees(v); np.radians(v); np.fix(v); np.rint(v); np.around(v, 2); np.round(i, -1); np.round(m, 1)
np.sinc(v); np.spacing(v); np.spacing(x); np.logaddexp2(f, b); np.logaddexp2(u, f[:3, :1].astype("float16")); np.logaddexp2(k, j[0, 0]); np.spacing(f); np.arcsin(v / 9); np.arccos(v / 9); np.arctan(v); np.arctan2(v, w)
np.arcsinh(v); np.arccosh(p + 1); np.arctanh(v / 9); np.conjugate(c); np.invert(i); np.bitwise_not(i)
np.left_shift(k, 2); np.right_shift(k, 1); np.mod(i, 4); np.power(p, 2); np.true_divide(i, 3); np.float_power(k, 2)
np.fmax(n, m); np.fmin(n, m); np.fmod(v, w); np.fmod(i, k); np.heaviside(x, 0.5); np.isneginf(x); np.isposinf(x)
np.divmod(i, 4); np.modf(v); np.modf(x); np.frexp(v); np.frexp(x); np.ldexp(v, i[:11]); np.ldexp(v[:4], b[:, 0]); np.logaddexp2(v, w)
np.nan_to_num(x); np.nan_to_num(n, nan=-1.0); np.nan_to_num(x, posinf=1.0, neginf=2.0); np.i0(v * 5); np.copysign(v, w)
np.gcd(i, k); np.lcm(i, k); np.gcd(k, 12); np.bitwise_count(i); np.bitwise_count(u); np.packbits(b); np.packbits(b, axis=0)
np.packbits(b, axis=1, bitorder='little'); np.unpackbits(u); np.unpackbits(u, axis=1); np.unpackbits(u, axis=0, count=20)
np.unpackbits(u, count=-3, bitorder='little'); np.isclose(m, m + 1e-9); np.isclose(x, x, equal_nan=True); np.isclose(x, 1.5)
np.angle(c); np.angle(c, deg=True); np.angle(v); np.isreal(c); np.iscomplex(c); np.iscomplexobj(c); np.isrealobj(v)
np.real_if_close(c); np.real_if_close(c * 0); np.sort_complex(c); np.logical_and(i, k); np.logical_or(j, b); np.logical_xor(i, k)
np.logical_not(i); np.clip(v, -1, 1); np.clip(v, a_min=0, a_max=None); np.clip(i, 0, 5)
np.add(m, 1, dtype='float32'); np.unwrap(v * 4); np.unwrap(m * 4, axis=0); np.unwrap(i, period=4); np.maximum(n, m); np.sqrt(i * 1.0 + 9)
np.acos(v / 9); np.acosh(p + 1); np.asin(v / 9); np.asinh(v); np.atan(v); np.atanh(v / 9); np.atan2(v, w); np.bitwise_invert(i); np.bitwise_left_shift(k, 2)
np.bitwise_right_shift(k, 1); np.ceil(v); np.floor(v); np.conj(c); np.cos(v); np.sin(v); np.tan(v); np.cosh(v); np.sinh(v); np.tanh(v); np.divide(v, 2); np.equal(i, k)
np.not_equal(i, k); np.greater(v, w); np.greater_equal(v, 0); np.less_equal(i, 2); np.expm1(v); np.floor_divide(i, 4); np.imag(c); np.real(c); np.isfinite(x); np.isinf(x); np.isnan(n)
np.log(p); np.log10(p); np.log1p(p); np.pow(p, 3); np.remainder(v, 0.7); np.signbit(x); np.imag(v)
np.positive(v); np.negative(i); np.square(i); np.reciprocal(p); np.sign(v); np.trunc(v); np.hypot(v, w); np.nextafter(v, w)
"""

REDUCTIONS = """
np.sum(m); np.sum(m, 0); np.sum(t, axis=(0, 2), keepdims=True); np.sum(b); np.sum(i, dtype=float); np.sum(m, initial=3.0)
np.sum(m, where=m > 0); np.prod(m, 1); np.max(t, 1); np.min(m, initial=-9.0); np.amax(m, 0); np.amin(m, 0); np.max(m, 0, where=m > 0, initial=0.0)
np.mean(m); np.mean(i); np.mean(t, (0, 1)); np.mean(m, where=m > 0); np.mean(f); np.std(m, ddof=1); np.var(t, 0); np.var(m, 1, ddof=1)
np.std(m, axis=0, where=m > -1); np.var(c); np.any(i > 3); np.all(b, 0); np.any(b, axis=1, keepdims=True); np.all(m > -9, where=m > 0)
np.cumsum(m); np.cumsum(t, 1); np.cumprod(v); np.cumprod(m, axis=1); np.cumulative_sum(v, include_initial=True); np.cumulative_prod(v)
np.count_nonzero(i); np.count_nonzero(b, axis=0); np.ptp(m); np.ptp(m, 0); np.argmax(m); np.argmax(t, 1); np.argmin(m, axis=0, keepdims=True)
np.nansum(n); np.nansum(n, 0); np.nanprod(n, 1); np.nanmax(n); np.nanmax(n, 0); np.nanmin(n, 1, keepdims=True); np.nanmean(n); np.nanmean(n, 0)
np.nanvar(n, 1); np.nanvar(n, 0, ddof=5); np.nanstd(n, 1, ddof=4, keepdims=True); np.nanvar(n, 1, ddof=2, where=n > -0.5); np.nanstd(n, ddof=1); np.nanstd(n, axis=0); np.nancumsum(n); np.nancumsum(n, 1); np.nancumprod(n, 0); np.nanargmax(n); np.nanargmin(n, 0)
np.nanmedian(n); np.nanmedian(n, 0); np.nanmedian(n, axis=1, keepdims=True); np.nanquantile(n, 0.3); np.nanquantile(n, [0.1, 0.9], axis=0)
np.nanpercentile(n, 40, axis=1); np.nanquantile(n, 0.4, axis=1, method='hazen'); np.nansum(i); np.nanmax(i); np.nanmean(i); np.nansum(nn, 0)
np.median(v); np.median(m); np.median(m, 0); np.median(t, axis=(0, 2)); np.median(m, axis=1, keepdims=True); np.median(i); np.median(n, 0)
np.quantile(v, 0.25); np.quantile(m, [0.1, 0.5, 1.0], axis=1); np.percentile(m, 30); np.percentile(t, [[5, 10], [50, 95]], axis=2); np.quantile(i, 0.5)
np.quantile(v, 0.3, method='lower'); np.quantile(v, 0.3, method='higher'); np.quantile(v, 0.35, method='midpoint'); np.quantile(v, 0.33, method='nearest')
np.quantile(v, [0, 0.3, 1], method='hazen'); np.quantile(v, [0, 0.3, 1], method='weibull'); np.quantile(v, 0.3, method='median_unbiased')
np.quantile(v, 0.3, method='normal_unbiased'); np.quantile(v, [0, 0.3, 1], method='inverted_cdf'); np.quantile(v, 0.3, method='averaged_inverted_cdf')
np.quantile(v, 0.3, method='closest_observation'); np.quantile(v, 0.3, method='interpolated_inverted_cdf'); np.quantile(m, 0.2, axis=0, keepdims=True)
np.average(m); np.average(m, 0); np.average(m, axis=1, weights=[1, 2, 3, 4, 5]); np.average(m, weights=p); np.average(m, axis=0, weights=p, returned=True)
np.cov(m); np.cov(m, rowvar=False); np.cov(v, w); np.cov(m, bias=True); np.cov(m, ddof=0); np.cov(v); np.cov(m, aweights=[1., 2, 3, 4, 5]); np.cov(m, fweights=[1, 2, 3, 1, 2])
np.corrcoef(m); np.corrcoef(v, w); np.corrcoef(m, rowvar=False); np.sum(e, 0); np.sum(e); np.prod(e); np.sum(z); np.mean(z); np.sum([1, 2, 3]); np.mean([1.5, 2])
np.add.reduce(m); np.add.reduce(m, axis=1); np.multiply.reduce(v); np.maximum.reduce(t, axis=(0, 1)); np.logical_and.reduce(b); np.logical_or.reduce(b, axis=None)
np.bitwise_or.reduce(k); np.bitwise_xor.reduce(k); np.bitwise_and.reduce(j, axis=1); np.logaddexp.reduce(v); np.hypot.reduce(v); np.logical_xor.reduce(b, axis=1)
np.add.accumulate(v); np.multiply.accumulate(m, axis=1); np.maximum.accumulate(v); np.minimum.accumulate(m, axis=0); np.bitwise_xor.accumulate(k); np.logaddexp.accumulate(v)
np.add.outer(v, w); np.multiply.outer(m, v); np.subtract.outer(i, k); np.maximum.outer(v, m); np.less.outer(v, w)
"""

SHAPES = """
np.ravel(m); np.ravel(m, order='F'); np.reshape(t, (5, 12), order='F'); np.reshape(m, -1); np.transpose(t); np.transpose(t, (1, 2, 0)); np.swapaxes(t, 0, 2)
np.rollaxis(t, 2); np.rollaxis(t, 0, 3); np.moveaxis(t, 0, -1); np.atleast_1d(z); np.atleast_1d(z, v); np.atleast_2d(v); np.atleast_3d(m); np.atleast_3d(v)
np.concat([v, w]); np.row_stack([v, w]); np.vstack([v, w]); np.vstack((m, m)); np.hstack([v, w]); np.hstack([m, m]); np.dstack([m, m]); np.dstack([v, w]); np.column_stack([v, w]); np.column_stack([m, m])
np.stack([m, m], 1); np.stack([v, w], axis=-1); np.concatenate([m, m]); np.concatenate((v, i)); np.concatenate([m, m], axis=None); np.concatenate([m, m], dtype='float32')
np.append(v, [1, 2]); np.append(m, m, axis=0); np.append(v, 3.0); np.block([[q, q], [q, q]]); np.block([v, w]); np.block([[np.ones((2, 2)), np.zeros((2, 3))]])
np.array_split(v, 3); np.array_split(m, [2, 5]); np.split(i, 4); np.split(m, [3]); np.hsplit(j, 3); np.vsplit(j, 2); np.dsplit(t, 5); np.hsplit(i, 2); np.array_split(m, 3, axis=1)
np.fliplr(m); np.flipud(m); np.flip(t); np.flip(t, 1); np.rot90(m); np.rot90(m, 2); np.rot90(m, -1); np.rot90(t, axes=(1, 2)); np.roll(v, 3); np.roll(m, 2, axis=1); np.roll(m, (1, 2), 1); np.roll(m, [2], (0, 1)); np.transpose(v, 0); np.roll(m, (1, 2), (0, 1))
np.resize(v, (3, 5)); np.resize(i, 5); np.delete(v, 3); np.delete(m, [1, 3], axis=0); np.delete(m, slice(1, 4), 1); np.delete(v, -1); np.delete(v, [0, 2, 4]); np.delete(m, 2)
np.insert(v, 3, 9.0); np.insert(v, [1, 4], [7., 8.]); np.insert(m, 1, v[:5], axis=0); np.insert(m, 2, 5, axis=1); np.insert(v, slice(1, 4), 0); np.insert(v, -2, [1., 2.]); np.insert(m, 1, v[:7], axis=1)
np.repeat(v, 3); np.repeat(z, 2, axis=0); np.repeat(v[:0], []); np.repeat(v[:2], [True, False]); np.squeeze(z, 0); np.argsort(z); np.argpartition(z, 0); np.repeat(m, 2, 1); np.repeat(i, k); np.tile(v, 2); np.tile(m, (2, 3)); np.squeeze(m[None, :, None]); np.squeeze(m[None], 0); np.expand_dims(m, 1); np.expand_dims(m, (0, 3))
np.broadcast_to(v, (3, 11)); np.broadcast_to(z, 4); np.broadcast_arrays(v, z); np.broadcast_shapes((3, 1), 4); np.trim_zeros(np.array([0, 0, 1, 2, 0])); np.trim_zeros(np.array([0, 0, 1, 2, 0]), 'f')
np.pad(v, 2); np.pad(m, ((1, 2), (0, 3))); np.pad(m, 1, mode='edge'); np.pad(v, 4, mode='reflect'); np.pad(m, 3, mode='symmetric'); np.pad(v, (2, 14), mode='wrap'); np.pad(m, 2, constant_values=7)
np.pad(m, 2, mode='maximum'); np.pad(m, 2, mode='minimum', stat_length=2); np.pad(m, 2, mode='mean'); np.pad(v, 3, mode='median'); np.pad(v, 3, mode='linear_ramp', end_values=5); np.pad(i, 3, 'linear_ramp'); np.pad(v, 2, mode='mean', stat_length=0); np.pad(v, 2, mode='median', stat_length=((3, 40),)); np.pad(u, 3, 'linear_ramp', end_values=250); np.pad(u.astype('int8'), 3, 'linear_ramp', end_values=-120); np.pad(v, 30, 'reflect'); np.pad(m, ((3, 9), (8, 2)), 'reflect', reflect_type='odd'); np.pad(i, 13, 'symmetric', reflect_type='odd')
np.pad(i, 2, mode='mean'); np.pad(m, ((2, 0), (0, 1)), 'constant', constant_values=((1, 2), (3, 4))); np.meshgrid(v, w); np.meshgrid(v, w, indexing='ij'); np.meshgrid(v, w, sparse=True)
np.shape(m); np.ndim(t); np.size(m); np.size(m, 1); np.unstack(m); np.permute_dims(t, (2, 0, 1)); np.permute_dims(t); np.matrix_transpose(t)
"""

INDEXING = """
np.take(v, [1, 3]); np.take(v, []); np.take(m, [], axis=1); np.take(m, [1, 3]); np.take(m, [1, 3], axis=1); np.take(v, [20, -30], mode='wrap'); np.take(v, [20, -3], mode='clip'); np.take(m, 2, axis=0); np.take_along_axis(m, np.argsort(m, 1), 1)
np.argwhere(i > 2); np.argwhere(b); np.flatnonzero(b); np.nonzero(b); np.where(b); np.where(b, j, 0); np.where(i, 1, 2); np.where(m > 0, m, -m); np.indices((3, 4)); np.indices((2, 3), sparse=True)
m[np.ix_([1, 2], [0, 3])]; np.ix_([True, False, True], [1, 2]); np.ravel_multi_index(([1, 2], [3, 4]), (7, 5)); np.ravel_multi_index((j % 3, j), (3, 6)); np.ravel_multi_index(([9, -2], [1, 1]), (4, 4), mode='wrap')
np.unravel_index([5, 17, 30], (7, 5)); np.unravel_index(17, (7, 5)); np.unravel_index(np.argmax(m), m.shape); np.unravel_index(k, (8, 8), order='F'); np.compress([True, False, True], v); np.compress(b[:, 0], j, axis=0)
np.extract(m > 0, m); np.choose(j % 3, [j, j + 10, 5]); np.choose([1, 0, 1], [[1, 2, 3], [4, 5, 6]]); np.choose(i, [1, 2, 3], mode='clip'); np.choose(i, [1, 2, 3], mode='wrap'); np.select([v > 1, v < 0], [v, -v], default=3.0); np.select([i > 3, i > 1], [i, i * 2])
np.piecewise(v, [v < 0, v >= 0], [-1, 1]); np.piecewise([1, 2], [[True, False], [False, True]], [3, 4]); np.piecewise(v, np.stack([v < 0, v > 1]), [-1, 1]); np.piecewise(v, v < 0, [-1, 1]); np.piecewise(z, [z > 0, z > 1], [-1, 1]); np.piecewise(v, [v < 0, v >= 1], [lambda t: -t, lambda t: t * 2, 7.0]); np.searchsorted(s, v); np.searchsorted(s, v, side='right'); np.searchsorted(s, 0.3); np.digitize(v, s); np.digitize(v, s, right=True)
np.digitize(v, s[::-1]); np.sort(m); np.sort(m, 0); np.sort(m, axis=None); np.argsort(v); np.argsort(v, kind='stable'); np.lexsort((j[:, 0], j[:, 1])); np.lexsort((v, i[:11])); np.sort(np.partition(v, 4)[:5]); np.partition(v, 4)[4]
v[np.argpartition(v, 3)][3]; np.unique(j); np.unique(i, return_counts=True); np.unique(i, return_index=True, return_inverse=True); np.unique(j % 2, axis=0); np.unique(n[:, 0], axis=0); np.unique(n[:, 0], axis=-1, return_inverse=True); np.isin(i, k, kind='table'); np.unique(j % 2, axis=0, return_counts=True, return_index=True); np.unique(n); np.unique(j % 2, axis=1)
np.union1d(i, k); np.intersect1d(i, k); np.intersect1d(i, k, return_indices=True); np.setdiff1d(i, k); np.setxor1d(i, k); np.isin(i, k); np.isin(i, k, invert=True); np.tril(q); np.triu(q, 1); np.tri(3, 4, 1); np.tril_indices(4); np.triu_indices(4, 1)
np.tril_indices_from(q, -1); np.triu_indices_from(q); np.diag_indices(4); np.diag_indices_from(q); np.mask_indices(4, np.triu, 1); np.diag(v); np.diag(v, 2); np.diag(q); np.diag(q, -1); np.diagflat(j); np.diagonal(t); np.diagonal(t, 1, 1, 2); np.trace(q); np.trace(t, axis1=1, axis2=2)
np.identity(4); np.eye(3, order='F'); np.eye(3, 2, 0, 'int8', 'F'); np.zeros_like(j, order='F'); np.ones_like(m, 'float32', 'A'); np.full_like(m, 3, 'int8', 'C'); np.empty_like(m, order='C').shape; np.mgrid[0:1:np.complex64(3j)]; np.linalg.eigvalsh(q, UPLO='u'); np.geomspace(1, 8, 4, dtype=int); np.geomspace(-1, -256, 9, dtype=int); np.geomspace(1, 1e6, 7); np.geomspace(-1, 1, 3, dtype=complex); np.geomspace(z * 1j, 7, 4); np.geomspace(p, p * 8, 4, axis=1); np.interp(x, [-1, 0, 1], [np.inf, np.inf, 2]); np.interp(v, [-1, 0, 1], [3, np.inf, -np.inf]); np.interp(v, [-1, 0, 1], [-np.inf, 3, np.inf]); np.hanning(np.array(5.0)); np.kaiser(np.float32(4), 2.0); np.eye(3, 4, 1); np.eye(3, M=2); np.vander(v[:4]); np.vander(k[:4], 3); np.vander(v[:3], 4, increasing=True); np.bincount(k); np.bincount(j.ravel(), minlength=9); np.bincount(k, weights=k / 2.0)
np.histogram(v); np.histogram(v, 5); np.histogram(f, 5, range=np.array([0.1, 1.9])); np.histogram(f, 3, range=(-1, 1.3)); np.histogram(u, 3, range=(-1, 300)); np.histogram(v, bins=4, range=(-1, 1)); np.histogram(v, bins=[-1, 0, 0.5, 2]); np.histogram(v, density=True); np.histogram(v, weights=w); np.histogram(i, 6); np.histogram(i, bins=np.arange(-5, 10))
np.histogram(v, bins='auto'); np.histogram(m, bins='fd'); np.histogram_bin_edges(v, 'sturges'); np.histogram_bin_edges(v, 'rice'); np.histogram_bin_edges(v, 'scott'); np.histogram_bin_edges(v, 'sqrt'); np.histogram_bin_edges(v, 'doane'); np.histogram2d(v, w); np.histogram2d(v, w, bins=[3, 4], density=True)
np.histogramdd(m[:, :2], bins=3); np.histogramdd(m[:, :3], bins=(2, 3, 4), weights=v[:7]); np.array_equal(m, m); np.array_equal(m, v); np.array_equal(n, n, equal_nan=True); np.array_equiv(v, v[None]); np.allclose(m, m + 1e-9); np.allclose(m, m + 1)
"""

PRODUCTS = """
np.dot(m, q); np.dot(v, w); np.dot(m, q[0]); np.dot(t, q); np.dot(2, m); np.inner(v, w); np.inner(m, q); np.inner(t, t); np.vdot(c, c); np.vdot(q, q); np.outer(v, w); np.outer(m, v); np.kron(q, j); np.kron(v, w); np.kron(m, v); np.kron(t, j)
np.matvec(q, v[:5]); np.vecmat(v[:5], q); np.matvec(t, m[0]); np.vecdot(m, m); np.cross([1, 2, 3], [4, 5, 6]); np.cross(m[:, :3], m[:, 2:]); np.cross(m[:, :2], m[:, 3:]) if 0 else np.cross(t[:3], t[:3] * 2, axis=0); np.tensordot(t, t, axes=([0, 1], [0, 1])); np.tensordot(m, q, 1); np.tensordot(t, m, (2, 1))
np.einsum('ij,jk', m, q); np.einsum(',', 2, 3); np.einsum('ij,->ji', m, 2); np.matmul(m, q); m @ q; np.convolve(v, w); np.convolve(v, [1, 2, 3], 'same'); np.convolve(v, [0.5, 0.5], mode='valid'); np.convolve([1, 2], v, 'same'); np.convolve(i, k); np.correlate(v, w); np.correlate(v, w[:4], 'full'); np.correlate(v[:4], w, 'same')
np.correlate(v, w[:4], 'same'); np.correlate(v[:3], w[:4], 'same'); np.correlate(c, c, 'full'); np.trapezoid(v); np.trapezoid(m, dx=0.5, axis=0); np.trapezoid(v, x=np.sort(w)); np.trapezoid(m, s[:5]); np.gradient(v); np.gradient(v, 0.5); np.gradient(m); np.gradient(m, axis=0); np.gradient(m, 2.0, axis=1, edge_order=2)
np.gradient(s, np.sort(v)[:9]); np.gradient(m, np.arange(7.0) ** 2, s[:5]); np.gradient(s, np.sort(v)[:9], edge_order=2); np.gradient(i); np.diff(v); np.diff(m, 2); np.diff(m, axis=0); np.diff(v, prepend=0); np.diff(m, n=1, axis=1, append=m[:, :1]); np.ediff1d(m); np.ediff1d(i, to_begin=0, to_end=[1, 2])
np.interp(v, s, w[:9]); np.interp(0.3, s, w[:9]); np.interp(v, s, w[:9], left=-1, right=9); np.interp(v * 9, s, w[:9], period=2.0); np.interp(v, s, c[:1].real * s); np.polyval([1, 2, 3], v); np.polyval(v, 0.3); np.polyadd([1, 2], [1, 2, 3]); np.polysub([1, 2, 3], [4]); np.polymul([1, 2], [0, 1, 3.0])
np.polydiv([1.0, -3, 2], [1.0, -1]); np.polydiv(v, v[:3]); np.polyder([1, 2, 3, 4]); np.polyder(v, 2); np.polyint([1.0, 2, 3]); np.polyint(v, 2, [1.0, 2.0]); np.polyfit(v, w, 2); np.polyfit(s, w[:9], 3, w=p[:, 0].sum() + s * 0); np.polyfit(v, w, 1, cov=True); np.polyfit(v, np.stack([w, v], 1), 2)
np.sort(np.roots([1.0, -6, 11, -6])); np.sort_complex(np.roots([1.0, 0, 1])); np.roots([0, 2.0, 4, 0]); np.poly([1.0, 2, 3]); np.poly(q + q.T); np.poly([1j, -1j]); np.hanning(7); np.hamming(8); np.blackman(9); np.bartlett(6); np.kaiser(9, 4.0); np.hanning(1); np.bartlett(0)
np.linalg.norm(v); np.linalg.norm(m); np.linalg.norm(m, axis=1); np.linalg.norm(m, ord=1); np.linalg.norm(m, 2); np.linalg.norm(v, 1); np.linalg.norm(v, np.inf); np.linalg.norm(t, axis=(0, 2)); np.linalg.norm(m, axis=0, keepdims=True); np.linalg.norm(m, 'nuc'); np.linalg.cond(q); np.linalg.cond(q, 1); np.linalg.cond(q, -2)
np.linalg.multi_dot([m, q, q, v[:5]]); np.linalg.multi_dot([v[:5], q, m.T]); np.linalg.tensorinv(np.eye(12).reshape(3, 4, 2, 6) + 0.1); np.linalg.tensorsolve(np.eye(12).reshape(3, 4, 12) * 2, t[:, :, 0]); np.linalg.svd(m, compute_uv=False); np.linalg.eigvalsh(q, 'U'); np.linalg.solve(q, v[:5]); np.linalg.inv(q); np.linalg.det(q)
np.linalg.pinv(m, rcond=1e-12); np.lib.stride_tricks.sliding_window_view(v, 3); np.lib.stride_tricks.sliding_window_view(m, (2, 2)).sum(axis=(2, 3)); np.intersect1d(u, i); np.intersect1d(b, v); t[(0, 1), (1, 2)]; np.linalg.matrix_rank(m); np.linalg.matrix_rank(i); np.linalg.matrix_rank(c * 0); np.linalg.matrix_rank(m, 0.5); np.linalg.matrix_rank(np.stack([m, m]), tol=1e-3); np.add.reduce(m, axis=1, initial=2.0, where=m > 0); np.multiply.reduce(m, 0, None, None, True, 3.0); np.maximum.reduce(m, initial=0.25, where=m < 0.5); np.minimum.reduce(v, initial=9.0); np.logical_and.reduce(m > 0, axis=0, where=m < 1); np.logical_or.reduce(v > 9, initial=True); np.linalg.lstsq(m, v[:7], rcond=None)[0]; np.abs(np.linalg.qr(m, mode='r')); np.fft.fft2(q); np.fft.fftn(m, s=(3, -1), axes=(0, 1)); np.fft.irfft2(c.reshape(2, 3), s=(-1, -1)); np.fft.rfftn(m, s=(-1,), axes=(0,)); np.fft.ifft2(q); np.fft.rfft2(q); np.fft.irfft2(np.fft.rfft2(q), s=(5, 5)); np.fft.fft(v, 8); np.fft.fftfreq(5, 0.1); np.fft.fftshift(v)
np.apply_along_axis(np.sort, 0, m); np.apply_along_axis(lambda r: r.sum(), 1, m); np.apply_along_axis(lambda r: r[:2, None] * r[:3], 2, t); np.apply_over_axes(np.sum, t, (0, 2)); np.apply_over_axes(np.max, t, 1)
"""

CREATION = """
np.array([1, 2, 3]); np.array([1.5, 2]); np.array([[1, 2], [3, 4]], dtype=float); np.array(m); np.array(v, ndmin=3); np.array([v, w]); np.array([v[0], 2.0]); np.asanyarray(v); np.ascontiguousarray(z); np.asfortranarray(m); np.asarray_chkfinite(v); np.copy(m)
np.zeros((2, 3), int); np.ones(3, bool); np.full((2, 2), 7); np.zeros_like(m); np.ones_like(i, dtype=float); np.full_like(i, 3); np.zeros_like(m, shape=(2, 2)); np.arange(5); np.arange(1, 9, 2); np.arange(0.5, 3.0, 0.25); np.arange(3, dtype=float); np.linspace(0, 1, 7); np.linspace(0, 1)
np.linspace(0, 1, 5, False); np.linspace(2, 3, 4, retstep=True); np.linspace(0, 9, 4, dtype=int); np.logspace(0, 2, 5); np.logspace(0, 3, 4, base=2); np.logspace(0, 1, 3, endpoint=False); np.geomspace(1, 1000, 4); np.geomspace(-1, -8, 4); np.geomspace(1.0, 256.0, 9); np.fromfunction(lambda i, j: i + j, (3, 3)); np.fromfunction(lambda i, j: i == j, (3, 3), dtype=int)
np.fromiter((x * x for x in range(5)), float); np.frombuffer(b'\\x01\\x02\\x03', dtype=np.uint8); np.fromstring('1 2 3', dtype=float, sep=' '); np.identity(3, dtype=int); np.tri(3); np.empty((2, 3)).shape; np.empty_like(m).dtype.name; np.isscalar(3.0); np.isscalar(v); np.issubdtype(v.dtype, np.floating); np.issubdtype(i.dtype, np.integer)
np.issubdtype(np.float32, np.float64); np.dtype('float32').name; np.promote_types('int32', 'float32').name; np.min_scalar_type(300).name; np.result_type(f, m).name; np.can_cast('int32', 'int64'); np.float32(3).dtype.name; np.int64(7) + 1; np.sqrt(2); np.exp(1.0); np.maximum(3, 4); np.log2(8); np.float64(m).dtype.name
np.mgrid[0:3, 0:4]; np.mgrid[0:1:5j]; np.ogrid[0:3, 1:9:2]; np.r_[1:4, 0, 7]; np.r_[v, 0.5]; np.c_[v, w]; np.c_[m, m]; np.s_[1:3]; np.index_exp[2]; list(np.ndindex(2, 2)); np.base_repr(10, 3); np.binary_repr(5, 8); np.common_type(f, f) == np.float32; np.asarray(v, dtype=float); np.asarray([1, 2], float); np.array_repr(i)[:3] > ""; np.array_str(i); np.array_str(v, precision=2); np.array2string(np.array([1, 2])); np.iterable(v); np.double(2) * 2; np.pi; np.euler_gamma; np.atleast_2d([1, 2]); np.einsum_path('ij,jk', m, q)[0]; isinstance(v, np.ndarray)
"""

METHODS = """
m.sum(); m.sum(0); m.sum(axis=1, keepdims=True); m.mean(); m.mean(axis=0); m.max(); m.min(1); m.std(); m.std(0, ddof=1); m.var(axis=1); m.prod(0); m.cumsum(); m.cumsum(0); m.cumprod(1); b.any(); b.all(0); m.argmax(); m.argmin(1); m.argsort(); v.argsort(kind='stable')
m.reshape(5, 7); m.reshape((5, -1)); m.reshape(-1); m.reshape(35, order='F'); m.ravel(); m.flatten(); m.flatten('F'); m.transpose(); t.transpose(1, 0, 2); t.transpose((2, 1, 0)); m.T; t.T; v.T; t.swapaxes(0, 1); m[None].squeeze(); m.astype(int); m.astype('float32'); m.copy(); m.dot(q); v.dot(w)
m.clip(0, 1); m.round(1); m.round(); m.take([1, 2]); m.take([1, 2], axis=1); v.repeat(2); m.repeat(2, axis=0); i.nonzero(); q.trace(); q.diagonal(); q.diagonal(1); c.real; c.imag; c.conj(); c.conjugate(); v.real; m.nbytes; m.itemsize; m.size; m.ndim; m.shape; v.tolist(); v.item(3); m.item(2, 3); m.item(4); z.item(); m[:1, :1].item(); m.tobytes()
s.searchsorted(v); (j % 2).choose([3, 4]); j.compress(b[:, 0], axis=0); m.flat[3]; list(v.flat)[2]; len(m); divmod(i, 3); v[v > 0]; m[m > 0].sum(); m[:, 1].mean(); (m - m.mean(0)) / m.std(0); -m; abs(m); m ** 2; i // 3; i % 3; 2 - m; m @ q; i & 3; i | 1; i ^ k; ~i; i << 1; v > w; (v > 0) & (w > 0); 1 in i
v.argpartition(3).shape; np.sort(v.copy()); m.swapaxes(0, 1).shape; float(v[2]); int(i[1]); bool(b[0, 0]); complex(c[1]); [float(r.sum()) for r in m]; max(v.tolist())
"""

IN_PLACE = """
a = v.copy(); a.sort(); a
a = m.copy(); a.sort(axis=0); a
a = m.copy(); a.fill(3.0); a
a = v.copy(); a[2:5] = 0; a[-1] += 5; a
a = m.copy(); a[a < 0] = 0; a
a = m.copy(); a += 1; a *= 2; a -= m; a /= 3; a
a = v.copy(); np.put(a, [1, 3], [9, 8]); a
a = v.copy(); a.put([0, 20], 7.0, mode='clip'); a
a = m.copy(); np.copyto(a, 5.0); a
a = m.copy(); np.copyto(a, v[:5], where=m > 0); a
a = m.copy(); np.place(a, a > 0, [1, 2, 3]); a
a = m.copy(); np.putmask(a, a > 0, a ** 2); a
a = i.copy(); np.putmask(a, a > 2, [10, 20]); a
a = q.copy(); np.fill_diagonal(a, 0); a
a = q.copy(); np.fill_diagonal(a, v[:3]); a
a = np.zeros((7, 3)); np.fill_diagonal(a, 4, wrap=True); a
a = t[:3, :3, :3].copy(); np.fill_diagonal(a, 1); a
a = m.copy(); np.put_along_axis(a, np.argmax(a, 1, keepdims=True), 0, 1); a
a = v.copy(); np.put_along_axis(a, np.array([1, 2]), 5.0, None); a
a = np.zeros(6); np.add.at(a, j, 1.0); a
a = np.zeros(6, int); np.add.at(a, [1, 1, 5], [1, 2, 3]); a
a = np.zeros((6, 3)); np.subtract.at(a, [1, 1, 5], m[:3, :3]); a
a = np.zeros((3, 3)); np.add.at(a, ([0, 0, 2], [1, 1, 2]), 2); a
a = np.empty(11); np.add(v, w, out=a); a
a = np.ones((7, 5)); np.multiply(m, 2, out=a, where=m > 0); a
a = np.zeros(5); np.sum(m, axis=0, out=a); a
a = np.zeros((7, 5)); np.matmul(m, q, out=a); a
a = np.zeros(7); m.mean(axis=1, out=a); a
a = v.copy(); np.sqrt(np.abs(a, out=a), out=a); a
"""

"""Names of PyTorch, JAX and older NumPy, with what to write instead, for error messages.

Each text names functions and classes of magmath as `mm.…`, and methods of an array as `x.…`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from typing import Final

STRIDED: Final = (
    "mm.lib.stride_tricks.sliding_window_view(x, window), a slice or a reshape; an array that is "
    "distributed over workers has no strides in memory"
)
"""In place of `as_strided`."""

MM_NAMES: Final[Mapping[str, str]] = {
    # creation
    "tensor": "mm.asarray(values)",
    "as_tensor": "mm.asarray(values)",
    "from_numpy": "mm.asarray(values)",
    "Tensor": "mm.Array, the class; mm.asarray(values) makes an array",
    "FloatTensor": "mm.asarray(values, dtype=mm.float32)",
    "LongTensor": "mm.asarray(values, dtype=mm.int64)",
    "is_tensor": "isinstance(x, mm.Array)",
    "rand": "mm.random.uniform(shape=shape)",
    "randn": "mm.random.normal(shape=shape)",
    "randint": "mm.random.integers(low, high, shape=shape)",
    "randperm": "mm.random.permutation(n)",
    "rand_like": "mm.random.uniform(shape=x.shape)",
    "randn_like": "mm.random.normal(shape=x.shape)",
    "normal": "mm.random.normal(mean, std, shape=shape)",
    "bernoulli": "mm.random.uniform(shape=p.shape) < p, or mm.random.binomial(1, p)",
    "multinomial": "mm.random.choice(n, size, p=p)",
    "poisson": "mm.random.poisson(lam)",
    "manual_seed": "mm.random.seed(value), or mm.init(seed=value)",
    # shapes
    "cat": "mm.concat([x, y], axis=0)",
    "permute": "mm.permute_dims(x, axes)",
    "unsqueeze": "mm.expand_dims(x, axis)",
    "movedim": "mm.moveaxis(x, source, destination)",
    "swapdims": "mm.swapaxes(x, i, j)",
    "unbind": "mm.unstack(x)",
    "chunk": "mm.array_split(x, n)",
    "flatten": "mm.ravel(x), or mm.reshape(x, (n, -1))",
    "narrow": "x[start : start + length]",
    "as_strided": STRIDED,
    "numel": "x.size",
    "clone": "mm.copy(x)",
    "repeat_interleave": "mm.repeat(x, n)",
    "tensor_split": "mm.array_split(x, n)",
    "unflatten": "mm.reshape(x, shape)",
    "broadcast_tensors": "mm.broadcast_arrays(x, y)",
    "cartesian_prod": "mm.meshgrid(x, y, indexing='ij'), each of them flattened",
    "t": "mm.matrix_transpose(x)",
    "adjoint": "mm.conj(mm.matrix_transpose(x))",
    "range": "mm.arange(start, stop)",
    "randint_like": "mm.random.integers(low, high, shape=x.shape)",
    # elements
    "clamp": "mm.clip(x, low, high)",
    "sub": "mm.subtract(x, y)",
    "mul": "mm.multiply(x, y)",
    "div": "mm.divide(x, y)",
    "neg": "mm.negative(x)",
    "eq": "mm.equal(x, y)",
    "ne": "mm.not_equal(x, y)",
    "lt": "mm.less(x, y)",
    "le": "mm.less_equal(x, y)",
    "gt": "mm.greater(x, y)",
    "ge": "mm.greater_equal(x, y)",
    "rsqrt": "1 / mm.sqrt(x)",
    "frac": "x - mm.trunc(x)",
    "sgn": "mm.sign(x)",
    "lerp": "x + weight * (y - x)",
    "addcmul": "x + value * y * z",
    "addcdiv": "x + value * y / z",
    "clamp_min": "mm.maximum(x, low)",
    "clamp_max": "mm.minimum(x, high)",
    "xlogy": "mm.where(x == 0, 0.0, x * mm.log(y))",
    "polar": "r * mm.exp(1j * angle)",
    "complex": "x + 1j * y",
    "is_complex": "mm.iscomplexobj(x)",
    "is_floating_point": 'mm.isdtype(x.dtype, "real floating")',
    "aminmax": "mm.min(x) and mm.max(x)",
    "std_mean": "mm.std(x) and mm.mean(x)",
    "kthvalue": "mm.sort(x)[..., k - 1], or mm.partition(x, k - 1)",
    "histc": "mm.histogram(x, bins, range)",
    "take_along_dim": "mm.take_along_axis(x, indices, axis)",
    "index_fill": "x[i] = value",
    "index_put": "x[i] = values",
    "index_copy": "x[i] = values",
    "gather": "mm.take_along_axis(x, indices, axis)",
    "index_select": "mm.take(x, indices, axis=axis)",
    "masked_select": "x[mask]",
    "masked_fill": "mm.where(mask, value, x)",
    "scatter": "mm.put_along_axis(x, indices, values, axis)",
    **dict.fromkeys(
        ("topk", "top_k"), "mm.sort(x, descending=True)[..., :k], or mm.argsort for the positions"
    ),
    "var_mean": "mm.var(x) and mm.mean(x)",
    "cummax": "mm.maximum.accumulate(x, axis=axis)",
    "cummin": "mm.minimum.accumulate(x, axis=axis)",
    "logcumsumexp": "mm.logaddexp.accumulate(x, axis=axis)",
    "bucketize": "mm.searchsorted(boundaries, x)",
    "index_add": "mm.add.at(x, i, values)",
    "scatter_add": "mm.add.at(x, i, values)",
    "segment_sum": "mm.add.at(sums, segments, values), with sums = mm.zeros(count)",
    # products and matrices
    "mm": "mm.matmul(x, y), or x @ y",
    "mv": "mm.matmul(x, y), or x @ y",
    "bmm": "mm.matmul(x, y), or x @ y",
    "ger": "mm.outer(x, y)",
    "addmm": "mm.matmul(x, y) + z",
    "baddbmm": "mm.matmul(x, y) + z",
    "chain_matmul": "mm.linalg.multi_dot([x, y, z])",
    "dist": "mm.linalg.norm(x - y)",
    "logdet": "mm.linalg.slogdet(x)[1]",
    "pinverse": "mm.linalg.pinv(x)",
    "matrix_exp": "scipy.linalg.expm(x.numpy())",
    "block_diag": "blocks[i] = x of a mm.zeros array, for the slices i of each block",
    "cosine_similarity": "mm.vecdot(x, y) of vectors divided by their mm.linalg.vector_norm",
    "erfinv": "scipy.special.erfinv(x.numpy())",
    "special": "mm.erf, mm.lgamma and other functions of mm itself",
    "func": "mm.grad, mm.vmap, mm.jvp, mm.vjp, mm.jacobian, mm.hessian and mm.nn.functional_call",
    "amp": 'precision="mixed-bfloat16", a setting of mm.train.Trainer and mm.nn.NeuralNetwork',
    "diag_embed": "mm.eye(n) * x[..., None]",
    "hann_window": "mm.hanning(n)",
    "hamming_window": "mm.hamming(n)",
    "blackman_window": "mm.blackman(n)",
    "kaiser_window": "mm.kaiser(n, beta)",
    "norm": "mm.linalg.norm(x)",
    "inverse": "mm.linalg.inv(x)",
    "det": "mm.linalg.det(x)",
    "svd": "mm.linalg.svd(x)",
    "qr": "mm.linalg.qr(x)",
    "cholesky": "mm.linalg.cholesky(x)",
    # gradients, devices, compilation
    "jacrev": "mm.jacobian(f)",
    "jacfwd": "mm.jacobian(f)",
    "linearize": "mm.jvp(f, (x,), (dx,))",
    "autograd": "mm.grad(loss, parameters), or mm.value_and_grad(f)",
    "no_grad": "mm.stop_gradient(x); values have gradients only where mm.grad is called",
    "inference_mode": "mm.stop_gradient(x); values have gradients only where mm.grad is called",
    "device": 'mm.init(device="cuda"), once; arrays are stored by the workers',
    "cuda": 'mm.init(device="cuda"), once; arrays are stored by the workers',
    "jit": "mm.compile(f)",
    "detach": "mm.stop_gradient(x)",
    "enable_grad": "mm.grad(loss, parameters), where gradients are needed",
    "set_grad_enabled": "mm.grad(loss, parameters), where gradients are needed",
    "autocast": 'precision="mixed-bfloat16", a setting of mm.train.Trainer',
    "set_num_threads": "mm.init(threads=n)",
    "use_deterministic_algorithms": "mm.init(deterministic=True)",
    "get_rng_state": "mm.random.get_state()",
    "set_rng_state": "mm.random.set_state(state)",
    "initial_seed": "mm.random.seed(value), or mm.init(seed=value)",
    "lax": "mm.fori_loop, mm.scan, mm.while_loop and mm.cond",
    "numpy": "mm, whose functions are those of jax.numpy: mm.sin(x)",
    "tree_map": "a loop over the arrays; mm.grad takes lists and dictionaries",
    "checkpoint": "mm.remat(f)",
    "distributed": "mm.init(workers=n)",
    "distributions": "mm.random, to draw numbers; a logarithm of a density is a formula of arrays",
    "utils": "mm.data.Loader for batches, mm.remat for checkpointing",
    "DataLoader": "mm.data.Loader",
    "custom_vjp": "mm.custom_gradient, for a function that returns its value and its pullback",
    "Module": "mm.nn.Module",
    "functional": "mm.nn.functional",
    "functional_call": "mm.nn.functional_call(module, parameters, x)",
    # NumPy before version 2
    "product": "mm.prod(x)",
    "cumproduct": "mm.cumprod(x)",
    "sometrue": "mm.any(x)",
    "alltrue": "mm.all(x)",
    "in1d": "mm.isin(x, y)",
    "trapz": "mm.trapezoid(y, x)",
    "msort": "mm.sort(x, axis=0)",
    "round_": "mm.round(x)",
    "float_": "mm.float64",
    "complex_": "mm.complex128",
    "float": "mm.float32, mm.float64, or Python's float",
    "int": "mm.int64, or Python's int",
    "NaN": "mm.nan",
    "Inf": "mm.inf",
    "infty": "mm.inf",
}
"""Names that are missing in `mm`."""

_GENERATOR = "mm.random.default_rng(seed), whose sequence is magmath's own"

RANDOM_NAMES: Final[Mapping[str, str]] = {
    **dict.fromkeys(
        ("RandomState", "BitGenerator", "PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64"),
        _GENERATOR,
    ),
    **dict.fromkeys(
        ("get_bit_generator", "set_bit_generator", "mtrand"),
        "mm.random.seed(seed) to restart the sequence, or mm.random.default_rng(seed) for another",
    ),
    "random_integers": "mm.random.randint(low, high + 1)",
    "tomaxint": "mm.random.integers(0, 2**63 - 1)",
    "categorical": "mm.random.choice(n, size, p=p), or for scores "
    "mm.argmax(scores + mm.random.gumbel(size=scores.shape), axis=-1)",
    "bernoulli": "mm.random.uniform(shape=p.shape) < p, or mm.random.binomial(1, p)",
    "manual_seed": "mm.random.seed(value)",
    "PRNGKey": "mm.random.Generator(seed)",
    "key": "mm.random.Generator(seed)",
    "split": "mm.random.Generator(seed).spawn(n)",
    "get_rng_state": "mm.random.get_state()",
    "set_rng_state": "mm.random.set_state(state)",
}
"""Names that are missing in `mm.random`."""

DATA_NAMES: Final[Mapping[str, str]] = {
    "DataLoader": "mm.data.Loader((x, y), batch_size)",
    "TensorDataset": "mm.data.Loader((x, y)), or fit(x, y)",
    "random_split": "order = np.random.default_rng(seed).permutation(len(x)), then x[order[:n]] "
    "and x[order[n:]], or validation_split= of fit",
    "WeightedRandomSampler": "np.random.default_rng(seed).choice(len(x), n, p=weights), the "
    "indices of an epoch, or class_weight= and sample_weight= of fit",
    "Subset": "x[indices]",
    "ConcatDataset": "np.concatenate([x, y])",
}
"""Names that are missing in `mm.data`."""

ARRAY_ATTRIBUTES: Final[Mapping[str, str]] = {
    "__array_interface__": "np.asarray(x), whose memory has an address",
    "backward": "mm.grad(loss, parameters), which returns the gradients",
    "grad": "mm.grad(loss, x), which returns the gradient",
    "requires_grad": "mm.grad(loss, x); every array has gradients",
    "requires_grad_": "mm.grad(loss, x); every array has gradients",
    "detach": "mm.stop_gradient(x)",
    "to": "x.astype(dtype) for a type; the device is chosen once, by mm.init(device=…)",
    "cuda": 'mm.init(device="cuda"), once; arrays are stored by the workers',
    "cpu": "x.numpy() for the values in this process",
    "view": "x.reshape(shape); for the bits as another type, x.numpy().view(dtype)",
    "view_as": "x.reshape(y.shape)",
    "reshape_as": "x.reshape(y.shape)",
    "permute": "x.transpose(axes)",
    "t": "x.T",
    "unsqueeze": "mm.expand_dims(x, axis)",
    "expand": "mm.broadcast_to(x, shape)",
    "expand_as": "mm.broadcast_to(x, y.shape)",
    "contiguous": "x; there is no order in memory to change",
    "clone": "x.copy()",
    "as_strided": STRIDED,
    "numel": "x.size",
    "nelement": "x.size",
    "dim": "x.ndim",
    "float": "x.astype(mm.float32)",
    "double": "x.astype(mm.float64)",
    "half": "x.astype(mm.float16)",
    "bfloat16": "x.astype(mm.bfloat16)",
    "long": "x.astype(mm.int64)",
    "int": "x.astype(mm.int32)",
    "bool": "x.astype(mm.bool)",
    "type": "x.astype(dtype)",
    "type_as": "x.astype(y.dtype)",
    "new_zeros": "mm.zeros(shape, x.dtype)",
    "new_ones": "mm.ones(shape, x.dtype)",
    "new_full": "mm.full(shape, value, x.dtype)",
    "new_empty": "mm.empty(shape, x.dtype)",
    "new_tensor": "mm.asarray(values, x.dtype)",
    "element_size": "x.itemsize",
    "ndimension": "x.ndim",
    "stride": STRIDED,
    "unfold": "mm.lib.stride_tricks.sliding_window_view(x, size, axis)[..., ::step, :]",
    "is_cuda": "mm.init(device=…) to choose the device of all arrays, once",
    "is_contiguous": "x; there is no order in memory to change",
    "retain_grad": "mm.grad(loss, x), which returns the gradient",
    "register_hook": "mm.custom_gradient, for a function that changes a gradient",
    "to_sparse": "x; there are no sparse arrays",
    "norm": "mm.linalg.norm(x)",
    "add_": "x += y",
    "sub_": "x -= y",
    "mul_": "x *= y",
    "div_": "x /= y",
    "zero_": "x[...] = 0",
    "fill_": "x[...] = value",
    "copy_": "x[...] = y",
    "pow_": "x **= y",
    "masked_fill_": "x[mask] = value",
    "index_add_": "mm.add.at(x, i, values)",
    **dict.fromkeys(("index_fill_", "index_put_", "index_copy_"), "x[i] = values"),
    "uniform_": "x[...] = mm.random.uniform(low, high, shape=x.shape)",
    "normal_": "x[...] = mm.random.normal(mean, std, shape=x.shape)",
    "t_": "x = x.T; views of x keep its shape",
    **dict.fromkeys(("squeeze_", "unsqueeze_"), "x = mm.reshape(x, shape)"),
    "clamp": "mm.clip(x, low, high)",
    "clamp_": "x[...] = mm.clip(x, low, high)",
    "masked_fill": "mm.where(mask, value, x)",
    "gather": "mm.take_along_axis(x, indices, axis)",
    "index_select": "mm.take(x, indices, axis=axis)",
    "scatter_": "mm.put_along_axis(x, indices, values, axis)",
    "scatter_add_": "mm.add.at(x, i, values)",
    "topk": "mm.sort(x, descending=True)[..., :k]",
    "chunk": "mm.array_split(x, n)",
    "unbind": "mm.unstack(x)",
    "mm": "x @ y",
    "bmm": "x @ y",
    "eq": "x == y",
    "at": "x[i] = value, which changes x; for sums mm.add.at(x, i, value)",
    "block_until_ready": "mm.evaluate(x, wait=True)",
    "values": "x.numpy()",
    "value": "x.numpy()",
    "eval": "x.numpy(), or mm.evaluate(x)",
    "get_shape": "x.shape",
    "assign": "x[...] = value; only variables, mm.variable(name, value), have assign",
    "assign_add": "x += y",
    "assign_sub": "x -= y",
    "set": "x[...] = value, or v.assign(value) of a variable",
}
"""Attributes that arrays lack."""

VARIABLE_ATTRIBUTES: Final[Mapping[str, str]] = {
    "data": "v.assign(x), v += x or v[i] = x for a new value, and v.numpy() for the present one",
    "requires_grad": "module.freeze(path), or parameter.trainable = False",
}
"""Attributes that variables lack."""


def is_of_package(value: object, package: str) -> bool:
    """Return True for an object whose class, or a class from which that derives, is in a package of
    this name, such as "torch.optim"."""
    return any(f"{kind.__module__}.".startswith(f"{package}.") for kind in type(value).__mro__)


def hint(table: Mapping[str, str], name: str) -> str:
    """Return the end of a message about a missing name: what to write, if that is known."""
    return f"; write {table[name]}" if name in table else ""


def missing_in_module(module: str, public: Sequence[str], name: str, hint: str) -> AttributeError:
    """Return the error for a name that a module lacks. Without a hint on what to write, it suggests
    the one of its public names that is spelt most similarly."""
    if not hint and not name.startswith("_"):
        close = closest_name(name, tuple(public))
        hint = f"; did you mean {close!r}?" if close else ""
    return missing_attribute(f"module {module!r}", name, hint)


@lru_cache(maxsize=256)
def closest_name(name: str, public: tuple[str, ...]) -> str:
    """Return the most similar name, "" if none is similar. A search takes half a millisecond, and
    libraries ask a namespace for the same missing names in each call."""
    return next(iter(get_close_matches(name, public, n=1, cutoff=0.7)), "")


def missing_attribute(owner: str, name: str, hint: str) -> AttributeError:
    """Return the error for a name that an owner lacks; `hint` says what to write, or is empty.

    Python adds a guess of its own, a name that is spelt similarly, to errors without a name.
    """
    error = AttributeError(f"{owner} has no attribute {name!r}{hint}")
    if hint:
        error.name = name
    return error

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
    "gather": "mm.take_along_axis(x, indices, axis)",
    "index_select": "mm.take(x, indices, axis=axis)",
    "masked_select": "x[mask]",
    "masked_fill": "mm.where(mask, value, x)",
    "scatter": "mm.put_along_axis(x, indices, values, axis)",
    "topk": "mm.sort(x, descending=True)[..., :k], or mm.argsort for the positions",
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

_CTC = "a loss of your own; there is no CTC loss, whose sums over time are mm.scan and mm.logaddexp"
_TRIPLET = (
    "mm.mean(mm.relu(near - far + margin)), with distances such as "
    "near = mm.linalg.vector_norm(anchor - positive, axis=1)"
)
_WEIGHT_NORM = (
    "g * v / mm.linalg.vector_norm(v, axis=0, keepdims=True), the weight, in the __call__ of a "
    "module with the parameters g and v"
)
_SPECTRAL_NORM = "w / mm.linalg.norm(w, 2), the weight, in the __call__ of a module"
_PACKED = (
    "the padded sequences x, and leave out what follows their ends: outputs[i, lengths - 1], "
    "key_mask= of attention, or a mask in the loss"
)

NN_NAMES: Final[Mapping[str, str]] = {
    "softmax": "mm.softmax(x), or the layer mm.nn.Softmax()",
    "relu": "mm.relu(x), or the layer mm.nn.ReLU()",
    "Linear": "mm.nn.Dense(outputs); the number of inputs follows from the first call",
    "LazyLinear": "mm.nn.Dense(outputs)",
    "BatchNorm1d": "mm.nn.BatchNorm()",
    "BatchNorm2d": "mm.nn.BatchNorm()",
    "BatchNorm3d": "mm.nn.BatchNorm()",
    "SyncBatchNorm": "mm.nn.BatchNorm(), whose moments are those of all workers",
    "BatchNormalization": "mm.nn.BatchNorm()",
    "LayerNormalization": "mm.nn.LayerNorm()",
    "InstanceNorm1d": "mm.nn.InstanceNorm()",
    "InstanceNorm2d": "mm.nn.InstanceNorm()",
    "InstanceNorm3d": "mm.nn.InstanceNorm()",
    "Dropout1d": "mm.nn.Dropout(rate, per_channel=True)",
    "Dropout2d": "mm.nn.Dropout(rate, per_channel=True)",
    "Dropout3d": "mm.nn.Dropout(rate, per_channel=True)",
    "ModuleList": "a Python list of modules, an attribute of mm.nn.Module",
    "ModuleDict": "a Python dictionary of modules, an attribute of mm.nn.Module",
    "ParameterList": "a Python list of mm.nn.Parameter, an attribute of mm.nn.Module",
    "ParameterDict": "a Python dictionary of mm.nn.Parameter, an attribute of mm.nn.Module",
    "Unflatten": "mm.nn.Lambda(lambda x: mm.reshape(x, shape))",
    "DataParallel": 'mm.train.Trainer(module, strategy="data")',
    "Sequence": "mm.nn.Sequential",
    "Conv2D": "mm.nn.Conv2d(channels, kernel)",
    "Conv1D": "mm.nn.Conv1d(channels, kernel)",
    "MaxPooling2D": "mm.nn.MaxPool2d(kernel)",
    "AveragePooling2D": "mm.nn.AvgPool2d(kernel)",
    "GlobalAveragePooling2D": "mm.nn.GlobalAvgPool()",
    "Input": "mm.nn.Module.build(shape); sizes follow from the first call",
    "Model": "mm.nn.Module, or mm.nn.NeuralNetwork for fit and predict",
    "CrossEntropyLoss": 'mm.nn.cross_entropy(outputs, labels), or loss="cross_entropy" of '
    "mm.nn.NeuralNetwork",
    "MSELoss": "mm.nn.mean_squared_error(outputs, targets)",
    "L1Loss": "mm.nn.mean_absolute_error(outputs, targets)",
    "SmoothL1Loss": "mm.nn.huber(outputs, targets, delta=beta) / beta",
    "HuberLoss": "mm.nn.huber(outputs, targets)",
    "BCELoss": "mm.nn.binary_cross_entropy(outputs, targets)",
    "BCEWithLogitsLoss": "mm.nn.binary_cross_entropy_with_logits(outputs, targets)",
    "KLDivLoss": "mm.nn.kl_divergence(outputs, targets)",
    "MultiMarginLoss": "mm.nn.hinge(outputs, labels)",
    "NLLLoss": "mm.nn.cross_entropy(outputs, labels), without log_softmax before it",
    "mse_loss": "mm.nn.mean_squared_error(outputs, targets)",
    "l1_loss": "mm.nn.mean_absolute_error(outputs, targets)",
    "nll_loss": "mm.nn.cross_entropy(outputs, labels), without log_softmax before it",
    "TransformerDecoder": "a list of mm.nn.TransformerDecoderLayer, called one after the other",
    "TransformerEncoder": "a list of mm.nn.TransformerEncoderLayer, or mm.nn.Sequential of them",
    "Transformer": "mm.nn.TransformerEncoderLayer and mm.nn.TransformerDecoderLayer",
    "EmbeddingBag": "mm.mean(mm.nn.Embedding(count, features)(x), axis=1)",
    "CosineSimilarity": "mm.vecdot(x, y) of vectors divided by their mm.linalg.vector_norm",
    "init": "mm.nn.initializers",
    "utils": "clip_norm= and clip_value= of an optimizer, such as mm.optim.Adam",
    "CTCLoss": _CTC,
    "TripletMarginLoss": _TRIPLET,
    "ctc_loss": _CTC,
    "triplet_margin_loss": _TRIPLET,
    "weight_norm": _WEIGHT_NORM,
    "spectral_norm": _SPECTRAL_NORM,
    "pack_padded_sequence": _PACKED,
    "pad_packed_sequence": _PACKED,
}
"""Names that are missing in `mm.nn`."""

FUNCTIONAL_NAMES: Final[Mapping[str, str]] = {
    "cross_entropy": "mm.nn.cross_entropy(outputs, labels)",
    "mse_loss": "mm.nn.mean_squared_error(outputs, targets)",
    "l1_loss": "mm.nn.mean_absolute_error(outputs, targets)",
    "huber_loss": "mm.nn.huber(outputs, targets)",
    "smooth_l1_loss": "mm.nn.huber(outputs, targets, delta=beta) / beta",
    "binary_cross_entropy": "mm.nn.binary_cross_entropy(outputs, targets)",
    "binary_cross_entropy_with_logits": "mm.nn.binary_cross_entropy_with_logits(outputs, targets)",
    "kl_div": "mm.nn.kl_divergence(outputs, targets)",
    "nll_loss": "mm.nn.cross_entropy(outputs, labels), without log_softmax before it",
    "multi_margin_loss": "mm.nn.hinge(outputs, labels)",
    "hardsigmoid": "mm.nn.functional.hard_sigmoid(x)",
    "hardswish": "mm.nn.functional.hard_swish(x)",
    "logsigmoid": "mm.nn.functional.log_sigmoid(x)",
    "cosine_similarity": "mm.vecdot(x, y) of vectors divided by their mm.linalg.vector_norm",
    "normalize": "x / mm.linalg.vector_norm(x, axis=1, keepdims=True)",
    "gumbel_softmax": "mm.softmax((x + mm.random.gumbel(size=x.shape)) / temperature, axis=-1)",
    "upsample": "mm.nn.functional.interpolate(x)",
    "ctc_loss": _CTC,
    "triplet_margin_loss": _TRIPLET,
    "embedding_bag": "mm.mean(mm.nn.functional.embedding(x, weight), axis=1)",
}
"""Names that are missing in `mm.nn.functional`."""

OPTIMIZER_ATTRIBUTES: Final[Mapping[str, str]] = {
    "step": "optimizer.update(gradients), where loss, gradients = mm.value_and_grad(f, parameters)",
    "zero_grad": "nothing; gradients are results of mm.value_and_grad and add up nowhere",
    "param_groups": "the argument groups= for other settings of some variables, and "
    "optimizer.learning_rate",
    "apply_gradients": "optimizer.update(dict(zip(variables, gradients)))",
    "add_param_group": "the argument groups=; update takes any variables",
}
"""Attributes that optimizers lack."""

OPTIM_NAMES: Final[Mapping[str, str]] = {
    "SGD": "mm.optim.GradientDescent(learning_rate), or mm.optim.Momentum(learning_rate, momentum)",
    "lr_scheduler": "mm.optim.schedules, such as mm.optim.schedules.Cosine, as the learning_rate "
    "of an optimizer",
    "NAdam": "mm.optim.Adam(learning_rate), which is similar",
    "RAdam": "mm.optim.Adam(learning_rate), which is similar",
    "LBFGS": "scipy.optimize.minimize(f, x, jac=True), where f returns the numbers of "
    "mm.value_and_grad, or mm.optim.Adam(learning_rate)",
    "swa_utils": "average = copy.deepcopy(module) and, after a step, v.assign(decay * v + "
    "(1 - decay) * w) of each mm.nn.Parameter v of it, where w is that of the module",
    "Adamax": "mm.optim.Adam(learning_rate), which is similar",
}
"""Names that are missing in `mm.optim`."""

LOSS_NAMES: Final[Mapping[str, str]] = {
    "mse": "mean_squared_error",
    "mse_loss": "mean_squared_error",
    "mae": "mean_absolute_error",
    "l1_loss": "mean_absolute_error",
    "categorical_crossentropy": "cross_entropy",
    "sparse_categorical_crossentropy": "cross_entropy",
    "crossentropy": "cross_entropy",
    "nll_loss": "cross_entropy",
    "binary_crossentropy": "binary_cross_entropy",
    "bce": "binary_cross_entropy",
    "bce_with_logits": "binary_cross_entropy_with_logits",
    "smooth_l1_loss": "huber",
    "kl_div": "kl_divergence",
    "kld": "kl_divergence",
}
"""Losses by the names of Keras and PyTorch, with those of magmath."""

SCHEDULE_NAMES: Final[Mapping[str, str]] = {
    "StepLR": "mm.optim.schedules.Step(rate, size, factor)",
    "MultiStepLR": "mm.optim.schedules.MultiStep",
    "ExponentialLR": "mm.optim.schedules.Exponential(rate, factor)",
    "PolynomialLR": "mm.optim.schedules.Polynomial",
    "CosineAnnealingLR": "mm.optim.schedules.Cosine(rate, steps)",
    "CosineAnnealingWarmRestarts": "mm.optim.schedules.Cosine(rate, steps, restarts=True)",
    "CosineDecay": "mm.optim.schedules.Cosine(rate, steps)",
    "ExponentialDecay": "mm.optim.schedules.Exponential(rate, factor)",
    "LinearLR": "mm.optim.schedules.WarmUp(after, steps)",
    "OneCycleLR": "mm.optim.schedules.OneCycle",
    "ReduceLROnPlateau": "mm.optim.schedules.Plateau",
    "LambdaLR": "a function of the step as the learning rate",
}
"""Names that are missing in `mm.optim.schedules`."""

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
    "norm": "mm.linalg.norm(x)",
    "add_": "x += y",
    "sub_": "x -= y",
    "mul_": "x *= y",
    "div_": "x /= y",
    "zero_": "x[...] = 0",
    "fill_": "x[...] = value",
    "copy_": "x[...] = y",
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


_TYPES = "module.astype(dtype), or mm.set_default_dtype(dtype) before it is built"
_HOOK = "a class with a __call__ of its own that calls the layer"
MODULE_ATTRIBUTES: Final[Mapping[str, str]] = {
    "register_buffer": "self.name = mm.nn.Buffer(value)",
    "register_parameter": "self.name = mm.nn.Parameter(value)",
    "register_module": "self.name = module",
    "add_module": "self.name = module",
    "register_forward_hook": _HOOK,
    "register_forward_pre_hook": _HOOK,
    "forward": "__call__",
    "to": f"{_TYPES}; the device is chosen once, by mm.init(device=…)",
    "cuda": 'mm.init(device="cuda"), once; variables are stored by the workers',
    "cpu": "p.numpy() for the values of a parameter in this process",
    "float": _TYPES,
    "double": _TYPES,
    "half": _TYPES,
    "bfloat16": _TYPES,
    "children": "module.modules(), which also has the modules in modules",
    "named_children": "module.named_modules(), which also has the modules in modules",
    "get_submodule": "dict(module.named_modules())[path]",
    "get_parameter": "dict(module.named_parameters())[path]",
    "zero_grad": "mm.grad(loss, parameters), which returns new gradients in each call",
    "requires_grad_": "module.freeze() or module.unfreeze()",
    "share_memory": "mm.init(workers=n)",
}
"""Attributes that modules lack."""

NETWORK_ATTRIBUTES: Final[Mapping[str, str]] = {
    **MODULE_ATTRIBUTES,
    "compile": "mm.nn.NeuralNetwork(layers, loss=…, optimizer=…)",
    "train_on_batch": "net.fit(x, y, epochs=1, batch_size=len(x)), or mm.parallel.CompiledStep",
    "add": "mm.nn.NeuralNetwork([layer, …]), with all layers",
    "weights": "net.module.parameters()",
    "trainable_variables": "net.module.trainable()",
    "get_weights": "net.module.state_dict()",
    "set_weights": "net.module.load_state_dict(state)",
    "load_weights": "net.load(path)",
    "save_weights": "net.save(path)",
}
"""Attributes that networks lack: those of modules, and Keras's."""

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
        close = _closest(name, tuple(public))
        hint = f"; did you mean {close!r}?" if close else ""
    return missing_attribute(f"module {module!r}", name, hint)


@lru_cache(maxsize=256)
def _closest(name: str, public: tuple[str, ...]) -> str:
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

"""Names of layers, losses and optimizers of PyTorch and Keras, with what to write instead.

As `core/foreign_names.py`, which has the names of functions and of arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_CTC = "a loss of your own; there is no CTC loss, whose sums over time are mm.scan and mm.logaddexp"
_TRIPLET = (
    "mm.mean(mm.relu(near - far + margin)), with distances such as "
    "near = mm.linalg.vector_norm(anchor - positive, axis=1)"
)
_GAUSSIAN = "mm.mean(mm.log(variance) + (outputs - targets) ** 2 / variance) / 2"
_POISSON = "mm.mean(mm.exp(outputs) - targets * outputs)"
_COSINE = (
    "mm.mean(mm.where(y > 0, 1 - cosine, mm.relu(cosine - margin))), with the mm.vecdot(x1, x2) of "
    "vectors of length 1 as the cosine"
)
_RANKING = "mm.mean(mm.relu(margin - y * (x1 - x2)))"
_SOFT_MARGIN = "mm.mean(mm.logaddexp(0.0, -y * x))"
_WEIGHT_NORM = (
    "g * v / mm.linalg.vector_norm(v, axis=0, keepdims=True), the weight, in the __call__ of a "
    "module with the parameters g and v"
)
_SPECTRAL_NORM = "w / mm.linalg.norm(w, 2), the weight, in the __call__ of a module"
_PACKED = (
    "lengths= of mm.nn.RNN, GRU and LSTM; elsewhere key_mask= of attention, or a mask in the loss"
)
_UNPOOL = (
    "mm.nn.Upsample(scale_factor=scale), or mm.nn.ConvTranspose2d; max pooling returns no positions"
)


def _lp_pool(dimensions: int) -> str:
    """Return the formula of a pooling by norms, in so many dimensions of space."""
    size = "kernel" if dimensions == 1 else f"kernel**{dimensions}"
    return f"(mm.nn.functional.avg_pool{dimensions}d(x**p, kernel) * {size}) ** (1 / p)"


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
    **dict.fromkeys(
        ("clip_grad_norm_", "clip_grad_norm"), "clip_norm= of an optimizer, such as mm.optim.Adam"
    ),
    "clip_grad_value_": "clip_value= of an optimizer, such as mm.optim.Adam",
    "utils": "clip_norm= and clip_value= of an optimizer, such as mm.optim.Adam",
    "CTCLoss": _CTC,
    "TripletMarginLoss": _TRIPLET,
    "ctc_loss": _CTC,
    "triplet_margin_loss": _TRIPLET,
    "weight_norm": _WEIGHT_NORM,
    "spectral_norm": _SPECTRAL_NORM,
    "pack_padded_sequence": _PACKED,
    "pad_packed_sequence": _PACKED,
    "NLLLoss2d": "mm.nn.cross_entropy(outputs, labels), without log_softmax before it",
    "GaussianNLLLoss": _GAUSSIAN,
    "PoissonNLLLoss": _POISSON,
    "CosineEmbeddingLoss": _COSINE,
    "MarginRankingLoss": _RANKING,
    "SoftMarginLoss": _SOFT_MARGIN,
    "MultiLabelSoftMarginLoss": "mm.nn.binary_cross_entropy_with_logits(outputs, targets)",
    "PairwiseDistance": "mm.linalg.vector_norm(x - y, axis=-1)",
    "Softmax2d": "mm.nn.Softmax(axis=1)",
    "Threshold": "mm.nn.Lambda(lambda x: mm.nn.functional.threshold(x, limit, value))",
    "UpsamplingNearest2d": "mm.nn.Upsample(scale_factor=scale)",
    "UpsamplingBilinear2d": "mm.nn.Upsample(scale_factor=scale, mode='bilinear', "
    "align_corners=True)",
    **{f"MaxUnpool{d}d": _UNPOOL for d in (1, 2, 3)},
    **{f"LPPool{d}d": f"mm.nn.Lambda(lambda x: {_lp_pool(d)})" for d in (1, 2, 3)},
    **{
        f"Lazy{layer}{d}d": f"mm.nn.{layer}{d}d(channels, kernel)"
        for layer in ("Conv", "ConvTranspose")
        for d in (1, 2, 3)
    },
    **{
        f"Lazy{layer}{d}d": f"mm.nn.{layer}()"
        for layer in ("BatchNorm", "InstanceNorm")
        for d in (1, 2, 3)
    },
    **{
        f"ConstantPad{d}d": "mm.nn.Lambda(lambda x: mm.pad(x, widths, constant_values=value))"
        for d in (1, 2, 3)
    },
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
    "cosine_similarity": "mm.vecdot(x, y) of vectors divided by their mm.linalg.vector_norm, or by "
    "1e-8 where it is smaller",
    "normalize": "x / mm.maximum(mm.linalg.vector_norm(x, axis=1, keepdims=True), 1e-12)",
    "gumbel_softmax": "mm.softmax((x + mm.random.gumbel(size=x.shape)) / temperature, axis=-1)",
    "upsample": "mm.nn.functional.interpolate(x, scale_factor=scale)",
    "ctc_loss": _CTC,
    "triplet_margin_loss": _TRIPLET,
    "embedding_bag": "mm.mean(mm.nn.functional.embedding(x, weight), axis=1)",
    "gaussian_nll_loss": _GAUSSIAN,
    "poisson_nll_loss": _POISSON,
    "cosine_embedding_loss": _COSINE,
    "margin_ranking_loss": _RANKING,
    "soft_margin_loss": _SOFT_MARGIN,
    "multilabel_soft_margin_loss": "mm.nn.binary_cross_entropy_with_logits(outputs, targets)",
    "pairwise_distance": "mm.linalg.vector_norm(x - y, axis=-1)",
    "pdist": "mm.cdist(x, x)",
    "upsample_nearest": "mm.nn.functional.interpolate(x, scale_factor=scale)",
    "upsample_bilinear": "mm.nn.functional.interpolate(x, scale_factor=scale, mode='bilinear', "
    "align_corners=True)",
    **{f"max_unpool{d}d": _UNPOOL for d in (1, 2, 3)},
    **{f"lp_pool{d}d": _lp_pool(d) for d in (1, 2, 3)},
    "pack_padded_sequence": _PACKED,
    "pad_packed_sequence": _PACKED,
    **{f"dropout{d}d": "mm.nn.Dropout(rate, per_channel=True)" for d in (1, 2, 3)},
}
"""Names that are missing in `mm.nn.functional`."""

OPTIMIZER_ATTRIBUTES: Final[Mapping[str, str]] = {
    "step": "optimizer.update(gradients), where loss, gradients = mm.value_and_grad(f, parameters)",
    "zero_grad": "nothing; gradients are results of mm.value_and_grad and add up nowhere",
    "param_groups": "the argument groups= for other settings of some variables, and "
    "optimizer.learning_rate",
    "apply_gradients": "optimizer.update(dict(zip(variables, gradients)))",
    "state": "optimizer.state_dict()",
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
    "Adafactor": "mm.optim.Adam(learning_rate), whose states take more memory",
    "Lion": "mm.optim.AdamW(learning_rate)",
    "Muon": "mm.optim.Momentum(learning_rate, momentum)",
    "SparseAdam": "mm.optim.Adam(learning_rate)",
    "Rprop": "mm.optim.RMSprop(learning_rate), its form for batches",
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
    "MultiplicativeLR": "a function of the step as the learning rate",
    "CyclicLR": "a function of the step as the learning rate, or mm.optim.schedules.OneCycle",
    "SequentialLR": "mm.optim.schedules.WarmUp(after, steps), or a function of the step",
    "ChainedScheduler": "a function of the step as the learning rate",
}
"""Names that are missing in `mm.optim.schedules`."""

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

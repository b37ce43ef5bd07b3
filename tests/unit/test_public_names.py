"""The public names: all documented names exist, load lazily, and are visible to type checkers."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from functools import reduce
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

import magmath as mm
from magmath.api import elementwise as functions
from magmath.api import elementwise_names
from magmath.core import foreign_names, foreign_network_names, missing_numpy_names
from magmath.ops import elementwise

NAMES = """
    init shutdown pool sliding_window_view
    Array Variable DType Layout Mesh MemoryManager MemoryKind
    Array.layout Array.redistribute Array.replicate Array.explain Array.__array__
    Layout.replicated Layout.split Layout.cyclic Layout.grid Layout.block_cyclic Layout.on
    Layout.blocks
    asarray variable constant evaluate grad value_and_grad hessian jacobian jvp vjp vmap remat compile custom_gradient
    fori_loop scan cond while_loop
    zeros ones empty full zeros_like ones_like full_like empty_like arange linspace eye tril triu
    meshgrid from_dlpack can_cast finfo iinfo isdtype __array_namespace_info__
    get_default_dtype set_default_dtype
    bool int8 int16 int32 int64 uint8 uint16 uint32 uint64
    float16 bfloat16 float32 float64 complex64 complex128
    e inf nan newaxis pi
    abs acos acosh add all any argmax argmin asin asinh astype atan atan2 atanh bitwise_and
    bitwise_invert bitwise_left_shift bitwise_or bitwise_right_shift bitwise_xor broadcast_arrays
    broadcast_to ceil clip concat copysign cos cosh cumulative_sum divide equal erf exp expand_dims
    expm1 floor floor_divide greater greater_equal hypot isfinite isinf isnan less less_equal log
    log10 log1p log2 logaddexp logical_and logical_not logical_or logical_xor matmul
    matrix_transpose max maximum mean min minimum multiply negative not_equal permute_dims positive
    pow prod reciprocal remainder reshape result_type round sign sin sinh sqrt square squeeze stack
    nonzero searchsorted sort argsort isin unique_all unique_counts unique_inverse unique_values
    std subtract sum take take_along_axis tan tanh trunc var where einsum outer tensordot vecdot
    std subtract sum take tan tanh trunc var where einsum outer tensordot vecdot
    std subtract sum take tan tanh trunc var where
    lgamma digamma polygamma cdist
    conj real imag signbit nextafter broadcast_shapes moveaxis unstack flip roll tile repeat
    cumulative_prod count_nonzero diff
    relu sigmoid softmax log_softmax logsumexp stop_gradient erfc logit softplus
    fft.fft fft.ifft fft.fftn fft.ifftn fft.rfft fft.irfft fft.rfftn fft.irfftn fft.hfft fft.ihfft
    fft.fftfreq fft.rfftfreq fft.fftshift fft.ifftshift
    signal.convolve signal.correlate
    random.normal random.uniform random.integers random.permutation random.seed
    random.Generator random.default_rng random.random random.standard_normal random.choice
    random.shuffle random.rand random.randn random.randint random.random_sample random.permuted
    random.exponential random.standard_exponential random.poisson random.binomial random.gamma
    random.standard_gamma random.beta random.lognormal random.multivariate_normal random.laplace
    random.geometric random.chisquare random.standard_t random.negative_binomial random.dirichlet
    random.multinomial random.weibull random.rayleigh random.pareto random.gumbel random.logistic
    random.f
    linalg.cholesky linalg.cross linalg.det linalg.diagonal linalg.eig linalg.eigh linalg.eigvals
    linalg.eigvalsh linalg.inv linalg.lstsq linalg.lu linalg.matmul linalg.matrix_norm
    linalg.matrix_power linalg.matrix_rank linalg.matrix_transpose linalg.outer linalg.pinv linalg.qr
    linalg.slogdet linalg.solve linalg.solve_triangular linalg.svd linalg.svd_truncated
    linalg.svdvals linalg.tensordot linalg.trace linalg.vecdot linalg.vector_norm
    optim.GradientDescent optim.Momentum optim.Adadelta optim.Adagrad optim.RMSprop optim.Adam optim.AdamW optim.LARS
    optim.Optimizer.minimize optim.Optimizer.update optim.Optimizer.state_dict
    optim.Optimizer.load_state_dict Variable.assign
    optim.schedules.Constant optim.schedules.Step optim.schedules.MultiStep
    optim.schedules.Exponential optim.schedules.Polynomial optim.schedules.Cosine
    optim.schedules.WarmUp optim.schedules.OneCycle optim.schedules.Plateau
    nn.cross_entropy nn.binary_cross_entropy nn.binary_cross_entropy_with_logits
    nn.mean_squared_error nn.mean_absolute_error nn.huber nn.hinge nn.kl_divergence
    nn.metrics.accuracy nn.metrics.top_k_accuracy nn.metrics.precision nn.metrics.recall
    nn.metrics.f1 nn.metrics.confusion_matrix nn.initializers.glorot nn.initializers.he
    nn.initializers.Uniform nn.initializers.Mask
    parallel.Plan parallel.plan
    nn.NeuralNetwork nn.Dense nn.Activation nn.Dropout nn.Flatten
    nn.Module nn.Module.build nn.Module.state_dict nn.Module.load_state_dict nn.Module.trainable
    nn.Module.freeze nn.Module.unfreeze nn.Module.train nn.Module.eval nn.Module.summary
    nn.Module.save nn.Module.load nn.Parameter nn.Buffer nn.RngState nn.deferred
    nn.Sequential nn.Residual nn.Add nn.Concatenate nn.Identity nn.Lambda nn.Embedding
    nn.LayerNorm nn.RMSNorm nn.functional.rms_norm nn.BatchNorm nn.ReLU nn.GELU nn.Softmax nn.functional.linear
    nn.functional.dropout nn.functional.layer_norm nn.functional.batch_norm
    nn.functional.embedding nn.functional.one_hot nn.functional.gelu
    nn.Conv1d nn.Conv2d nn.Conv3d nn.ConvTranspose2d nn.MaxPool2d nn.AvgPool2d
    nn.AdaptiveAvgPool2d nn.AdaptiveMaxPool2d nn.GlobalAvgPool nn.GlobalMaxPool nn.GroupNorm
    nn.InstanceNorm nn.LocalResponseNorm nn.Upsample nn.Unfold nn.Fold nn.Bilinear nn.functional.grid_sample nn.functional.affine_grid nn.ZeroPad2d nn.ReflectionPad2d nn.Parallel
    nn.PReLU nn.PixelShuffle nn.PixelUnshuffle nn.ChannelShuffle nn.functional.prelu
    nn.functional.pixel_shuffle nn.functional.pixel_unshuffle nn.functional.channel_shuffle
    nn.functional.conv2d nn.functional.conv_transpose2d nn.functional.max_pool2d
    nn.functional.avg_pool2d nn.functional.interpolate nn.functional.pad
    nn.zoo.NETWORKS nn.zoo.lenet5 nn.zoo.alexnet nn.zoo.vgg16 nn.zoo.googlenet
    nn.zoo.inception_v3 nn.zoo.resnet18 nn.zoo.mobilenet_v2
    parallel.DataParallel parallel.WeightAveraging parallel.ModelParallel parallel.Hybrid
    parallel.Auto parallel.Replicas parallel.Strategy parallel.CompiledStep parallel.STRATEGIES
    train.Trainer train.Trainer.fit train.Trainer.evaluate train.Trainer.predict
    train.Callback train.EarlyStopping train.BestWeights train.LearningRateSchedule
    nn.NeuralNetwork.fit nn.NeuralNetwork.evaluate nn.NeuralNetwork.predict
    nn.NeuralNetwork.summary nn.NeuralNetwork.explain nn.NeuralNetwork.save nn.NeuralNetwork.load
    data.load data.read_csv interop.from_torch interop.TorchModule
    load save savez explain profile
    errors.MagmathError
"""
OF_NUMPY = (  # see unit/test_numpy_functions.py; NumPy 2.5 has removed row_stack
    {*np.__all__, "row_stack"} & set(dir(mm)) - {"__version__"}
)
PROMISED = sorted({*NAMES.split(), *OF_NUMPY, *elementwise_names.__annotations__})
CONSTANTS = {"e", "euler_gamma", "inf", "nan", "newaxis", "pi"}


def names_for_type_checkers() -> list[tuple[str, str, str]]:
    """Public name, module, and its name there, of the imports that only type checkers see."""
    tree = ast.parse(Path(mm.__file__).read_text())
    (block,) = [
        node.body
        for node in tree.body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    result = [
        (alias.asname, statement.module or "", alias.name)
        for statement in block
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
        if alias.asname is not None
    ]
    from_records = [
        (name, "magmath.api.elementwise", name)
        for statement in block
        if ast.unparse(statement) == f"from {elementwise_names.__name__} import *"
        for name in elementwise_names.__annotations__
    ]
    renamed = [
        (statement.targets[0].id, "magmath.core.dtypes", statement.value.id)
        for statement in block
        if isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Name)
        and isinstance(statement.value, ast.Name)
    ]
    return [*result, *from_records, *renamed]


def lazily_loaded() -> set[str]:
    return {*mm._HOME, *mm._MODULES}


@pytest.mark.parametrize("name", PROMISED)
def test_promised_name_resolves(name: str) -> None:
    reduce(getattr, name.split("."), mm)


INTERNAL = {"root", "where_positive", "zeta", "complex", "argument", "clamp_min", "clamp_max"}
"""Element-wise operations that serve others: the derivative of relu, the limits of `clip`."""


def test_each_element_wise_operation_is_public() -> None:
    """By its summary, or by a function that is written out."""
    public = {*functions.FUNCTIONS, *dir(mm), *dir(mm.nn.functional)}
    assert set(elementwise.OPERATIONS) - public == INTERNAL


def declarations() -> dict[str, str]:
    """The line that `api/elementwise_names.py` needs for each function of a record."""
    types = {
        "Callable[..., Array]": elementwise.PARTS,
        "UnaryFunction": elementwise.UNARY,
        "BinaryFunction": (*elementwise.BINARY, *elementwise.LOGICAL),
    }
    return {
        record.name: f"{record.name}: {kind}"
        for kind, records in types.items()
        for record in records
        if record.public.summary
    }


def test_each_function_of_a_record_is_declared() -> None:
    """And nothing else is, in alphabetical order. The error names the line."""
    path = "src/magmath/api/elementwise_names.py"
    declared = [f"{name}: {kind}" for name, kind in elementwise_names.__annotations__.items()]
    expected = declarations()
    assert set(expected) == set(functions.FUNCTIONS)
    missing = sorted(set(expected.values()) - set(declared))
    assert not missing, f"{path} lacks: {'; '.join(missing)}"
    unknown = sorted(set(declared) - set(expected.values()))
    assert not unknown, f"{path} declares what follows from no record: {'; '.join(unknown)}"
    assert declared == sorted(declared), path


def test_functions_of_records_have_all_that_the_record_says() -> None:
    """Name, documentation, number of operands, methods and identity are those of the record."""
    for record in (*elementwise.UNARY, *elementwise.BINARY, *elementwise.LOGICAL):
        if not record.public.summary:
            continue
        function: Any = functions.FUNCTIONS[record.name]
        assert function is getattr(functions, record.name)
        assert function.__name__ == function.__qualname__ == record.name
        assert function.__doc__.splitlines()[0] == record.public.summary
        assert function.nin == (1 if record in elementwise.UNARY else 2)
        assert function.identity == record.public.identity
        methods = ("at",) if function.nin == 1 else ("reduce", "accumulate", "outer", "at")
        for method in methods:
            assert getattr(function, method).__qualname__ == f"{record.name}.{method}"


def test_identities_are_those_of_numpy() -> None:
    """A record with the name of a universal function has the identity of that."""
    for record in (*elementwise.BINARY, *elementwise.LOGICAL):
        ufunc = getattr(np, record.name, None)
        if isinstance(ufunc, np.ufunc):
            assert record.public.identity == ufunc.identity, record.name


def test_the_package_runs_as_a_command() -> None:
    command = [sys.executable, "-m", "magmath", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert shown.startswith("Usage: magmath COMMAND")


def test_dir_lists_the_promised_names() -> None:
    assert {*dir(mm)} == {name.split(".")[0] for name in PROMISED} | {"__version__"}
    assert "NeuralNetwork" in dir(mm.nn)


@pytest.mark.parametrize("name", sorted(set(mm._MODULES) - {"errors"}))
def test_dir_of_a_module_lists_its_public_names(name: str) -> None:
    module = getattr(mm, name)
    assert dir(module) == sorted(module.__all__)
    assert all(hasattr(module, each) for each in module.__all__)


def test_every_lazy_name_is_promised() -> None:
    assert lazily_loaded() | CONSTANTS == {name.split(".")[0] for name in PROMISED}


def test_type_checkers_see_what_is_loaded() -> None:
    seen = names_for_type_checkers()
    assert {name for name, _, _ in seen} == lazily_loaded()
    for name, module, attribute in seen:
        if name in mm._MODULES:
            assert getattr(mm, name) is import_module(mm._MODULES[name])
            assert mm._MODULES[name] == f"{module}.{attribute}"
        else:
            assert getattr(mm, name) is getattr(import_module(module), attribute), name


@pytest.mark.parametrize("module", [mm, mm.nn])
def test_an_unknown_name_is_an_attribute_error(module: object) -> None:
    with pytest.raises(AttributeError, match=r"module 'magmath[.n]*' has no attribute 'nothing'"):
        _ = module.nothing  # type: ignore[attr-defined]


def run(code: str) -> str:
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_import_is_light() -> None:
    """NumPy too: its BLAS must not load before the processor's kernels are chosen."""
    heavy = {"torch", "llvmlite", "mpi4py", "numpy", "scipy", "zmq"}
    code = (
        "import sys, magmath; dir(magmath); hasattr(magmath, '__wrapped__'); "
        f"print(sorted({heavy} & set(sys.modules)))"
    )
    assert run(code) == "[]"


IMPORTED_FIRST = """
import importlib, os, torch  # which takes longest, once for all
for package in ("nn", "optim", "train", "transform.compiled"):
    child = os.fork()
    if not child:
        importlib.import_module(f"magmath.{package}")
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, package
"""


def test_each_package_can_be_imported_first() -> None:
    assert run(IMPORTED_FIRST) == ""


def test_missing_names_of_numpy_raise_errors_with_the_reason() -> None:
    for name, reason in missing_numpy_names.EXCLUDED.items():
        assert callable(getattr(np, name))
        with pytest.raises(AttributeError, match=re.escape(reason)):
            getattr(mm, name)
    for name, reason in missing_numpy_names.EXCLUDED_OBJECTS.items():
        assert hasattr(np, name)
        with pytest.raises(AttributeError, match=re.escape(reason)):
            getattr(mm, name)
    for name, reason in missing_numpy_names.EXCLUDED_METHODS.items():
        assert hasattr(np.ndarray, name)
        if not hasattr(mm, name):
            with pytest.raises(AttributeError, match=re.escape(reason)):
                getattr(mm.ones(3), name)
    with pytest.raises(AttributeError, match=r"no attribute 'exp'; write mm\.exp\(x\)"):
        mm.ones(3).exp()  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="no attribute 'meen'; did you mean 'mean'"):
        mm.meen  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="'magmath.linalg' has .*; did you mean 'solve'"):
        mm.linalg.slove  # type: ignore[attr-defined]  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'frobnicate'$"):
        mm.frobnicate  # type: ignore[attr-defined]  # noqa: B018


def owners() -> list[tuple[dict[str, str], object, str]]:
    """The tables of names of other libraries, what lacks these names, and its own name."""
    return [
        (dict(foreign_names.MM_NAMES), mm, "mm"),
        (dict(foreign_network_names.NN_NAMES), mm.nn, "mm.nn"),
        (dict(foreign_network_names.FUNCTIONAL_NAMES), mm.nn.functional, "mm.nn.functional"),
        (dict(foreign_network_names.OPTIM_NAMES), mm.optim, "mm.optim"),
        (dict(foreign_names.RANDOM_NAMES), mm.random, "mm.random"),
        (dict(foreign_names.DATA_NAMES), mm.data, "mm.data"),
        (dict(foreign_names.ARRAY_ATTRIBUTES), mm.ones((2, 2)), "x"),
    ]


def test_names_of_other_libraries_raise_errors_with_the_replacement() -> None:
    for table, owner, _ in owners():
        for name, text in table.items():
            assert not hasattr(owner, name), f"delete {name!r} from core/foreign_names.py"
            with pytest.raises(AttributeError, match=re.escape(f"{name!r}; write {text}")):
                getattr(owner, name)


def test_all_names_that_are_told_exist() -> None:
    result = 0
    for table, _, _ in owners():
        for name, text in table.items():
            named = re.findall(r"(?<![\w.])(mm|x)((?:\.\w+)+)", text)
            for start, path in named:
                value: object = mm if start == "mm" else mm.ones((2, 2))
                for part in path[1:].split("."):
                    assert hasattr(value, part), (name, text)
                    value = getattr(value, part)
                result += 1
            assert named or re.search(r"\bx\b|Python|mm,|clip_norm", text), (name, text)
    assert result > 150


def test_usual_layers_losses_and_optimizers_of_pytorch_exist_or_have_a_hint() -> None:
    for name in USUAL_LAYERS.split():
        assert hasattr(torch.nn, name), name
        assert hasattr(mm.nn, name) or name in foreign_network_names.NN_NAMES, name
    for name in (
        "SGD",
        "Adam",
        "AdamW",
        "Adadelta",
        "Adagrad",
        "RMSprop",
        "NAdam",
        "RAdam",
        "Adamax",
    ):
        assert hasattr(torch.optim, name)
        assert hasattr(mm.optim, name) or name in foreign_network_names.OPTIM_NAMES, name


def test_usual_methods_and_functions_of_pytorch_have_a_hint() -> None:
    x = mm.ones((2, 2))
    for name, text in (
        ("lt", "mm.less(x, y)"),
        ("relu_", "x[...] = mm.relu(x)"),
        ("det", "mm.linalg.det(x)"),
        ("slogdet", "mm.linalg.slogdet"),
        ("dropout", "mm.nn.functional.dropout"),
    ):
        with pytest.raises(AttributeError, match=rf"{name!r}; write {re.escape(text)}$"):
            getattr(x, name)
    for name in USUAL_METHODS.split():
        assert hasattr(torch.Tensor, name), name
        if hasattr(x, name):
            continue
        with pytest.raises(AttributeError, match="; write "):
            getattr(x, name)
    for name in ("conv2d", "max_pool2d", "lstm", "layer_norm", "solve", "slogdet", "rfft"):
        with pytest.raises(AttributeError, match=rf"; write mm\.[\w.]+\.{name}$"):
            getattr(mm, name)


USUAL_METHODS = """
    abs_ add add_ addcmul addmm all amax aminmax any argmax argsort bmm ceil chunk clamp clamp_min
    clone cos cumsum det detach diag dot double eq exp exp_ expand flatten float floor gather ge gt
    half index_add_ index_fill_ index_select inverse isnan item le lerp log log_ logsumexp lt
    masked_fill masked_fill_ masked_select matmul max mean mm movedim mul narrow ne neg new_ones
    new_zeros norm normal_ numel outer permute pow pow_ prod qr relu relu_ repeat_interleave round_
    rsqrt scatter_ scatter_add_ sigmoid sign sin softmax sort split sqrt sqrt_ squeeze_ std sub sum
    svd t tanh topk trace tril trunc type_as unbind unflatten unfold uniform_ unsqueeze var where
    zero_
"""


@pytest.mark.parametrize(
    ("name", "loss"),
    [
        ("GaussianNLLLoss", torch.nn.GaussianNLLLoss()),
        ("PoissonNLLLoss", torch.nn.PoissonNLLLoss()),
        ("MarginRankingLoss", torch.nn.MarginRankingLoss(0.5)),
        ("SoftMarginLoss", torch.nn.SoftMarginLoss()),
        ("CosineEmbeddingLoss", torch.nn.CosineEmbeddingLoss(0.5)),
    ],
)
def test_formulas_in_place_of_losses_have_their_values(name: str, loss: torch.nn.Module) -> None:
    random = np.random.default_rng(1)
    outputs, targets = random.standard_normal((2, 6, 3))
    variance, y = random.uniform(0.5, 2, (6, 3)), np.sign(random.standard_normal((6, 3)))
    text = foreign_network_names.NN_NAMES[name].split(", with ")[0]
    values = {"outputs": outputs, "targets": targets, "variance": variance, "y": y, "margin": 0.5}
    values |= {"x": outputs, "x1": outputs, "x2": targets}
    operands = {
        "GaussianNLLLoss": (outputs, targets, variance),
        "MarginRankingLoss": (outputs, targets, y),
        "SoftMarginLoss": (outputs, y),
        "CosineEmbeddingLoss": (outputs, targets, y[:, 0]),
    }.get(name, (outputs, targets))
    if name == "CosineEmbeddingLoss":
        vectors = [mm.asarray(x) for x in operands[:2]]
        unit = [x / mm.linalg.vector_norm(x, axis=-1, keepdims=True) for x in vectors]
        values |= {"cosine": mm.vecdot(*unit), "y": y[:, 0]}
    named = {name: mm.asarray(value) for name, value in values.items()}
    expected = loss(*map(torch.from_numpy, operands)).item()
    assert float(eval(text, {"mm": mm}, named)) == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("UpsamplingNearest2d", torch.nn.UpsamplingNearest2d(scale_factor=2)),
        ("UpsamplingBilinear2d", torch.nn.UpsamplingBilinear2d(scale_factor=2)),
        ("LPPool2d", torch.nn.LPPool2d(2, 3)),
    ],
)
def test_hints_in_place_of_layers_have_their_outputs(name: str, layer: torch.nn.Module) -> None:
    images = np.random.default_rng(2).standard_normal((2, 3, 6, 7)).astype(np.float32)
    text = foreign_network_names.NN_NAMES[name]
    ours = eval(text, {"mm": mm, "scale": 2, "p": 2, "kernel": 3})
    np.testing.assert_allclose(ours(images), layer(torch.from_numpy(images)), atol=1e-5)


USUAL_LAYERS = """
    Linear Conv1d Conv2d Conv3d ConvTranspose2d MaxPool2d AvgPool2d AdaptiveAvgPool2d BatchNorm1d
    BatchNorm2d BatchNorm3d LayerNorm GroupNorm InstanceNorm2d Dropout Dropout2d Embedding Flatten
    Identity RMSNorm ReLU PReLU PixelShuffle PixelUnshuffle ChannelShuffle GELU SiLU ELU LeakyReLU Sigmoid Tanh Softmax LogSoftmax Softplus Softmin Tanhshrink GLU Sequential
    ModuleList ModuleDict ParameterList Module Parameter Upsample Unfold Fold Bilinear ZeroPad2d CrossEntropyLoss MSELoss
    L1Loss SmoothL1Loss HuberLoss BCELoss BCEWithLogitsLoss KLDivLoss NLLLoss LocalResponseNorm
"""


def _public_modules() -> dict[str, ModuleType]:
    """Return the modules that users reach by public names, by these names."""
    result: dict[str, ModuleType] = {}
    waiting = {"mm": mm}
    while waiting:
        name, module = waiting.popitem()
        result[name] = module
        for own in dir(module):
            value = getattr(module, own)
            if isinstance(value, ModuleType) and value not in result.values():
                waiting[f"{name}.{own}"] = value
    return result


PUBLIC_MODULES = _public_modules()
HELPERS = {"Any", "TYPE_CHECKING", "annotations", "dataclass", "final", "math", "np", "partial"}
"""What modules import for themselves."""


def test_public_modules_are_found() -> None:
    expected = {"mm.linalg", "mm.nn.functional", "mm.nn.metrics", "mm.optim.schedules", "mm.errors"}
    assert expected <= PUBLIC_MODULES.keys()


@pytest.mark.parametrize("name", PUBLIC_MODULES)
def test_dir_of_a_public_module_has_its_public_names_only(name: str) -> None:
    """`dir` is `__all__`, without what the module imports for itself."""
    module = PUBLIC_MODULES[name]
    assert module.__name__.startswith("magmath")
    names = dir(module)
    if module is not mm:
        assert names == sorted(module.__all__)
    assert not HELPERS & set(names)
    for own in names:
        value = getattr(module, own)
        assert not own.startswith("_") or (module is mm and own.startswith("__"))
        if isinstance(value, ModuleType):
            assert value.__name__.startswith("magmath"), own

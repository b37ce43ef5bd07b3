"""Mistakes with layers: arguments by position, and parameters that do not exist yet."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import magmath as mm
from magmath.arrays.tree import flatten
from magmath.errors import DTypeError, OptionError, ShapeError, WeightsError
from magmath.nn import functional as f


@pytest.mark.parametrize("layer", [mm.nn.Conv1d, mm.nn.Conv2d, mm.nn.Conv3d, mm.nn.ConvTranspose2d])
def test_torchs_form_of_a_convolution_is_an_error(layer: type) -> None:
    """`Conv2d(3, 16, 3)` would mean three channels, a kernel of 16 and a stride of 3."""
    message = rf"{layer.__name__}: takes channels, kernel by position, and by name stride, padding"
    with pytest.raises(TypeError, match=message) as caught:
        layer(3, 16, 3)
    assert "the number of inputs follows from the first call" in str(caught.value)


def test_other_classes_name_their_arguments_too() -> None:
    with pytest.raises(TypeError, match=r"^Adam: takes learning_rate") as caught:
        mm.optim.Adam(*range(30))  # type: ignore[arg-type]
    assert "first call" not in str(caught.value)


def test_an_error_inside_of_a_constructor_stays() -> None:
    def fewer(x: float) -> float:
        return x

    with pytest.raises(TypeError, match=r"fewer\(\) takes 1 positional argument but 2 were given"):
        mm.nn.Dense(3, weight_init=lambda shape, *, dtype: fewer(1, 2))(mm.ones((2, 3)))  # type: ignore[call-arg]


@pytest.mark.parametrize(
    "use",
    [
        lambda w: w + 1,
        lambda w: mm.ones(3) * w,
        lambda w: np.ones(3) * w,
        lambda w: mm.ones((2, 3)) @ w,
        lambda w: w[0],
        np.asarray,
        lambda w: w > 0,
    ],
)
def test_a_parameter_before_the_first_call_says_how_it_is_made(use: Callable[[Any], Any]) -> None:
    layer = mm.nn.Dense(3)
    with pytest.raises(mm.errors.MagmathError, match=r"does not exist yet.*module\.build\(shape\)"):
        use(layer.weight)
    assert layer(mm.ones((1, 2))).shape == (1, 3)


def test_a_shape_in_place_of_a_parameters_value() -> None:
    with pytest.raises(
        TypeError, match=r"may be a shape; zeros of this shape are Parameter\(0\.0, \(3, 4\)\)"
    ):
        mm.nn.Parameter((3, 4))
    assert mm.nn.Parameter(0.0, (3, 4)).shape == (3, 4)
    assert mm.nn.Parameter([3, 4]).tolist() == [3.0, 4.0]


def test_a_state_with_text_for_a_number() -> None:
    with pytest.raises(TypeError, match="'steps' is a number of steps, was given 'a'"):
        mm.optim.Adam().load_state_dict({"steps": "a"})


@pytest.mark.parametrize("index", [7, 8, -1, -7, -8, 1 << 40, -(1 << 40)])
@pytest.mark.parametrize("dtype", ["int16", "int64"])
def test_the_errors_of_a_table_say_what_it_takes(index: int, dtype: str) -> None:
    """No error allows an index that another one refuses."""
    if index != np.int64(index).astype(dtype):
        return
    layer = mm.nn.Embedding(7, 5)
    allowed = "the last index is 6" if index > 0 else "indices go from 0 to 6"
    with pytest.raises(IndexError, match=rf"index {index} is out of range .*; {allowed}"):
        layer(mm.asarray([2, index], dtype=dtype)).numpy()


@pytest.mark.parametrize(
    "layer", [mm.nn.AvgPool1d, mm.nn.AvgPool2d, mm.nn.MaxPool2d, mm.nn.MaxPool3d]
)
def test_a_window_that_does_not_fit_names_the_layer(layer: type) -> None:
    space = int(layer.__name__[-2])
    with pytest.raises(mm.errors.ShapeError, match=rf"^{layer.__name__}: a window of 9 elements"):
        layer(9)(mm.ones((1, 2, *[4] * space)))


@pytest.mark.parametrize("function", ["avg_pool2d", "max_pool2d"])
def test_a_window_that_does_not_fit_names_the_function(function: str) -> None:
    with pytest.raises(mm.errors.ShapeError, match=rf"^{function}: a window of 9 elements"):
        getattr(mm.nn.functional, function)(mm.ones((1, 2, 4, 4)), 9)


def test_branches_are_joined_along_an_axis_from_the_end() -> None:
    layer = mm.nn.Parallel(mm.nn.Dense(3), mm.nn.Dense(4), axis=-1)
    assert layer(mm.ones((2, 5))).shape == (2, 7)


@pytest.mark.parametrize("groups", [0, -1])
@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d"])
def test_groups_of_a_convolution_are_positive(name: str, groups: int) -> None:
    function = getattr(mm.nn.functional, name)
    with pytest.raises(mm.errors.ShapeError, match=rf"{name}: .*group"):
        function(mm.ones((1, 4, 5, 5)), mm.ones((4, 4, 3, 3)), groups=groups)


def test_integers_of_numpy_are_settings_of_windows() -> None:
    x, two, one = mm.ones((1, 2, 6, 6)), np.int64(2), np.int32(1)
    assert mm.nn.functional.max_pool2d(x, two, two, one).shape == (1, 2, 4, 4)
    assert mm.nn.MaxPool2d(two, padding=one)(x).shape == (1, 2, 4, 4)
    assert mm.nn.Conv2d(3, two, padding=one)(x).shape == (1, 3, 7, 7)


def test_a_complex_input_stays_complex() -> None:
    x = np.array([[1 + 2j, 3j]])
    weight = mm.asarray([[1.0], [2.0]], dtype="float64")
    assert mm.nn.functional.linear(mm.asarray(x), weight).tolist() == [[1 + 8j]]


@pytest.mark.parametrize("dtype", ["int64", "uint8", "bool"])
def test_integers_have_the_type_of_the_weights(dtype: str) -> None:
    x = mm.ones((2, 3), dtype=dtype)
    assert mm.nn.Dense(4)(x).dtype == mm.float32
    assert mm.nn.Bilinear(4)(x, x).dtype == mm.float32
    assert mm.nn.Conv1d(2, 2)(x[:, None]).dtype == mm.float32


@pytest.mark.parametrize("dtype", ["int64", "int32", "uint8", "bool"])
@pytest.mark.parametrize(
    "call",
    [
        lambda x: mm.nn.RNN(3)(x),
        lambda x: mm.nn.GRU(3, layers=2, bidirectional=True)(x),
        lambda x: mm.nn.LSTM(3)(x),
        lambda x: mm.nn.RNNCell(3)(x[0]),
        lambda x: mm.nn.GRUCell(3)(x[0]),
        lambda x: mm.nn.LSTMCell(3)(x[0]),
        lambda x: mm.nn.LayerNorm()(x),
        lambda x: mm.nn.RMSNorm()(x),
        lambda x: mm.nn.GroupNorm(2)(x),
        lambda x: mm.nn.InstanceNorm(affine=True)(x),
        lambda x: mm.nn.BatchNorm()(x),
        lambda x: mm.nn.BatchNorm(affine=False)(x),
        lambda x: mm.nn.BatchNorm().eval()(x),
        lambda x: mm.nn.PReLU()(x),
        lambda x: mm.nn.MultiheadAttention(4, 2)(x),
        lambda x: mm.nn.TransformerEncoderLayer(4, 2)(x),
        lambda x: mm.nn.TransformerEncoderLayer(4, 2, norm_first=True)(x),
        lambda x: mm.nn.TransformerDecoderLayer(4, 2)(x, x),
    ],
)
def test_layers_compute_integers_in_the_type_of_their_weights(
    call: Callable[[mm.Array], Any], dtype: str
) -> None:
    """The results are those of the same numbers as float32."""
    numbers = mm.asarray(np.arange(32).reshape(2, 4, 4) % 5, dtype=dtype)
    results = []
    for x in (numbers, numbers.astype("float32")):
        mm.random.seed(3)
        results.append(flatten(call(x))[0])
    for y, of_floats in zip(*results, strict=True):
        assert y.dtype == of_floats.dtype == mm.float32
        np.testing.assert_array_equal(y.numpy(), of_floats.numpy())


@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d", "max_pool2d", "avg_pool2d"])
def test_padding_may_be_an_array(name: str) -> None:
    function, x = getattr(mm.nn.functional, name), mm.arange(72.0).reshape((1, 2, 6, 6))
    window = mm.ones((2, 2, 5, 5)) if name.startswith("conv") else 5
    plain = function(x, window, padding=(1, 2)).numpy()
    pairs = np.array([[1, 1], [2, 2]])
    for padding in (np.array([1, 2]), mm.asarray([1, 2]), [1, 2], iter([1, 2]), pairs):
        np.testing.assert_array_equal(function(x, window, padding=padding), plain)


def test_strides_and_windows_may_be_arrays() -> None:
    functional, x, two = mm.nn.functional, mm.arange(72.0).reshape((1, 2, 6, 6)), np.array([2, 1])
    pooled = functional.max_pool2d(x, two, stride=two).numpy()
    np.testing.assert_array_equal(pooled, functional.max_pool2d(x, (2, 1), stride=(2, 1)))
    assert functional.conv2d(x, mm.ones((3, 2, 2, 2)), stride=two).shape == (1, 3, 3, 5)
    one = np.array([2])  # along the last dimension alone
    np.testing.assert_array_equal(functional.max_pool(x, one), functional.max_pool(x, [2]))
    np.testing.assert_array_equal(
        functional.adaptive_avg_pool(x, one), functional.adaptive_avg_pool(x, [2])
    )
    np.testing.assert_array_equal(
        functional.interpolate(x, scale_factor=np.array([2.0, 1.5])),
        functional.interpolate(x, scale_factor=[2.0, 1.5]),
    )
    with pytest.raises(OptionError, match="one for each of 2 dimensions"):
        functional.max_pool2d(x, np.array([2, 2, 2]))


def test_layers_take_padding_in_an_array() -> None:
    x = mm.ones((1, 2, 6, 6))
    assert mm.nn.Conv2d(3, 3, padding=np.array([1, 2]))(x).shape == (1, 3, 6, 8)
    with pytest.raises(OptionError, match="divisor_override"):
        mm.nn.functional.avg_pool2d(x, 2, divisor_override=0)


class _WithForward(mm.nn.Module):
    def forward(self, x: mm.Array) -> mm.Array:
        return x


def test_a_weight_init_of_zero_is_one() -> None:
    x = mm.ones((1, 2))
    assert mm.nn.Dense(3, weight_init=0)(x).tolist() == [[0.0] * 3]
    assert mm.nn.Conv1d(3, 1, weight_init=0.0)(x[None]).tolist() == [[[0.0] * 2] * 3]
    assert mm.nn.Embedding(3, 2, weight_init=0)(mm.asarray([1])).tolist() == [[0.0] * 2]


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda x: mm.nn.Dense(3)(None), TypeError, "Dense: needs an array, was given None; return the output"),
        (lambda x: mm.nn.Dense(3)("x"), TypeError, "Dense: needs an array, was given 'x'; give"),
        (lambda x: mm.nn.Dense(3)(5), ShapeError, "Dense: takes .*0-d array; add"),
        (lambda x: mm.nn.Dense(3, mm.nn.ReLU), OptionError, r"given the class ReLU; write mm\.nn\.ReLU\(\)"),
        (lambda x: mm.nn.Dense(3, None), OptionError, 'activation None is not known; .*"linear" is the one'),
        (lambda x: mm.nn.Conv2d(8, 3, padding="full"), OptionError, "Conv2d: padding must be .*given 'full'"),
        (lambda x: mm.nn.Conv2d(8, 3, padding=-1), OptionError, "Conv2d: padding must be .* -1"),
        (lambda x: mm.nn.MaxPool2d(2, padding=(1, 2, 3)), OptionError, "MaxPool2d: padding needs one number, or one for each of 2"),
        (lambda x: mm.nn.Conv2d(8, kernel_size=3), TypeError, r"^Conv2d\(\) got an unexpected .*; write kernel="),
        (lambda x: mm.nn.functional.conv2d(mm.ones((1, 3, 8, 8)), mm.ones((2, 3, 3, 3)), 1), TypeError, "the bias is an array .*given 1; stride and padding are given by name"),
        (lambda x: mm.nn.functional.linear(x, mm.ones((5, 3))), ShapeError, r"linear: needs .*\(2, 3\) and \(5, 3\); give weight\.T"),
        (lambda x: mm.nn.functional.linear(x, mm.ones((4, 5))), ShapeError, r"linear: needs .*; the last extent of x"),
        (lambda x: mm.nn.Dropout("a"), OptionError, "Dropout: rate must be a number from 0 to 1, was given 'a'"),
        (lambda x: mm.nn.GroupNorm(8, 64), OptionError, "GroupNorm: epsilon is a small number .* given 64; the number of channels is"),
        (lambda x: mm.nn.InstanceNorm(64), OptionError, "InstanceNorm: epsilon is .* given 64; the number of channels"),
        (lambda x: mm.nn.LSTM(4)(mm.ones((2, 5, 3)), 0), TypeError, "LSTM: the state is an array or a tuple of arrays, was given 0; pass"),
        (lambda x: mm.nn.GRUCell(4)(x, "h"), TypeError, "GRUCell: the state is an array"),
        (lambda x: mm.nn.MultiheadAttention(8, 2)(mm.ones((2, 5, 8)), mm.ones((3, 5, 8))), ShapeError, r"MultiheadAttention: .*\(2, 5, 8\), \(3, 5, 8\).*; give the same N"),
        (lambda x: mm.nn.MultiheadAttention(8, 2)(mm.ones((2, 5, 8)), mm.ones((2, 5, 8)), mm.ones((2, 4, 8))), ShapeError, "MultiheadAttention: .*a value for each key"),
        (lambda x: mm.optim.Adam(0.1, beta1=2), OptionError, "Adam: beta1 must be a number of at least 0 and less than 1, was given 2"),
        (lambda x: mm.optim.Adam(0.1, (0.9, 0.999)), OptionError, r"Adam: beta1 must be .*\(0\.9, 0\.999\)"),  # type: ignore[arg-type]
        (lambda x: mm.optim.Momentum(0.1, -1), OptionError, "Momentum: momentum must be a number of at least 0, was given -1"),
        (lambda x: mm.optim.Adam().minimize(lambda: x, [mm.variable('v', 1.0)]), TypeError, r"minimize: needs a 0-d array, .*minimize\(f\(\)"),  # type: ignore[arg-type]
        (lambda x: mm.optim.Adam(groups={"*.bias": 0.1}), OptionError, r"groups: the settings of '\*\.bias' are a dictionary, was given 0\.1; write"),  # type: ignore[dict-item]
        (lambda x: mm.optim.schedules.StepLR(0.1), AttributeError, r"'StepLR'; write mm\.optim\.schedules\.Step\("),
        (lambda x: mm.nn.Dense(3, weight_init=mm.ones((2, 3))), TypeError, r"an initializer is .* given Array; .*parameter\.assign\(x\)"),  # type: ignore[arg-type]
        (lambda x: mm.nn.Dense(3, weight_init="xavier_uniform"), OptionError, 'xavier_uniform.*; write "glorot"'),
        (lambda x: _WithForward()(x), NotImplementedError, "_WithForward: a module needs .*; rename its method forward"),
        (lambda x: mm.train.EarlyStopping("val_loss"), OptionError, r"EarlyStopping: patience is .*'val_loss'; write EarlyStopping\(5, monitor="),  # type: ignore[arg-type]
        (lambda x: mm.train.BestWeights(5), OptionError, "BestWeights: monitor is the name .* given 5"),  # type: ignore[arg-type]
        (lambda x: mm.nn.NeuralNetwork([mm.nn.Dense(3)]).compile("adam"), AttributeError, r"'compile'; write mm\.nn\.NeuralNetwork\(layers, loss="),
        (lambda x: mm.nn.NeuralNetwork([mm.nn.Dense(3)]).fit(x, x, callbacks=mm.train.EarlyStopping), OptionError, "fit: a callback is an object such as"),  # type: ignore[arg-type]
        (lambda x: mm.nn.NeuralNetwork([mm.nn.Dense(3)]).fit(x, x, callbacks="early"), OptionError, "fit: a callback is .* was given 'early'"),
        (lambda x: mm.optim.Adam().minimize(x.sum()), TypeError, "^minimize: lacks 'variables'; it takes expression, variables.*; the variables are a list"),  # type: ignore[call-arg]
        (lambda x: mm.optim.Adam().apply_gradients([]), AttributeError, r"write optimizer\.update\(dict\(zip"),
    ],
)  # fmt: skip
def test_mistakes_with_layers_and_optimizers_name_the_remedy(
    call: Callable[[mm.Array], Any], kind: type[Exception], words: str
) -> None:
    with pytest.raises(kind, match=words):
        call(mm.ones((2, 3)))


def test_a_module_is_built_before_a_file_is_loaded(tmp_path: Path) -> None:
    save_file({"weight": np.ones((5, 4), "f4"), "bias": np.ones(4, "f4")}, tmp_path / "a")
    layer = mm.nn.Dense(4)
    message = r"^load: the layer \(Dense\) has no weight yet, .*first call module\.build\(shape\)"
    with pytest.raises(mm.errors.MagmathError, match=message):
        layer.load(tmp_path / "a")
    layer.build((1, 5))
    layer.load(tmp_path / "a")
    assert layer(mm.ones((1, 5))).tolist() == [[6.0] * 4]


def test_a_shared_parameter_that_is_nan_in_a_file(tmp_path: Path) -> None:
    class Tied(mm.nn.Module):
        def __init__(self) -> None:
            self.first = mm.nn.Parameter(mm.ones(2))
            self.second = self.first

        def __call__(self, x: mm.Array) -> mm.Array:
            return x * self.first

    save_file({"second": np.array([np.nan, 1], "f4")}, tmp_path / "a.safetensors")
    with pytest.raises(WeightsError, match="nan"):
        Tied().load(tmp_path / "a.safetensors")


def test_a_shape_alone_is_named_if_the_type_does_not_fit() -> None:
    network = mm.nn.Sequential(mm.nn.Embedding(5, 2), mm.nn.Dense(3))
    for call in (network.build, network.summary):
        with pytest.raises(DTypeError, match="needs integer indices") as failed:
            call((1, 4))
        assert "for integer inputs pass dtype='int64'" in failed.value.__notes__[0]
    assert network.build((1, 4), dtype="int64").is_built


F = mm.nn.functional
ONES = mm.ones
BROADCASTING: dict[str, Callable[[], Any]] = {
    "conv2d: takes a bias": lambda: F.conv2d(ONES((1, 3, 8, 8)), ONES((4, 3, 3, 3)), ONES(1)),
    "conv1d: takes a bias": lambda: F.conv1d(ONES((1, 3, 8)), ONES((1, 3, 3)), ONES(16)),
    "conv_transpose2d: takes a bias": lambda: F.conv_transpose2d(
        ONES((1, 3, 8, 8)), ONES((3, 2, 3, 3)), ONES((2, 1))
    ),
    "linear: takes a bias": lambda: F.linear(ONES((2, 3)), ONES((3, 1)), ONES(16)),
    "linear: takes a bias of shape (4,)": lambda: F.linear(ONES((2, 3)), ONES((3, 4)), ONES(())),
    "bilinear: takes a bias": lambda: F.bilinear(
        ONES((2, 3)), ONES((2, 3)), ONES((4, 3, 3)), ONES(1)
    ),
    "layer_norm: takes a weight": lambda: F.layer_norm(ONES((4, 8)), 8, ONES((4, 8))),
    "layer_norm: takes a bias": lambda: F.layer_norm(ONES((4, 8)), 8, None, ONES(1)),
    "rms_norm: takes a weight": lambda: F.rms_norm(ONES((4, 8)), (4, 8), ONES(8)),
    "batch_norm: takes a bias": lambda: F.batch_norm(ONES((4, 8)), ONES(8), ONES(8), None, ONES(1)),
    "group_norm: takes a weight": lambda: F.group_norm(ONES((4, 8, 2)), 2, ONES(2)),
}


@pytest.mark.parametrize("name", BROADCASTING)
def test_parameters_do_not_broadcast(name: str) -> None:
    with pytest.raises(ShapeError, match=f"^{re.escape(name)}.*; was given"):
        BROADCASTING[name]()


def test_lists_are_parameters() -> None:
    x = mm.asarray([[1.0, 3.0]])
    assert F.linear(x, mm.ones((2, 2)), [1.0, 2.0]).tolist() == [[5.0, 6.0]]
    assert F.layer_norm(x, 2, [1.0, 2.0], [0.0, 1.0], 0.0).tolist() == [[-1.0, 3.0]]


@pytest.mark.parametrize("index", [10, 11, -11])
def test_a_padding_row_is_one_of_the_table(index: int) -> None:
    weight, indices = mm.ones((10, 2)), mm.asarray([0, 1])
    with pytest.raises(OptionError, match="embedding: padding_idx must be"):
        F.embedding(indices, weight, index)
    with pytest.raises(OptionError, match="Embedding: padding_idx must be"):
        mm.nn.Embedding(10, 2, index)
    slope = mm.grad(lambda w: mm.sum(F.embedding(indices, w, index % 10 - 10)))(weight)
    assert float(mm.sum(slope)) == 4.0 - 2.0 * (index % 10 < 2)


def test_same_padding_of_a_transposed_convolution_fixes_the_size() -> None:
    x, w = mm.ones((1, 1, 4, 4)), mm.ones((1, 1, 3, 3))
    for added in (1, (0, 1)):
        with pytest.raises(OptionError, match=r"n · stride elements, was given output_padding"):
            F.conv_transpose2d(x, w, stride=2, padding="same", output_padding=added)
    assert F.conv_transpose2d(x, w, stride=2, padding="same").shape == (1, 1, 8, 8)


IMAGES = np.ones((1, 1, 4, 4), np.float32)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda: mm.nn.InstanceNorm()(mm.ones((2, 3, 1, 1))), ShapeError),
        (lambda: mm.nn.BatchNorm(running_moments=False).eval()(mm.ones((1, 3))), ShapeError),
        (lambda: f.interpolate(IMAGES, (6, 6), align_corners=True), OptionError),
        (lambda: f.interpolate(IMAGES, (6, 6), mode="area", align_corners=True), OptionError),
        (
            lambda: f.interpolate(IMAGES, 6, mode="bilinear", recompute_scale_factor=True),
            OptionError,
        ),
        (lambda: f.pad(IMAGES, (1.9, 1.9)), OptionError),
    ],
)
def test_inputs_and_options_without_meaning_are_refused(
    call: Callable[[], Any], error: type[Exception]
) -> None:
    """PyTorch refuses them too."""
    with pytest.raises(error):
        call()


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_the_state_of_a_recurrent_layer_does_not_change_its_type(dtype: str) -> None:
    x, zero = mm.ones((2, 5, 3), dtype=dtype), np.zeros((1, 2, 4))
    weights = {n: mm.random.normal(shape=(n, 16)).astype(dtype) for n in (3, 4)}
    pair = (weights[3], weights[4])
    hidden, last = f.lstm(x, [pair], (zero, zero))
    cell = f.lstm_cell(x[:, 0], pair, (zero[0], zero[0]))
    assert {y.dtype.name for y in (hidden, *last, *cell)} == {dtype}
    assert mm.nn.GRU(4)(mm.ones((2, 5, 3)), zero)[0].dtype == mm.float32
    assert mm.nn.GRUCell(4)(mm.ones((2, 3)), zero[0]).dtype == mm.float32


@pytest.mark.parametrize("kind", [list, tuple])
@pytest.mark.parametrize("convert", [mm.asarray, np.asarray])
@pytest.mark.parametrize("sizes", [(5, 5), (5, 6)])
def test_several_images_are_no_input_of_a_layer(
    sizes: tuple[int, int], convert: Callable[[Any], Any], kind: type
) -> None:
    """Neither directly nor of the first layer of a sequence; lists of numbers are one array, and a
    function of the user may take a list."""
    images = kind([convert(np.ones((3, n, n), np.float32)) for n in sizes])
    layers = [
        mm.nn.Conv2d(3, 3), mm.nn.MaxPool2d(2), mm.nn.Dense(3), mm.nn.BatchNorm(), mm.nn.ReLU(), mm.nn.Dropout(0.5),
        mm.nn.GRU(3), mm.nn.Embedding(3, 4), mm.nn.LayerNorm(),
    ]  # fmt: skip
    for layer in layers:
        name = type(layer).__name__
        message = rf"{name}: takes one array, was given a {kind.__name__} .*mm\.stack"
        with pytest.raises(TypeError, match=message):
            layer(images)
        with pytest.raises(TypeError, match=message):
            mm.nn.Sequential(layer, mm.nn.ReLU())(images)
    with pytest.raises(TypeError, match="Dense: takes one array, was given a list with nothing"):
        mm.nn.Dense(2)([])
    assert mm.nn.Sequential(mm.nn.Lambda(len))(images) == 2
    assert mm.nn.Dense(2)([[1.0, 2.0], [3.0, 4.0]]).shape == (2, 2)

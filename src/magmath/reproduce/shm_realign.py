"""SHM-Learn-Dist's bias folding: a dense layer and its gradients in the four forms of the planner.

A dense layer y = x·W + b is computed after the layer that produces x. Its bias is added separately,
in the epilogue of the product, or as the first row of the weights, for which the inputs need a
column of ones: inserted by realignment within a buffer, or present because the producer writes into
a wider buffer (`mm.init(fold_bias=...)`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, final

import numpy as np

import magmath as mm
from magmath.reproduce.drawing import new_figure
from magmath.reproduce.experiment import Experiment, Options
from magmath.reproduce.section import Cell, Finding, Plot, Section, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHAPES = ((100, 528, 528), (256, 1024, 1024), (1024, 1024, 1024), (4096, 256, 256), (64, 4096, 512))
QUICK = SHAPES[:3]
ROUNDS, QUICK_ROUNDS = 9, 4
ROUND_SECONDS = 0.1
WARM_UP = 3
FORMS = {
    "separate": "separate bias",
    "epilogue": "fused epilogue",
    "realigned": "realignment",
    "widened": "widened buffer",
}
"""The forms of `mm.init(fold_bias=...)`, and what the report calls them."""
SEPARATE, EPILOGUE, REALIGNED, WIDENED = FORMS
AUTO, ONE = "auto", "one parameter"
"""The planner's choice, and a widened buffer with weights and bias as one parameter."""
GRADIENTS = (EPILOGUE, REALIGNED, WIDENED, AUTO)
FORWARD = (*FORMS, ONE)
Call = Callable[[], tuple[Any, ...]]
LayerShape = tuple[int, int, int]
"""The rows of the inputs, the inputs, and the units of a layer."""


def run(options: Options) -> Section:
    """Measure forward pass and gradients of a layer in every form and for several shapes."""
    shapes = QUICK if options.quick else SHAPES
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    measurements = {}
    for shape in shapes:
        options.console.print(f"  {name_of(shape)}")
        measurements[shape] = measured(shape, rounds)
    forward = {shape: m.forward for shape, m in measurements.items()}
    gradients = {shape: m.gradients for shape, m in measurements.items()}
    memory = {shape: m.memory for shape, m in measurements.items()}
    return Section(
        (
            "The report stores bias and weights as one matrix, so that one product computes both "
            "and one computes both gradients. The inputs then need a column of ones, which it "
            "inserts by moving the matrix within its buffer (ShiftRight); its index arithmetic "
            "has errors, and is derived again here, with a proof, in "
            "kernels/realignment_groups.py. The fused epilogue adds the bias while the product is "
            "stored. In the widened buffer the layer below writes its result next to a column of "
            "ones, and nothing moves. All forms are plans of the same user program, made by the "
            "pass fold_bias.",
            Plot("Time of the layer, relative to the fused epilogue", _figure(shapes, forward)),
            _table("Forward pass: microseconds", forward, FORWARD, 1e6, TIMED, COPIED),
            _table(
                "Gradients of weights and bias: microseconds",
                gradients,
                GRADIENTS,
                1e6,
                TIMED,
                CHOSEN,
            ),
            _table("Temporaries of the forward pass: KiB", memory, FORWARD, 1 / 1024, STORED),
            *_findings(forward, gradients, memory),
        ),
        {name_of(shape): vars(m) for shape, m in measurements.items()},
    )


COPIED = (
    "Weights and bias are two parameters, as those of nn.Dense, so realignment and the widened "
    'buffer copy the weights below the bias first; "one parameter" is the widened buffer without '
    "this copy, as in the report."
)
TIMED = "Processor time of the thread, least of several rounds in turns."
STORED = (
    "Without the parameters and the result: the outputs of the layer below, and with realignment "
    "and the widened buffer, where weights and bias are two parameters, the copy of both."
)
CHOSEN = (
    '"auto" is the form that the planner chooses by measurement: the fused epilogue, with a '
    "product and a sum for the gradients, unless another form is clearly faster."
)


@final
class MeasuredLayer:
    """A layer of `units` on the (rows, inputs) result of another layer, with its data."""

    def __init__(self, shape: LayerShape) -> None:
        self.rows, self.inputs, units = shape
        generator = np.random.default_rng(0)

        def numbers(*extents: int) -> Any:
            return mm.asarray(generator.normal(size=extents).astype(np.float32) / 8)

        self.below, self.first = numbers(self.rows, 64), numbers(64, self.inputs)
        self.weight, self.bias = numbers(self.inputs, units), numbers(units)
        self.both = mm.concat([self.bias[None], self.weight])
        self.slope = numbers(self.rows, units)
        mm.evaluate(self.both)

    def forward(self, below: Any) -> tuple[Any]:
        """Return the outputs of the layer."""
        return (mm.relu(below @ self.first) @ self.weight + self.bias,)

    def forward_of_one(self, below: Any) -> tuple[Any]:
        """Return the outputs, with weights and bias as one parameter."""
        x = mm.relu(below @ self.first)
        return (mm.concat([mm.ones((self.rows, 1), dtype=x.dtype), x], axis=1) @ self.both,)

    def gradients(self, below: Any) -> tuple[Any, Any]:
        """Return the gradients of weights and bias."""
        return mm.relu(below @ self.first).T @ self.slope, mm.sum(self.slope, axis=0)


Numbers = dict[str, float]
"""A number for each form."""


@final
@dataclass(frozen=True)
class LayerMeasurement:
    """The least seconds of the forward pass and of the gradients, and the bytes of temporaries of
    the forward pass, by form."""

    forward: Numbers = field(default_factory=dict)
    gradients: Numbers = field(default_factory=dict)
    memory: Numbers = field(default_factory=dict)


def measured(shape: LayerShape, rounds: int) -> LayerMeasurement:
    """Return the measurement of a layer.

    Each round starts a pool for every form in turn, so that load of the machine slows all of them.
    """
    measurement = LayerMeasurement()
    for _ in range(rounds):
        for form in (*FORMS, AUTO):
            with mm.init(threads=1, fold_bias=form):
                _measure_form(form, MeasuredLayer(shape), measurement)
    return measurement


def _measure_form(form: str, layer: MeasuredLayer, measurement: LayerMeasurement) -> None:
    """Measure a layer in the current pool, whose form of biases this is."""
    forward = {form: layer.forward} if form in FORMS else {}
    if form == WIDENED:
        forward[ONE] = layer.forward_of_one
    for name, function in forward.items():
        compiled: Any = mm.compile(function)
        _keep_least(measurement.forward, name, partial(compiled, layer.below))
        measurement.memory[name] = compiled.explain().temporaries
    if form in GRADIENTS:
        compiled = mm.compile(layer.gradients)
        _keep_least(measurement.gradients, form, partial(compiled, layer.below))


def _keep_least(seconds: Numbers, form: str, call: Call) -> None:
    """Measure a call for some time; keep its least seconds if they are the least so far.

    The only worker is this thread: its processor time does not count other programs.
    """
    for _ in range(WARM_UP):
        mm.evaluate(*call(), wait=True)
    end = time.thread_time() + ROUND_SECONDS
    while (start := time.thread_time()) < end:
        mm.evaluate(*call(), wait=True)
        seconds[form] = min(seconds.get(form, float("inf")), time.thread_time() - start)


def name_of(shape: Sequence[int]) -> str:
    """Return rows×inputs×units."""
    return "×".join(map(str, shape))


def _figure(shapes: Sequence[LayerShape], seconds: Mapping[LayerShape, Numbers]) -> Figure:
    figure = new_figure(1.3 + 0.9 * len(shapes))
    axes = figure.subplots()
    height = 0.8 / len(FORWARD)
    for i, form in enumerate(FORWARD):
        ratios = [seconds[shape][form] / seconds[shape][EPILOGUE] for shape in shapes]
        positions = [position + i * height for position in range(len(shapes))]
        axes.barh(positions, ratios, height, label=FORMS.get(form, form))
    middle = 0.4 - height / 2
    axes.set_yticks([p + middle for p in range(len(shapes))], [name_of(s) for s in shapes])
    axes.invert_yaxis()
    axes.set(xlabel="time ÷ time with the fused epilogue")
    axes.axvline(1.0, color="black", linewidth=0.8)
    figure.legend(loc="outside lower center", ncols=2)
    return figure


def _table(
    title: str,
    values: Mapping[LayerShape, Numbers],
    forms: Iterable[str],
    scale: float,
    *notes: str,
) -> Table:
    forms = tuple(forms)
    rows: list[tuple[Cell, ...]] = [
        (name_of(shape), *[by_form[f] * scale for f in forms]) for shape, by_form in values.items()
    ]
    setting = (
        "Rows×inputs×units, float32, on one thread; the layer below has 64 inputs and is part of "
        "the measurement."
    )
    columns = ("shape", *[FORMS.get(form, form) for form in forms])
    return Table.of(title, columns, rows, " ".join([setting, *notes]))


def _findings(
    forward: Mapping[LayerShape, Numbers],
    gradients: Mapping[LayerShape, Numbers],
    memory: Mapping[LayerShape, Numbers],
) -> list[Finding]:
    realigned = _ratios(forward, REALIGNED, SEPARATE)
    epilogue = _ratios(forward, REALIGNED, EPILOGUE)
    one_parameter = _ratios(forward, ONE, EPILOGUE)
    widened, chosen = (_ratios(gradients, form, EPILOGUE) for form in (WIDENED, AUTO))
    size = _ratios(memory, REALIGNED, WIDENED)
    return [
        Finding.checked(
            "One product for weights and bias, by realignment, is faster than a separate bias",
            "realignment contributes greatly to the speed (no figure)",
            f"realignment takes {_span(realigned)} × the time of a separate bias",
            max(realigned) < 1.0,
            "where it is slower, moving the inputs and joining weights and bias, which are two "
            "parameters here, cost more than adding a row to the result",
        ),
        Finding.checked(
            "Realignment is the best way to fold a bias",
            "not compared with an epilogue",
            f"realignment takes {_span(epilogue)} × the time of the fused epilogue, which is "
            f"magmath's default, and the widened buffer with one parameter "
            f"{_span(one_parameter)} ×; for both gradients the widened buffer takes "
            f"{_span(widened)} × the time of product and sum, and what the planner chooses "
            f"{_span(chosen)} ×",
            max(epilogue) < 1.0,
            "an epilogue needs neither a move nor a wider buffer; with the widened buffer nothing "
            "moves either, but its rows are not aligned",
        ),
        Finding.checked(
            "Realignment needs no second copy of the inputs",
            "in place, with a helper of rows·(rows-1)/2 elements",
            f"temporaries are {_span(size)} × those of the widened buffer, which holds the inputs "
            "once; the helper has at most rows elements for each thread but one, and none on one",
            max(size) < 1.1,
            "the plan stores the inputs twice",
        ),
    ]


def _ratios(values: Mapping[LayerShape, Numbers], form: str, other: str) -> list[float]:
    """Return the number of one form relative to that of another one, for each shape."""
    return [by_form[form] / by_form[other] for by_form in values.values()]


def _span(ratios: list[float]) -> str:
    """Return the least and the largest ratio in words."""
    least, most = f"{min(ratios):.2f}", f"{max(ratios):.2f}"
    return least if least == most else f"{least} to {most}"


EXPERIMENT = Experiment(
    "shm-realign",
    "SHM-Learn-Dist: bias folding by memory realignment",
    "SHM-Learn-Dist report, §4",
    run,
)

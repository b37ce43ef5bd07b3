"""SHM-Learn-Dist's bias folding: a dense layer and its gradients in the four forms of the planner.

A dense layer y = x·W + b is computed after the layer that produces x. Its bias is added separately,
in the epilogue of the product, or as the first row of the weights, for which the inputs need a
column of ones: inserted by realignment within a buffer, or present because the producer writes into
a wider buffer (`mm.init(fold_bias=...)`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, final

import numpy as np

import magmath as mm
from magmath.reproduce.drawing import new_figure
from magmath.reproduce.experiment import Experiment, Options
from magmath.reproduce.section import Finding, Plot, Section, Table

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


def run(options: Options) -> Section:
    """Measure forward pass and gradients of a layer in every form and for several shapes."""
    shapes = QUICK if options.quick else SHAPES
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    found = {}
    for shape in shapes:
        options.console.print(f"  {name_of(shape)}")
        found[shape] = measured(shape, rounds)
    forward, backward, memory = (
        {shape: values[i] for shape, values in found.items()} for i in range(3)
    )
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
                backward,
                GRADIENTS,
                1e6,
                TIMED,
                CHOSEN,
            ),
            _table("Temporaries of the forward pass: KiB", memory, FORWARD, 1 / 1024, STORED),
            *_findings(forward, backward, memory),
        ),
        {
            name_of(s): {"forward": forward[s], "gradients": backward[s], "memory": memory[s]}
            for s in shapes
        },
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

    def __init__(self, shape: tuple[int, int, int]) -> None:
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


def measured(shape: tuple[int, int, int], rounds: int) -> tuple[Numbers, Numbers, Numbers]:
    """Return by form the least seconds of the forward pass and of the gradients, and the bytes of
    temporaries of the forward pass.

    Each round starts a pool for every form in turn, so that load of the machine slows all of them.
    """
    forward, backward, memory = (dict[str, float]() for _ in range(3))
    for _ in range(rounds):
        for form in (*FORMS, AUTO):
            with mm.init(threads=1, fold_bias=form):
                layer = MeasuredLayer(shape)
                if form in FORMS:
                    compiled: Any = mm.compile(layer.forward)
                    _keep_least(forward, form, partial(compiled, layer.below))
                    memory[form] = compiled.explain().temporaries
                if form == WIDENED:
                    compiled = mm.compile(layer.forward_of_one)
                    _keep_least(forward, ONE, partial(compiled, layer.below))
                    memory[ONE] = compiled.explain().temporaries
                if form in GRADIENTS:
                    compiled = mm.compile(layer.gradients)
                    _keep_least(backward, form, partial(compiled, layer.below))
    return forward, backward, memory


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


def _figure(shapes: Sequence[tuple[int, int, int]], seconds: dict[Any, Any]) -> Figure:
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
    title: str, values: dict[Any, Any], forms: Iterable[str], scale: float, *notes: str
) -> Table:
    forms = tuple(forms)
    rows = [[name_of(shape), *[found[f] * scale for f in forms]] for shape, found in values.items()]
    setting = (
        "Rows×inputs×units, float32, on one thread; the layer below has 64 inputs and is part of "
        "the measurement."
    )
    columns = ("shape", *[FORMS.get(form, form) for form in forms])
    return Table.of(title, columns, rows, " ".join([setting, *notes]))


def _findings(
    forward: dict[Any, Any], backward: dict[Any, Any], memory: dict[Any, Any]
) -> list[Finding]:
    def ratios(values: dict[Any, Any], form: str, other: str) -> list[float]:
        return [found[form] / found[other] for found in values.values()]

    def span(found: list[float]) -> str:
        least, most = f"{min(found):.2f}", f"{max(found):.2f}"
        return least if least == most else f"{least} to {most}"

    realigned = ratios(forward, REALIGNED, SEPARATE)
    epilogue = ratios(forward, REALIGNED, EPILOGUE)
    wide, slopes = ratios(forward, ONE, EPILOGUE), ratios(backward, WIDENED, EPILOGUE)
    chosen = ratios(backward, AUTO, EPILOGUE)
    size = ratios(memory, REALIGNED, WIDENED)
    return [
        Finding(
            "One product for weights and bias, by realignment, is faster than a separate bias",
            "realignment contributes greatly to the speed (no figure)",
            f"realignment takes {span(realigned)} × the time of a separate bias",
            agrees=max(realigned) < 1.0,
            reason=""
            if max(realigned) < 1.0
            else "where it is slower, moving the inputs and joining weights and bias, which are "
            "two parameters here, cost more than adding a row to the result",
        ),
        Finding(
            "Realignment is the best way to fold a bias",
            "not compared with an epilogue",
            f"realignment takes {span(epilogue)} × the time of the fused epilogue, which is "
            f"magmath's default, and the widened buffer with one parameter {span(wide)} ×; for "
            f"both gradients the widened buffer takes {span(slopes)} × the time of product and "
            f"sum, and what the planner chooses {span(chosen)} ×",
            agrees=max(epilogue) < 1.0,
            reason=""
            if max(epilogue) < 1.0
            else "an epilogue needs neither a move nor a wider buffer; with the widened buffer "
            "nothing moves either, but its rows are not aligned",
        ),
        Finding(
            "Realignment needs no second copy of the inputs",
            "in place, with a helper of rows·(rows-1)/2 elements",
            f"temporaries are {span(size)} × those of the widened buffer, which holds the inputs "
            "once; the helper has at most rows elements for each thread but one, and none on one",
            agrees=max(size) < 1.1,
            reason="" if max(size) < 1.1 else "the plan stores the inputs twice",
        ),
    ]


EXPERIMENT = Experiment(
    "shm-realign",
    "SHM-Learn-Dist: bias folding by memory realignment",
    "SHM-Learn-Dist report, §4",
    run,
)

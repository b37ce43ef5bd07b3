"""SHM-Learn-Dist's bias folding: a column of ones in front of the inputs, made in four ways.

A dense layer y = x·W + b is computed after the layer that produces x. Its bias is added separately,
in the epilogue of the product, or as the first row of the weights, for which the inputs need a
column of ones: inserted by realignment within a buffer, or present because the producer writes into
a wider buffer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import magmath as mm
from magmath.reproduce.drawing import new_figure
from magmath.reproduce.experiment import Experiment, Options
from magmath.reproduce.section import Finding, Plot, Section, Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHAPES = ((100, 528, 528), (256, 1024, 1024), (1024, 1024, 1024), (4096, 256, 256), (64, 4096, 512))
QUICK = SHAPES[:3]
ROUNDS, QUICK_ROUNDS = 15, 7
ROUND_SECONDS = 0.02
FORMS = ("separate bias", "fused epilogue", "realignment", "widened buffer")
SEPARATE, EPILOGUE, REALIGNED, WIDENED = FORMS
Call = Callable[[], object]


def run(options: Options) -> Section:
    """Measure forward pass and gradients of a layer in every form and for several shapes."""
    shapes = QUICK if options.quick else SHAPES
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    forward, memory, backward = {}, {}, {}
    with mm.init(threads=1):
        for shape in shapes:
            options.console.print(f"  {name_of(shape)}")
            problem = Layer(shape)
            forward[shape] = measured({f: problem.forward(f) for f in FORMS}, rounds)
            backward[shape] = measured({f: problem.gradients(f) for f in FORMS[1:]}, rounds)
            memory[shape] = problem.temporaries
    return Section(
        (
            "The report stores bias and weights as one matrix, so that one product computes both "
            "and one computes both gradients. The inputs then need a column of ones, which it "
            "inserts by moving the matrix within its buffer (ShiftRight); its index arithmetic "
            "has errors, and is derived again here, with a proof, in "
            "kernels/realignment_groups.py. The fused epilogue adds the bias while the product is "
            "stored. In the widened buffer "
            "the layer below writes its result next to a column of ones, and nothing moves.",
            Plot("Time of the layer, relative to the fused epilogue", _figure(shapes, forward)),
            _table("Forward pass: microseconds", forward, FORMS, 1e6),
            _table("Gradients of weights and bias: microseconds", backward, FORMS[1:], 1e6),
            _table("Temporaries of the forward pass: KiB", memory, FORMS[1:], 1 / 1024),
            *_findings(forward, backward, memory),
        ),
        {
            name_of(s): {"forward": forward[s], "gradients": backward[s], "memory": memory[s]}
            for s in shapes
        },
    )


class Layer:
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
        self.temporaries: dict[str, int] = {}

    def input(self, below: Any) -> Any:
        """Return the result of the layer below."""
        return mm.relu(below @ self.first)

    def wide_input(self, form: str, below: Any) -> Any:
        """Return the result of the layer below with a column of ones in front."""
        x = self.input(below)
        if form == WIDENED:
            return mm.concat([mm.ones((self.rows, 1), dtype=x.dtype), x], axis=1)
        room = mm.zeros(self.rows, dtype=x.dtype)
        buffer = mm.concat([mm.reshape(x, (-1,)), room])
        return mm.nn.functional.shift_right(mm.reshape(buffer, (self.rows, self.inputs + 1)))

    def forward(self, form: str) -> Call:
        """Return a call that computes the layer."""
        if form == SEPARATE:
            product = mm.compile(lambda below: self.input(below) @ self.weight)
            add = mm.compile(lambda y: y + self.bias)
            return lambda: mm.evaluate(add(product(self.below)))

        def layer(below: Any) -> Any:
            if form == EPILOGUE:
                return self.input(below) @ self.weight + self.bias
            return self.wide_input(form, below) @ self.both

        compiled: Any = mm.compile(layer)
        mm.evaluate(compiled(self.below))
        self.temporaries[form] = compiled.explain().temporaries
        return lambda: mm.evaluate(compiled(self.below))

    def gradients(self, form: str) -> Call:
        """Return a call that computes the inputs again and the gradients of weights and bias."""

        def slopes(below: Any) -> Any:
            if form == EPILOGUE:
                return self.input(below).T @ self.slope, mm.sum(self.slope, axis=0)
            return (self.wide_input(form, below).T @ self.slope,)

        compiled = mm.compile(slopes)
        return lambda: mm.evaluate(*compiled(self.below))


def measured(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    """Return the least seconds of each call, measured in turns."""
    repeats = {}
    for name, call in calls.items():
        for _ in range(5):
            call()
        start = time.perf_counter()
        call()
        repeats[name] = max(1, int(ROUND_SECONDS / max(time.perf_counter() - start, 1e-6)))
    found = dict.fromkeys(calls, float("inf"))
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            seconds = (time.perf_counter() - start) / repeats[name]
            found[name] = min(found[name], seconds)
    return found


def name_of(shape: Sequence[int]) -> str:
    """Return rows×inputs×units."""
    return "×".join(map(str, shape))


def _figure(shapes: Sequence[tuple[int, int, int]], seconds: dict[Any, Any]) -> Figure:
    figure = new_figure(0.5 + 0.9 * len(shapes))
    axes = figure.subplots()
    height = 0.8 / len(FORMS)
    for i, form in enumerate(FORMS):
        ratios = [seconds[shape][form] / seconds[shape][EPILOGUE] for shape in shapes]
        places = [place + i * height for place in range(len(shapes))]
        axes.barh(places, ratios, height, label=form)
    middle = 0.4 - height / 2
    axes.set_yticks([p + middle for p in range(len(shapes))], [name_of(s) for s in shapes])
    axes.invert_yaxis()
    axes.set(xlabel="time of the forward pass / time with the fused epilogue")
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.legend(loc="lower right")
    return figure


def _table(title: str, values: dict[Any, Any], forms: Sequence[str], scale: float) -> Table:
    rows = [[name_of(shape), *[found[f] * scale for f in forms]] for shape, found in values.items()]
    note = (
        "Rows×inputs×units, float32, on one thread; the layer below has 64 inputs and is part of "
        "the time. Least of several rounds in turns."
    )
    return Table.of(title, ("shape", *forms), rows, note)


def _findings(
    forward: dict[Any, Any], backward: dict[Any, Any], memory: dict[Any, Any]
) -> list[Finding]:
    def ratios(values: dict[Any, Any], form: str, other: str) -> list[float]:
        return [found[form] / found[other] for found in values.values()]

    def span(found: list[float]) -> str:
        return f"{min(found):.2f} to {max(found):.2f}"

    realigned = ratios(forward, REALIGNED, SEPARATE)
    epilogue = ratios(forward, REALIGNED, EPILOGUE)
    wide, slopes = ratios(forward, WIDENED, EPILOGUE), ratios(backward, WIDENED, EPILOGUE)
    return [
        Finding(
            "One product for weights and bias, by realignment, is faster than a separate bias",
            "realignment contributes greatly to the speed (no figure)",
            f"realignment takes {span(realigned)} × the time of a separate bias",
            agrees=max(realigned) < 1.0,
            reason=""
            if max(realigned) < 1.0
            else "where it is slower, moving the inputs costs more than adding a row to the result",
        ),
        Finding(
            "Realignment is the best way to fold a bias",
            "not compared with an epilogue",
            f"realignment takes {span(epilogue)} × the time of the fused epilogue, which is "
            f"magmath's default, and the widened buffer {span(wide)} ×; for both gradients the "
            f"widened buffer takes {span(slopes)} × the time of product and sum",
            agrees=max(epilogue) < 1.0,
            reason=""
            if max(epilogue) < 1.0
            else "an epilogue needs neither a move nor a wider buffer; with the widened buffer "
            "nothing moves either, but its rows are not aligned",
        ),
        Finding(
            "Realignment needs no second copy of the inputs",
            "in place, with a helper of rows·(rows-1)/2 elements",
            f"temporaries are {span(ratios(memory, REALIGNED, EPILOGUE))} × those of the epilogue; "
            "the helper has at most rows elements for each thread but one",
            agrees=max(ratios(memory, REALIGNED, EPILOGUE)) < 1.5,
            reason=""
            if max(ratios(memory, REALIGNED, EPILOGUE)) < 1.5
            else "the move is in place, but the compiled program copies the inputs into the "
            "buffer, which it sees in another shape",
        ),
    ]


EXPERIMENT = Experiment(
    "shm-realign",
    "SHM-Learn-Dist: bias folding by memory realignment",
    "SHM-Learn-Dist report, §4",
    run,
)

"""PyTorch's operators of recurrent networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import magmath as mm
from magmath.errors import UnsupportedError
from magmath.interop.reading_torch.aten_dropout import dropout
from magmath.nn.recurrence import STEPS, RecurrentState

Weights = Sequence[mm.Array]


def recurrent(cell: str) -> Callable[..., Any]:
    """Return the operator of a cell: outputs, and the last states of all layers and directions."""

    def operator(
        x: mm.Array,
        states: Any,
        weights: Weights,
        has_biases: bool,
        layers: int,
        rate: float,
        training: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> tuple[mm.Array, ...]:
        firsts = list(states) if cell == "lstm" else [states]
        is_single = x.ndim == 2  # a sequence without a batch
        if is_single:
            x, firsts = x[:, None], [first[:, None] for first in firsts]
        elif batch_first:
            x = mm.swapaxes(x, 0, 1)
        directions, weight_count = 1 + bidirectional, 4 if has_biases else 2
        if len(weights) != layers * directions * weight_count:
            raise UnsupportedError(
                "from_torch: LSTM(proj_size=…) is not available; apply a Linear layer to the "
                "outputs instead"
            )
        ends: list[RecurrentState] = []
        for layer in range(layers):
            numbers = range(layer * directions, (layer + 1) * directions)
            layer_weights = [weights[i * weight_count : (i + 1) * weight_count] for i in numbers]
            first = [tuple([state[i] for state in firsts]) for i in numbers]
            layer_ends, x = _layer(cell, x, first, layer_weights)
            ends += layer_ends
            if rate and training and layer < layers - 1:
                x = dropout(x, rate)
        last = [mm.stack(list(parts)) for parts in zip(*ends, strict=True)]
        if is_single:
            return x[:, 0], *[state[:, 0] for state in last]
        return mm.swapaxes(x, 0, 1) if batch_first else x, *last

    return operator


def _layer(
    cell: str, x: mm.Array, firsts: Sequence[RecurrentState], weights: Sequence[Weights]
) -> tuple[list[RecurrentState], mm.Array]:
    """Return the last states of one layer in each of its directions, and its outputs."""
    ends, outputs = [], []
    for direction, (first, direction_weights) in enumerate(zip(firsts, weights, strict=True)):
        end, output = _run(cell, x, first, direction_weights, reverse=direction == 1)
        ends.append(end)
        outputs.append(output)
    return ends, outputs[0] if len(outputs) == 1 else mm.concat(outputs, axis=-1)


def _run(
    cell: str, x: mm.Array, first: RecurrentState, weights: Weights, *, reverse: bool
) -> tuple[RecurrentState, mm.Array]:
    """Return the last states of one layer in one direction, and its outputs for all times."""
    from_input, from_hidden = (mm.matrix_transpose(w) for w in weights[:2])
    added = x @ from_input
    bias = None
    if len(weights) > 2:
        added, bias = added + weights[2], weights[3]

    def step(states: RecurrentState, row: mm.Array) -> tuple[RecurrentState, mm.Array]:
        of_hidden = states[0] @ from_hidden
        recurrent = of_hidden if bias is None else of_hidden + bias
        following = STEPS[cell](row, recurrent, states)
        return following, following[0]

    end, outputs = mm.scan(step, first, added, reverse=reverse)
    return end, outputs

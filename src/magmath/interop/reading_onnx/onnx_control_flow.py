"""ONNX's conditions and loops, whose conditions and numbers of steps are known when they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import magmath as mm
from magmath.engine.traces import tracing
from magmath.errors import TracingError
from magmath.interop.reading_onnx.onnx_call import OnnxCall, OnnxValue, Operator


def _if(call: OnnxCall, condition: OnnxValue) -> tuple[OnnxValue, ...]:
    if isinstance(condition, mm.Array) and tracing.current() is not None:
        branches = [_branch(call, name) for name in ("then_branch", "else_branch")]
        return mm.cond(mm.reshape(condition, ()), *branches)  # type: ignore[no-any-return]
    branch = "then_branch" if bool(np.asarray(condition)) else "else_branch"
    return tuple(_run(call, call.get(branch)))


def _branch(call: OnnxCall, name: str) -> Callable[[], tuple[mm.Array, ...]]:
    return lambda: tuple([mm.asarray(x) for x in _run(call, call.get(name))])


def _loop_number(call: OnnxCall, value: OnnxValue) -> Any:
    """Return a number that decides how often a loop runs. Raises UnsupportedError if a function is
    traced and the inputs determine the number."""
    try:
        return np.asarray(value).item()
    except TracingError:
        raise call.unsupported(
            "whose number of steps depends on the inputs is not available in compiled functions; "
            "call the module without compile"
        ) from None


def _loop(
    call: OnnxCall, count: OnnxValue, condition: OnnxValue, *carried: OnnxValue
) -> tuple[OnnxValue, ...]:
    limit = None if count is None else int(_loop_number(call, count))
    should_continue = True if condition is None else bool(_loop_number(call, condition))
    states, rows, step = list(carried), [], 0
    while should_continue and (limit is None or step < limit):
        numbers = [np.asarray(step, np.int64), np.asarray(should_continue)]
        should_continue, *results = _run(call, call.get("body"), *numbers, *states)
        should_continue = bool(_loop_number(call, should_continue))
        states, row = results[: len(states)], results[len(states) :]
        rows.append(row)
        step += 1
    if any(call.outputs[len(states) :]) and not rows:
        raise call.unsupported("that collects the results of no step is not available")
    return (*states, *[mm.stack(list(column)) for column in zip(*rows, strict=True)])


def _scan(call: OnnxCall, *operands: OnnxValue) -> tuple[OnnxValue, ...]:
    if call.opset < 9:
        raise call.unsupported("of versions before 9 is not available; convert the model")
    count = call.get("num_scan_inputs")
    states, sequences = list(operands[:-count]), operands[-count:]
    axes = call.get("scan_input_axes") or [0] * count
    reversed_inputs = call.get("scan_input_directions") or [0] * count
    rows: list[list[OnnxValue]] = []
    for step in range(sequences[0].shape[axes[0]]):
        parts = [
            mm.take(x, x.shape[axis] - 1 - step if is_reversed else step, axis=axis)
            for x, axis, is_reversed in zip(sequences, axes, reversed_inputs, strict=True)
        ]
        results = _run(call, call.get("body"), *states, *parts)
        states, row = results[: len(states)], results[len(states) :]
        rows.append(row)
    if not rows:
        raise call.unsupported("of no step is not available")
    columns = list(zip(*rows, strict=True))
    axes = call.get("scan_output_axes") or [0] * len(columns)
    reversed_outputs = call.get("scan_output_directions") or [0] * len(columns)
    stacked = [
        mm.stack(list(column[::-1] if is_reversed else column), axis=axis)
        for column, axis, is_reversed in zip(columns, axes, reversed_outputs, strict=True)
    ]
    return (*states, *stacked)


def _run(call: OnnxCall, graph: Any, *inputs: OnnxValue) -> list[OnnxValue]:
    assert call.run_graph is not None, "calls of a module have it"
    return call.run_graph(graph, *inputs)


CONTROL_FLOW: dict[str, Operator] = {"If": _if, "Loop": _loop, "Scan": _scan}

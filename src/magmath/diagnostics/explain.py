"""`explain` and `profile`: the computation, communication and memory of programs, as predicted and
as measured."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from magmath.cost import redistribution_seconds, redistribution_traffic
from magmath.cost.operation_rate import rate_name
from magmath.diagnostics.candidate_tables import describe_candidates
from magmath.diagnostics.explanation import ExplainedInstruction, Explanation, Profile
from magmath.engine import session
from magmath.engine.remote_array import remote_array_of
from magmath.errors import OptionError
from magmath.graph import Graph, Node, make_node, provenance_of
from magmath.layout import plan_redistribution
from magmath.ops import OPERATIONS
from magmath.ops.leaves import input_leaf
from magmath.passes.environment import Environment
from magmath.passes.node_cost import node_seconds, node_traffic, node_work
from magmath.program.arena import arrange
from magmath.program.instructions import Barrier, Call, Emit, Instruction, Program, Redistribute

if TYPE_CHECKING:
    from magmath.runtime.run_handle import RunHandle


def explain(x: Any) -> Explanation:
    """Return the explanation of an array, a compiled function or a network's training step.

    For a compiled function it is that of the last call. Equal to `x.explain()`.
    """
    if not callable(getattr(x, "explain", None)):
        raise OptionError(
            f"explain: needs an array, a compiled function or a network, was given "
            f"{type(x).__name__}"
            "; for an expression on arrays pass its result"
        )
    explanation: Explanation = x.explain()
    return explanation


def explain_node(node: Node) -> Explanation:
    """Explain the program that computes a node.

    For an evaluated node that is the program that computed it, with measurements if it was
    profiled.
    """
    engine = session.engine()
    node = node.inputs[0] if node.operation.is_version else node
    if node.is_leaf:
        heading = (
            f"{node.name} of shape {node.shape}, {node.dtype}, layout {node.layout}: "
            f"nothing to compute"
        )
        run = None if node.name == "scalar" else remote_array_of(node).origin
        if run is None:
            return _explain_eager(node, heading)
        event = "is copied concurrently with other work," if run.concurrent else "was computed"
        return explain_run(run, f"{heading}; it {event} by")
    graph = engine.redistributed_copies.substituted_in(
        engine.pending_graph(Graph((node,))), make=False
    )
    candidates = describe_candidates(graph, engine.environment)
    return explain_program(engine.compile(graph).program, engine.environment, candidates=candidates)


def _explain_eager(leaf: Node, heading: str) -> Explanation:
    """Explain the program that would compute an array if it was not small."""
    provenance = provenance_of(leaf)
    if provenance is None:
        return Explanation(heading=heading)
    line = provenance.line
    where = f" at {line[0]}:{line[1]}" if line else ""
    heading = f"{heading}; it is small and was computed{where}"
    node = provenance.expression(leaf, lambda operand: operand.find())
    if node is None or node.is_leaf:
        return Explanation(heading=heading)
    pending = node.without_value()
    explanation = explain_node(pending)
    return replace(explanation, heading=f"{heading}; of larger arrays, it would be computed by")


def explain_program(
    program: Program,
    environment: Environment,
    *,
    heading: str = "",
    candidates: str = "",
    run: RunHandle | None = None,
    layers: Sequence[str] | None = None,
) -> Explanation:
    """Return the costs of a program, with the measurements of a profiled run if one is given.

    `layers`: the layer of each instruction of a training step.
    """
    texts = str(program).splitlines()
    by_worker, memory = _measurements(run, len(texts))
    rows = zip(program.instructions, texts, layers or [""] * len(texts), by_worker, strict=True)
    steps = [
        replace(
            _explained(program, instruction, environment, text, max(seconds, default=None)),
            layer=layer,
            phase=_phase(instruction),
            is_even=_is_even(program, instruction),
            by_worker=seconds,
        )
        for instruction, text, layer, seconds in rows
    ]
    temporaries = arrange(program).nbytes
    arrays = {*program.inputs, *program.new_outputs}
    stored = sum([program.slots[i].local_bytes for i in arrays])
    return Explanation(
        tuple(steps),
        heading,
        candidates,
        temporaries,
        stored + temporaries,
        memory,
        environment.machine.source,
    )


def _measurements(run: RunHandle | None, length: int) -> tuple[list[tuple[float, ...]], int | None]:
    """Return the seconds of each of the `length` instructions on each worker, and the peak of the
    memory of a worker in bytes; () and None if the run was not profiled."""
    if run is None or not run.timings:
        return [()] * length, None
    workers = [seconds for _, (seconds, _) in sorted(run.timings.items())]
    by_worker = [tuple([t / run.steps for t in times]) for times in zip(*workers, strict=True)]
    return by_worker, max(nbytes for _, nbytes in run.timings.values())


def explain_run(run: RunHandle, heading: str = "") -> Explanation:
    """Return the costs of a run: predicted, and measured if it was profiled."""
    assert run.program is not None, "what computes an array is a program"
    return explain_program(run.program, session.engine().environment, heading=heading, run=run)


@contextmanager
def profile() -> Iterator[Profile]:
    """Measure the runs in a `with` block: each worker times each instruction.

        with mm.profile() as profile:
            y = f(x)
        print(profile)                # predicted against measured, by operation and by line

    Each run is replayed one instruction after the other, and the next one waits for it, so programs
    that would otherwise run as native code are slower. `explain()` shows the measurements of arrays
    that were computed in the block.
    """
    measured = Profile()
    with session.profiling(lambda run: measured.runs.append(explain_run(run))):
        yield measured


def _explained(
    program: Program,
    instruction: Instruction,
    environment: Environment,
    text: str,
    measured: float | None,
) -> ExplainedInstruction:
    match instruction:
        case Call():
            return _explained_call(program, instruction, environment, text, measured)
        case Redistribute():
            return _explained_move(program, instruction, environment, text, measured)
        case Barrier():
            return ExplainedInstruction(
                text, "barrier", None, environment.link.barrier, 0, 0, 0, measured
            )
        case Emit():
            return ExplainedInstruction(text, "emit", None, 0.0, 0, 0, 0, measured)


def _explained_call(
    program: Program, call: Call, environment: Environment, text: str, measured: float | None
) -> ExplainedInstruction:
    node = _node(program, call)
    moved, messages = node_traffic(node)
    flops, touched = node_work(node)
    return ExplainedInstruction(
        text,
        call.operation,
        call.line,
        node_seconds(node, environment),
        moved,
        messages,
        _result_bytes(program, call.out),
        measured,
        program.slots[call.out].layout.mesh.size,
        flops=flops,
        touched=touched,
        rate=rate_name(node),
        is_recomputation=call.is_recomputation,
    )


def _explained_move(
    program: Program,
    move: Redistribute,
    environment: Environment,
    text: str,
    measured: float | None,
) -> ExplainedInstruction:
    have, want = program.slots[move.source], program.slots[move.target]
    change, itemsize = plan_redistribution(have.layout, want.layout), have.dtype.itemsize
    link = environment.link
    if link.shared_memory:  # its barriers are instructions of their own
        link = replace(link, barrier=0.0)
    seconds = environment.machine.call_seconds
    seconds += redistribution_seconds(change, itemsize, link)
    if want.layout.shared and not have.layout.shared:  # each worker copies its part
        seconds += have.local_bytes / environment.bandwidth
    moved, messages = redistribution_traffic(change, itemsize, link)
    memory = _result_bytes(program, move.target)
    return ExplainedInstruction(
        text, change.kind, move.line, seconds, moved, messages, memory, measured
    )


def _phase(instruction: Instruction) -> str:
    if isinstance(instruction, Barrier):
        return "wait"
    return "exchange" if isinstance(instruction, Redistribute) else "compute"


def _is_even(program: Program, instruction: Instruction) -> bool:
    """True if all workers compute shares of equal size, up to a tenth, without waiting."""
    if not isinstance(instruction, Call) or instruction.workspace is not None:
        return False
    layout = program.slots[instruction.out].layout
    sizes = [layout.local_size(rank) for rank in range(program.workers)]
    return min(sizes) > 0.9 * max(sizes)


def _result_bytes(program: Program, index: int) -> int:
    slot = program.slots[index]
    return 0 if slot.alias is not None else slot.local_bytes


def _node(program: Program, call: Call) -> Node:
    """Return a node with the properties of a call that determine its costs."""
    slots = [program.slots[i] for i in call.inputs]
    inputs = tuple([input_leaf(s.shape, s.dtype, s.layout, None) for s in slots])
    out = program.slots[call.out]
    attributes = MappingProxyType({**call.attributes})
    operation = OPERATIONS[call.operation]
    return make_node(operation, inputs, attributes, out.shape, out.dtype, layout=out.layout)

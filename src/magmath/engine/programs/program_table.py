"""The programs that the workers of a pool have, by the key of their graphs.

The least recently used program is forgotten when the table is full, here and on the workers.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import TYPE_CHECKING, final
from weakref import ref

import msgspec

from magmath.core.bounded_memo import RecentlyUsed
from magmath.core.paused_gc import paused_gc
from magmath.core.scoped_value import ScopedValue
from magmath.core.stage_times import count, stage
from magmath.engine.drawn_indices import DrawnIndices
from magmath.engine.fallible_operations import unchecked_operands
from magmath.engine.lifetimes.redistribution_cache import RedistributionCache
from magmath.engine.number_checks import NumberChecks
from magmath.engine.programs.asynchronous_build import build_asynchronous
from magmath.engine.programs.memory_check import check_memory, total_bytes
from magmath.engine.programs.program_build import CompiledProgram, build_program, plan_and_lower
from magmath.engine.programs.program_modes import DEFAULT_MODES, ProgramModes
from magmath.engine.programs.step_split import AsynchronousDivision
from magmath.engine.remote_array import RemoteArray, lost_array_error
from magmath.graph import Graph, Node
from magmath.graph.placed_nodes import local_bytes
from magmath.passes.environment import Environment
from magmath.passes.expand import expand

if TYPE_CHECKING:
    from magmath.runtime.pool import Pool

MAX_PROGRAMS = 512


@final
class ProgramTable:
    """Builds the programs of one pool and keeps the `MAX_PROGRAMS` most recently used."""

    def __init__(
        self, pool: Pool, environment: Environment, redistribution_cache: RedistributionCache
    ) -> None:
        self._pool = pool
        self.environment = environment
        self._redistribution_cache = redistribution_cache
        self._programs: RecentlyUsed[Hashable, CompiledProgram] = RecentlyUsed()
        self._spared: set[int] = set()
        self.built = 0
        """The number of programs that were built, the forgotten ones included."""
        self._modes = ScopedValue(DEFAULT_MODES)

    def __iter__(self) -> Iterator[CompiledProgram]:
        """Iterate over the programs, the least recently used one first."""
        return iter(self._programs.values())

    def program_of(
        self,
        graph: Graph,
        *,
        modes: ProgramModes | None = None,
        division: AsynchronousDivision | None = None,
        in_range: Collection[Node] = (),
        later: Collection[Node] = (),
    ) -> CompiledProgram:
        """Return the program of a graph whose leaves all have layouts; build it on a miss.

        The options are those of `Engine.compile`.
        """
        modes = modes or self.modes
        key = (graph.key, modes, None if division is None else division.key(graph))
        compiled = self._programs.find(key)
        if compiled is not None:
            return compiled
        compiled = self._build(graph, modes, division, in_range, set(later))
        self._programs.store(key, compiled)
        if len(self._programs) > MAX_PROGRAMS:
            self._forget_oldest()
        return compiled

    @property
    def modes(self) -> ProgramModes:
        """The modes of the programs that this thread builds now."""
        return self._modes.value

    def in_modes(self, modes: ProgramModes) -> AbstractContextManager[object]:
        """Build programs with these modes within this block of this thread."""
        return self._modes.replaced(modes)

    def mark_used(self, compiled: CompiledProgram) -> None:
        """Record a use of a program that did not pass through this table: it is spared once when it
        would be forgotten."""
        self._spared.add(compiled.program_id)

    def clear(self) -> None:
        """Forget all programs, here and on the workers."""
        for compiled in self._programs.values():
            self._pool.forget(compiled.program_id)
        self._programs.clear()
        self._spared.clear()

    def _forget_oldest(self) -> None:
        """Forget the least recently used program that has no other reference.

        Compiled functions and optimizers reference their programs and run them without a lookup.
        """
        for _ in range(2 * len(self._programs)):
            key, oldest = self._programs.popitem(last=False)
            program_id, reference = oldest.program_id, ref(oldest)
            if program_id in self._spared:
                self._spared.remove(program_id)
                self._programs[key] = oldest
                continue
            del oldest
            program = reference()
            if program is None:
                self._pool.forget(program_id)
                return
            self._programs[key] = program
            del program

    def _build(
        self,
        graph: Graph,
        modes: ProgramModes,
        division: AsynchronousDivision | None,
        in_range: Collection[Node],
        later: Collection[Node],
    ) -> CompiledProgram:
        pool = self._pool
        for leaf in graph.leaves:  # whose bytes would count as those of this pool
            if type(leaf.value) is RemoteArray and leaf.value.pool is not pool:
                raise lost_array_error(leaf.value)
        self.built += 1
        count("programs")
        count("nodes", len(graph.nodes))
        with paused_gc():
            environment = self.environment
            compiled = (
                build_program(
                    graph, environment, pool.topology.device, self._room_for(graph, later)
                )
                if division is None
                else build_asynchronous(graph, division, environment)
            )
            program = msgspec.structs.replace(
                compiled.program,
                flushes_denormals=modes.flushes_denormals,
                reports_late=modes.reports_late,
            )
            if pool.memory_limit is not None:
                self._redistribution_cache.make_room(pool.array_bytes, compiled.new_bytes)
            leaves = [graph.leaves[position] for position in compiled.inputs]
            stored = [x for x, y in zip(program.inputs, leaves, strict=True) if y not in later]
            check_memory(
                program,
                pool.memory_bound,
                pool.array_bytes - total_bytes(program, stored),
                lambda: plan_and_lower(graph, environment).program,
            )
            with stage("send"):
                program_id = pool.define(program)
        expanded = expand(graph)
        numbers = [graph.leaves[i] for i in compiled.scalars]
        checks: NumberChecks | None = None
        if any(graph.targets) or not pool.is_inline:  # otherwise a kernel fails before it matters
            checks = NumberChecks(expanded, numbers)
        unchecked = unchecked_operands(expanded, in_range)
        drawn = unchecked.drawn
        return replace(
            compiled,
            program=program,
            program_id=program_id,
            is_fallible=unchecked.has_data,
            number_checks=checks or None,
            drawn_indices=DrawnIndices(expanded, drawn, numbers) if drawn else None,
        )

    def _room_for(self, graph: Graph, later: Collection[Node]) -> int | None:
        """Return the bytes of a worker that the program of a graph may need: the limit without the
        arrays that are no leaves of the graph.

        The arrays of the leaves `later` do not exist yet.
        """
        bound = self._pool.memory_bound
        if bound is None:
            return None
        leaves = [leaf for leaf in graph.leaves if leaf.layout is not None and leaf not in later]
        other_bytes = self._pool.array_bytes - sum(map(local_bytes, leaves))
        return bound - max(0, other_bytes)

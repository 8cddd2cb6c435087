"""Chakra traces of a step of a model, and of collectives between dies: one rank for each die."""

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from dse.evaluators.accounting.decode_segments import arrays_of_cases
from dse.evaluators.accounting.layout import layout_of
from dse.evaluators.accounting.phase import PhaseCost
from dse.evaluators.calls.call import KernelCall
from dse.evaluators.cost_models.call_cost import TimedBlock
from dse.evaluators.cost_models.die_exchange_jobs import DieExchangeJob
from dse.evaluators.evaluation import explain
from dse.evaluators.workloads.kernels import kernel_workload
from dse.exports.chakra import COLLECTIVES, TraceNode, write_rank_files
from dse.exports.chakra_programs import node_totals
from dse.exports.export_files import refuse_many
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.software import DIE_COLLECTIVE, software_of
from dse.space.workload import BatchCase, CollectiveCase


def write_chakra_steps(design: Design, case: BatchCase, fidelity: str, folder: Path, most: int) -> list[dict[str, Any]]:
    """Write the first iteration of each phase, a file for each die; returns totals of each phase.

    Raises:
        DesignError: the design breaks a limit of its layout, has pipeline stages, or there would be too many nodes.
    """
    layout, job = layout_of(design), arrays_of_cases(case.model, ((0, case),), "exact")
    if layout.layout_limits(design, job):
        raise DesignError("export-program: the model has no layout on this chip; dse evaluate says which limit it violates")
    entries = []
    for phase in layout.phases(design, job, fidelity, detailed=True):
        if not np.any(phase.seconds) or not phase.timed:
            continue
        if _is_staged(phase):
            raise DesignError(f"mapping.{phase.name}.pp: Chakra traces of a step have one pipeline stage; use pp=1")
        ranks = int(_first(phase.dies))
        refuse_many(ranks * _count_nodes(phase), most, "nodes")
        nodes = list(phase_nodes(phase))
        about = {"phase": phase.name, "model": case.model.name, "ranks": f"{ranks} dies, which all do the same"}
        about["left_out"] = "time of the host before each iteration (mapping.stack.iteration)"
        write_rank_files(folder, phase.name, [nodes] * ranks, about)
        totals = node_totals(nodes)
        entries.append({"program": phase.name, "ranks": ranks, "iteration_seconds": _iteration_seconds(phase), **totals})
    return entries


def write_chakra_collective(design: Design, case: CollectiveCase, fidelity: str, folder: Path) -> dict[str, Any]:
    """Write one collective among the dies of a group as one node of each rank; returns totals.

    Raises:
        DesignError: Chakra has no such collective.
    """
    if case.pattern not in COLLECTIVES:
        names = ", ".join(name for name in COLLECTIVES if name != "barrier")
        raise DesignError(f"workload.pattern: Chakra has no collective {case.pattern}; choose one of {names}")
    if software_of(design.mapping) == DIE_COLLECTIVE:
        ranks = int(kernel_workload(design).prepare_case(design, (case,)).members)
    else:
        ranks = int(design.mapping.decode.tp)
    seconds = explain(design, case, fidelity=fidelity).seconds
    node = TraceNode(1, case.pattern, "COMM_COLL_NODE", (), seconds, _collective(case.pattern, case.nbytes))
    write_rank_files(folder, case.pattern, [[node]] * ranks, {"collective": case.label})
    return {"program": case.pattern, "ranks": ranks, "seconds": seconds, **node_totals([node])}


def phase_nodes(phase: PhaseCost) -> Iterator[TraceNode]:
    """Nodes of one die in the first iteration of a phase, in the order of the timeline."""
    number, last = 0, 0
    for block in _blocks_in_order(phase):
        opener, before = block.block.opener, last
        collective = _first(block.collective)
        if opener is not None and collective > 0:
            number += 1
            attributes = _collective("allreduce", opener.nbytes)
            yield TraceNode(number, "allreduce", "COMM_COLL_NODE", _known(last), collective, attributes)
            last = number
        for call, duration, prefetch in zip(block.block.calls, block.durations, block.prefetches, strict=True):
            needs = _known(last)
            if prefetch is not None and _first(prefetch) > 0:
                number += 1
                fetched = {"tensor_size": round(_first(call.fetch))}
                yield TraceNode(number, f"prefetch {call.name}", "MEM_LOAD_NODE", _known(before), _first(prefetch), fetched)
                needs, before = [*needs, number], number
            number += 1
            yield _call_node(number, call, needs, _first(duration), _first(phase.dies))
            last = number


def _blocks_in_order(phase: PhaseCost) -> Iterator[TimedBlock]:
    """Blocks of one iteration as they run.

    Consecutive blocks that run equally often are a layer, which is repeated.
    """
    for _, layer in groupby(phase.timed, key=lambda block: _repetitions(phase, block)):
        blocks = list(layer)
        for _ in range(_repetitions(phase, blocks[0])):
            yield from blocks


def _call_node(number: int, call: KernelCall, needs: list[int], seconds: float, dies: float) -> TraceNode:
    """Node of a call: a collective of an exchange between dies, computation of all others."""
    job = call.job
    if isinstance(job, DieExchangeJob) and job.pattern in COLLECTIVES:
        return TraceNode(number, call.name, "COMM_COLL_NODE", needs, seconds, _collective(job.pattern, _first(job.nbytes)))
    attributes = {"num_ops": round(_first(call.flop) / dies), "tensor_size": round(_first(call.nbytes) / dies)}
    return TraceNode(number, call.name, "COMP_NODE", needs, seconds, attributes)


def _collective(pattern: str, nbytes: Any) -> dict[str, Any]:
    return {"comm_type": COLLECTIVES[pattern], "comm_size": round(_first(nbytes)), "involved_dim": [True]}


def _iteration_seconds(phase: PhaseCost) -> float:
    """Time of the first iteration on the dies, all blocks as often as they run, without the host's. [s]"""
    return sum(_repetitions(phase, block) * _first(block.seconds) for block in phase.timed)


def _count_nodes(phase: PhaseCost) -> int:
    return sum(_repetitions(phase, block) * (2 * len(block.block.calls) + 1) for block in phase.timed)


def _repetitions(phase: PhaseCost, block: TimedBlock) -> int:
    """How often a block runs in one iteration; the embedding, which is first, runs once."""
    return round(_first(block.block.times) / _first(phase.timed[0].block.times))


def _is_staged(phase: PhaseCost) -> bool:
    """Whether a phase has pipeline stages."""
    jobs = [call.job for block in phase.timed for call in block.block.calls]
    return phase.stages > 1 or any(isinstance(job, DieExchangeJob) and job.pattern == "hand_over" for job in jobs)


def _known(number: int) -> list[int]:
    return [number] if number else []


def _first(value: Any) -> float:
    return float(np.ravel(value)[0])

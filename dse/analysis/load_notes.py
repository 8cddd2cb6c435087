"""Notes on a serving load: allocated KV memory, SLO classes, session turns and the maximum rate."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from dse.analysis.max_rate_text import format_max_rate
from dse.documents.evaluate_document import ClassRecord, KvMemoryRecord, TurnRecord
from dse.documents.shared_records import TraceRecord
from dse.evaluators.evaluation import get_found_max_rate, kv_memory_by_pool, results_by_class_and_turn
from dse.space.design import Design
from dse.space.units import format_quantity
from dse.space.workload import ServingLoad

if TYPE_CHECKING:
    from dse.evaluators.serving.max_rate import MaxRate
    from dse.evaluators.serving.run_statistics import ClassResult, TurnResult
    from dse.evaluators.workloads.serving import PoolKvMemory  # which compiles loops


class LoadNotes(NamedTuple):
    """Notes on one serving load beside its metrics.

    Attributes:
        held: KV memory of an instance of each pool, where its blocks are given.
        classes: what requests of each class got.
        turns: what turns of sessions got, by their places.
        largest: the maximum rate with its range, where it was looked for and there is one; else None.
    """

    held: "tuple[PoolKvMemory, ...]" = ()
    classes: "tuple[ClassResult, ...]" = ()
    turns: "tuple[TurnResult, ...]" = ()
    largest: "MaxRate | None" = None


def load_notes(design: Design, load: ServingLoad, fidelity: str, rate: float | None) -> LoadNotes:
    """Notes on a load that was simulated.

    Args:
        design: that keeps all limits.
        load, fidelity: of the evaluation.
        rate: the largest that keeps the bounds, where it was looked for.
    """
    classes, turns = results_by_class_and_turn(design, load, fidelity) if load.classes or len(load.requests.turns) else ([], [])
    largest = get_found_max_rate(load, rate) if load.largest and rate else None
    return LoadNotes(kv_memory_by_pool(design, load), tuple(classes), tuple(turns), largest)


def format_max_rates(loads: Sequence[ServingLoad], notes: Sequence[LoadNotes]) -> list[str]:
    """Maximum rate of each load as text, if it was searched."""
    return [format_max_rate(note.largest, load) for load, note in zip(loads, notes, strict=True) if note.largest]


def format_notes(loads: Sequence[ServingLoad], notes: Sequence[LoadNotes]) -> list[tuple[str, str]]:
    """Notes on loads as named lines of text, each once."""
    rows = [("KV memory", _memory_text(memory)) for note in notes for memory in note.held]
    rows += [("class", _class_text(slo_class)) for note in notes for slo_class in note.classes]
    rows += [("turn", _turn_text(turn)) for note in notes for turn in note.turns]
    return list(dict.fromkeys(rows))


def kv_memory_records(notes: LoadNotes) -> list[KvMemoryRecord]:
    """Allocated KV memory by pool as records of documents."""
    return [
        KvMemoryRecord(
            of=memory.pool,
            blocks=memory.blocks,
            blocks_of_memory=memory.room,
            tokens=memory.tokens,
            tokens_of_memory=memory.room_tokens,
        )
        for memory in notes.held
    ]


def class_records(notes: LoadNotes) -> list[ClassRecord]:
    """Results of SLO classes as records of documents."""
    return [
        ClassRecord(
            class_=slo_class.name,
            requests=slo_class.requests,
            slo_attainment=slo_class.attainment,
            goodput_hz=slo_class.goodput,
            ttft_s=slo_class.ttft,
            ttft_p90_s=slo_class.ttft_p90,
            tpot_s=slo_class.tpot,
        )
        for slo_class in notes.classes
    ]


def turn_records(notes: LoadNotes) -> list[TurnRecord]:
    """Results of session turns as records of documents."""
    return [
        TurnRecord(
            turn=turn.name,
            requests=turn.requests,
            prompt_tokens=turn.prompt,
            prefix_hit_rate=turn.reused,
            ttft_s=turn.ttft,
            ttft_p90_s=turn.ttft_p90,
            tpot_s=turn.tpot,
            latency_s=turn.latency,
        )
        for turn in notes.turns
    ]


def trace_record(load: ServingLoad) -> TraceRecord | None:
    """Part of its trace that a load uses, as a record of documents; None without a trace."""
    if (trace := load.trace) is None:
        return None
    return TraceRecord(file=trace.file, part=trace.part, times=trace.times, process=trace.process or None)


def trace_text(load: ServingLoad) -> str:
    """Part of its trace that a load uses, as text; empty string without a trace."""
    if (trace := load.trace) is None:
        return ""
    replayed = "replayed" if trace.times == "replayed" and not load.largest else "replayed at another speed"
    how = f"times drawn ({trace.process})" if trace.process else replayed
    return f", {trace.part}, {how}"


def _memory_text(memory: "PoolKvMemory") -> str:
    return (
        f"{memory.tokens:,} tokens of each {memory.pool}, by mapping.serving.kv_blocks "
        f"({memory.blocks:,}); its memory has room for "
        f"{memory.room_tokens:,} ({memory.room:,} blocks)"
    )


def _class_text(result: "ClassResult") -> str:
    return (
        f"{result.name}: {result.attainment:.1%} of {result.requests:,} requests within its bounds, "
        f"{format_quantity(result.goodput, 'Hz')}; TTFT "
        f"{format_quantity(result.ttft, 's')}, p90 {format_quantity(result.ttft_p90, 's')}, "
        f"TPOT {format_quantity(result.tpot, 's')}"
    )


def _turn_text(result: "TurnResult") -> str:
    return (
        f"{result.name}: {result.requests:,} requests of {result.prompt:,.0f} prompt tokens, {result.reused:.1%} reused; TTFT "
        f"{format_quantity(result.ttft, 's')}, p90 {format_quantity(result.ttft_p90, 's')}, TPOT "
        f"{format_quantity(result.tpot, 's')}, answered in {format_quantity(result.latency, 's')}"
    )

"""Notes on a serving load: allocated KV memory, SLO classes, session turns and the maximum rate."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dse.analysis.max_rate_text import max_rate_record, max_rate_text
from dse.evaluators.evaluation import found_max_rate, kv_memory_by_pool, results_by_class_and_turn, unloaded_latency
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
        alone: time to first token and a token of requests that meet no other, where no rate keeps the bounds; else None. [s]
        classes: what requests of each class got.
        turns: what turns of sessions got, by their places.
        largest: the maximum rate with its range, where it was looked for and there is one; else None.
    """

    held: "tuple[PoolKvMemory, ...]" = ()
    alone: tuple[float, float] | None = None
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
    none = bool(load.largest) and rate == 0
    classes, turns = results_by_class_and_turn(design, load, fidelity) if load.classes or len(load.requests.turns) else ([], [])
    alone = unloaded_latency(design, load, fidelity) if none else None
    largest = found_max_rate(load, rate) if load.largest and rate else None
    return LoadNotes(kv_memory_by_pool(design, load), alone, tuple(classes), tuple(turns), largest)


def max_rates(loads: Sequence[ServingLoad], found: Sequence[LoadNotes]) -> list[str]:
    """Maximum rate of each load as text, if it was searched."""
    return [max_rate_text(one.largest, load) for load, one in zip(loads, found, strict=True) if one.largest]


def notes_text(loads: Sequence[ServingLoad], found: Sequence[LoadNotes]) -> list[tuple[str, str]]:
    """Notes on loads as named lines of text, each once."""
    rows = [("KV memory", _memory(of)) for one in found for of in one.held]
    rows += [("max rate", _none(load, *one.alone)) for load, one in zip(loads, found, strict=True) if one.alone]
    rows += [("class", _class(of)) for one in found for of in one.classes]
    rows += [("turn", _turns(of)) for one in found for of in one.turns]
    return list(dict.fromkeys(rows))


def notes_record(of: LoadNotes, load: ServingLoad) -> dict[str, Any]:
    """Notes on a load as JSON values."""
    memory = [
        {"of": one.pool, "blocks": one.blocks, "blocks_of_memory": one.room, "tokens": one.tokens}
        | {"tokens_of_memory": one.room_tokens}
        for one in of.held
    ]
    alone = None if of.alone is None else {"ttft_s": of.alone[0], "tpot_s": of.alone[1]}
    classes = [
        {"class": one.name, "requests": one.requests, "slo_attainment": one.attainment, "goodput_hz": one.goodput}
        | {"ttft_s": one.ttft, "ttft_p90_s": one.ttft_p90, "tpot_s": one.tpot}
        for one in of.classes
    ]
    turns = [
        {"turn": one.name, "requests": one.requests, "prompt_tokens": one.prompt, "prefix_hit_rate": one.reused}
        | {"ttft_s": one.ttft, "ttft_p90_s": one.ttft_p90, "tpot_s": one.tpot, "latency_s": one.latency}
        for one in of.turns
    ]
    largest = {"max_rate": max_rate_record(of.largest, load)} if of.largest else {}
    return {"kv_memory": memory, "unloaded": alone, "classes": classes} | ({"turns": turns} if turns else {}) | largest


def trace_record(load: ServingLoad) -> dict[str, Any] | None:
    """Part of its trace that a load uses, as JSON values; None without a trace."""
    if (of := load.trace) is None:
        return None
    return {"file": of.file, "part": of.part, "times": of.times, "process": of.process or None}


def trace_text(load: ServingLoad) -> str:
    """Part of its trace that a load uses, as text; empty string without a trace."""
    if (of := load.trace) is None:
        return ""
    how = f"times drawn ({of.process})" if of.process else "replayed at another speed"
    return f", {of.part}, {how}"


def _memory(of: "PoolKvMemory") -> str:
    return (
        f"{of.tokens:,} tokens of each {of.pool}, by mapping.serving.kv_blocks ({of.blocks:,}); its memory has room for "
        f"{of.room_tokens:,} ({of.room:,} blocks)"
    )


def _class(of: "ClassResult") -> str:
    return (
        f"{of.name}: {of.attainment:.1%} of {of.requests:,} requests within its bounds, "
        f"{format_quantity(of.goodput, 'Hz')}; TTFT "
        f"{format_quantity(of.ttft, 's')}, p90 {format_quantity(of.ttft_p90, 's')}, TPOT {format_quantity(of.tpot, 's')}"
    )


def _turns(of: "TurnResult") -> str:
    return (
        f"{of.name}: {of.requests:,} requests of {of.prompt:,.0f} prompt tokens, {of.reused:.1%} reused; TTFT "
        f"{format_quantity(of.ttft, 's')}, p90 {format_quantity(of.ttft_p90, 's')}, TPOT "
        f"{format_quantity(of.tpot, 's')}, answered in {format_quantity(of.latency, 's')}"
    )


def _none(load: ServingLoad, ttft: float, tpot: float) -> str:
    return (
        f"0: no rate keeps {format_quantity(load.ttft, 's')} TTFT and "
        f"{format_quantity(load.tpot, 's')} TPOT for "
        f"{load.largest:.4g} of the requests; a lone request takes at that share {format_quantity(ttft, 's')} and "
        f"{format_quantity(tpot, 's')}"
    )

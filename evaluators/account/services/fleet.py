"""Pipelines of groups of tiles that serve requests: how many there are, what their cores hold, and what an iteration takes.

An iteration is one micro-batch's pass through all stages, prompts and decodes together: products over all tokens, attention of
each kind by itself.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.account.partitions import Phase, Tried, quickest, with_partition
from dse.evaluators.account.passes import Staged, through_stages
from dse.evaluators.account.played import served
from dse.evaluators.graph.operators import Part
from dse.evaluators.graph.step import Step
from dse.evaluators.graph.transformer import line, transformer
from dse.evaluators.kernels.partition.onward import Way
from dse.evaluators.layouts.partitioned import Chosen, brings, merged, offered
from dse.evaluators.layouts.pipelines import blocks, room
from dse.evaluators.layouts.residency import Resident, Share, resident
from dse.evaluators.layouts.stages import Line, Stages, line_of, parts_of_layers, whole_layers
from dse.evaluators.machine.machine import of_tiles
from dse.evaluators.machine.shared import shared
from dse.evaluators.passes.call import Block
from dse.evaluators.readers import READERS
from dse.evaluators.readers.price import Reader
from dse.evaluators.serving.kvcache import Room, room_of
from dse.evaluators.serving.policy import Policy, policy
from dse.space.chip import Chip, decoding, memory_of_core
from dse.space.design import Design
from dse.space.elementwise import Array, maximum, where
from dse.space.layers import Reach, by_reach
from dse.space.mapping import AUTO, BYTES, DIVISIONS, Mapping, PoolPlan, Precision
from dse.space.model import Model
from dse.space.workload import Load


class Pipelines(NamedTuple):
    """Pipelines of one phase, or of both.

    Attributes:
        name: of the phase; decode also for both.
        chip: as if all cores were of this kind.
        plan: of the phase.
        rule: how an iteration is formed.
        groups: of cores, that there is room for.
        dp: pipelines.
        batch: requests of one, over all its micro-batches.
        held: on the fullest core.
        room: what a request has on it, of all its layers.
        stages: of each pipeline.
        precision: formats.
        words: partitions of operators, where the plan leaves them open.
        holds: the plan, with the partition as which what a core holds is counted.
    """

    name: str
    chip: Chip
    plan: PoolPlan
    rule: Policy
    groups: int
    dp: int
    batch: int
    held: Resident
    room: Room
    stages: Stages
    precision: Precision
    words: Chosen | None
    holds: PoolPlan

    @property
    def near(self) -> float:
        """Of a core's local memory, what caches have. [B]"""
        return float(self.held.kv_here * self.held.kv)

    @property
    def free(self) -> float:
        """Of a core's share of HBM, what weights leave. [B]"""
        return float(memory_of_core(self.chip)) - float((1 - self.held.weights_here) * self.held.weights)


@lru_cache(maxsize=1)  # limits and metrics of a design ask one after the other
def fleet_of(design: Design, load: Load) -> tuple[Pipelines, ...]:
    """Pipelines that prefill, where there are such, and that decode."""
    chip, mapping = design.chip, design.mapping
    apart, others = (int(cores) for cores in cores_of(design))
    # a request has a buffer for all of it before its first chunk
    both = policy(mapping.serving.policy, by_chunk=False, **_changes(mapping, int(mapping.decode.chunk)))
    if not apart:
        return (_pipelines("decode", chip, mapping.decode, both, others, mapping, load, _prompts(both, load)),)
    chunk = int(mapping.prefill.chunk)
    alone = policy("chunked", tokens=chunk, by_chunk=False) if chunk else policy("prefill_first")
    return (
        _pipelines("prefill", chip, mapping.prefill, alone, apart, mapping, load, _prompts(alone, load)),
        _pipelines("decode", decoding(chip), mapping.decode, both, others, mapping, load, 0.0),
    )


def _prompts(rule: Policy, load: Load) -> float:
    """The most prompt tokens of an iteration, or those of a prompt that goes whole: others go by blocks after it."""
    whole = float(load.requests.prompt.max())
    if rule.unit:
        return float(rule.tokens // rule.unit * rule.chunk)
    return min(whole, float(rule.tokens)) if rule.chunked else whole


def _changes(mapping: Mapping, chunk: int) -> dict[str, int]:
    given = {"tokens": mapping.serving.tokens, "unit": mapping.serving.unit, "chunk": chunk}
    return {name: int(value) for name, value in given.items() if value}


def _pipelines(
    name: str, chip: Chip, plan: PoolPlan, rule: Policy, cores: int, mapping: Mapping, load: Load, prompts: float
) -> Pipelines:
    groups = int(room(chip, plan) * cores // (chip.mesh.rows * chip.mesh.cols))
    dp = int(plan.dp) or max(1, groups // int(plan.pp))
    batch, longest = int(plan.microbatch * plan.pp), served.longest(load)
    tokens = prompts + (float(plan.microbatch) if name == "decode" else 0.0)
    parts = transformer(load.model, Step("prefill", tokens, 1.0, tokens, tokens))
    alike, near = replace(mapping, prefill=plan, decode=plan, serving=None), shared(chip)

    def with_share(share: Share | None, plan: PoolPlan, everywhere: Any) -> tuple[Resident, Room]:
        def held(cached: Any, sequences: float) -> Resident:
            return resident(
                parts, load.model, plan, alike, chip.tile.sram, tokens=tokens, cached=cached, sequences=sequences, share=share,
                near=near and near.size, everywhere=everywhere,
            )  # fmt: skip

        whole = held(by_reach(load.model, lambda reach: float(batch * reach.kept(longest))), float(batch))
        return whole, room_of(load.model, lambda cached, sequences: held(cached, sequences).kv)

    stages, first = whole_layers(line_of(load.model, parts, mapping.precision), int(plan.pp)), plan
    if plan.partition == AUTO:  # which what a core holds decides on
        first = with_partition(plan, "k")

    def held_by(plan: PoolPlan, everywhere: Any = 0.0) -> Pipelines:
        holds = with_share(None, plan, everywhere)
        return Pipelines(name, chip, plan, rule, groups, dp, batch, *holds, stages, mapping.precision, None, plan)

    whole, everywhere = held_by(first), 0.0
    if plan.partition == AUTO:
        whole, everywhere = _with_words(whole, load, plan, mapping, prompts, held_by)
    if plan.stages == "layers":
        return whole
    # cut as if all came from HBM: what stays in local memory depends on where the stages end
    line, value = _typical(load, whole._replace(held=whole.held._replace(kv_here=0.0, weights_here=0.0)), READERS["closed"])
    stages = parts_of_layers(line, int(plan.pp), value)
    held, taken = with_share(stages.share, whole.holds, everywhere)
    return whole._replace(held=held, room=taken, stages=stages)


def _with_words(
    of: Pipelines, load: Load, plan: PoolPlan, mapping: Mapping, prompts: float, held_by: Callable[..., Pipelines]
) -> tuple[Pipelines, Any]:
    """Pipelines with the partition of each operator, and of weights those of which each core has all. [B]"""
    found: dict[int, Pipelines] = {}

    def held(plan: PoolPlan, everywhere: Any) -> Resident:
        one = held_by(plan, float(np.squeeze(everywhere)))
        found[id(one.held)] = one
        return one.held

    def fits(plan: PoolPlan, here: Resident) -> bool:
        one = found[id(here)]
        return least(one, load, mapping) <= one.free and float(here.activations + here.slices) <= float(of.chip.tile.sram)

    at, attending, runs = _asked(of, load, prompts)
    crossing = at.tokens * of.stages.carried * BYTES[of.precision.activations]

    def passed(laid: tuple[Block, ...], here: Resident) -> Staged:
        way = Way(plan.placement, plan.tp, plan.pp, of.dp, of.chip.mesh.rows)
        return through_stages(load.model, laid, crossing, of_tiles(of.chip), way, plan, here, READERS["closed"])

    def lay(word: str) -> tuple[Block, ...]:
        return blocks(load.model, at, with_partition(plan, word), of.precision, attending, apart=True)

    work, closed = Work(at, attending, runs), READERS["closed"]
    best, holds = words_of(load.model, of.chip, plan, of.precision, work, closed, lay, held, passed, fits)
    everywhere = float(np.squeeze(best.everywhere))
    return held_by(holds, everywhere)._replace(plan=plan, words=best.of), everywhere


def laid_out(of: Pipelines, load: Load, at: Step, attending: tuple[Step, ...]) -> tuple[Block, ...]:
    """Calls of an iteration, by the partition of the plan or by words of each operator."""
    model, plan, words = load.model, of.plan, of.words
    if words is None:
        return blocks(model, at, plan, of.precision, attending)
    used = {DIVISIONS[int(word)] for word in words.words.values()} | {"k"}
    by_word = {
        word: blocks(model, at, with_partition(plan, word), of.precision, attending, apart=True)
        for word in offered(plan)
        if word in used
    }
    return merged(transformer(model, at), by_word, words, plan, float(BYTES[of.precision.activations]))


def least(of: Pipelines, load: Load, mapping: Mapping) -> float:
    """Of a core's share of HBM, what the longest request takes by itself. [B]"""
    whole = float(of.room.of(served.longest(load)))
    return whole if mapping.serving.overflow == "ring" else max(0.0, whole - of.near)


def _asked(of: Pipelines, load: Load, prompts: float) -> tuple[Step, tuple[Step, ...], Array]:
    """Iterations that a mean request asks of pipelines, and how often, shape (iterations, 1)."""
    prompt, output = float(load.requests.prompt.mean()), float(load.requests.output.mean())
    batch, turn = float(of.plan.microbatch), min(prompt, prompts or prompt)
    rows = []
    if of.name == "prefill" or prompts:
        rows.append((prompt / turn, (turn, prompt / 2, 0.0, 0.0)))
    if of.name == "decode":
        rows.append((output / batch, (0.0, 0.0, batch, prompt + output / 2)))
    runs, counts = np.array([[times] for times, _ in rows]), np.array([some for _, some in rows]).T[..., None]
    return *_steps(load.model, "prefill" if prompts or of.name == "prefill" else "decode", *counts), runs


def iteration(
    load: Load, of: Pipelines, reader: Reader, phase: str, prompt: Any, prompt_context: Any, decodes: Any,
    context: Any, spilled: Any, crowding: float = 1.0,
) -> Staged:  # fmt: skip
    """An iteration, counts as in `price.AXES`; leaves broadcast."""
    at, attending = _steps(load.model, phase, prompt, prompt_context, decodes, context)
    laid = laid_out(of, load, at, attending)
    crossing = (prompt + decodes) * of.stages.carried * BYTES[of.precision.activations]
    held = of.held._replace(kv_here=1 - spilled)
    way = Way(of.plan.placement, of.plan.tp, of.plan.pp, of.dp, of.chip.mesh.rows)
    return through_stages(load.model, laid, crossing, of_tiles(of.chip), way, of.plan, held, reader, crowding)


def _steps(
    model: Model, phase: str, prompt: Any, prompt_context: Any, decodes: Any, context: Any
) -> tuple[Step, tuple[Step, ...]]:
    """An iteration, and the steps that share it: prompts and decodes."""

    def looked(reach: Reach) -> tuple[Any, Any, Any]:
        """Pairs of prompts, positions that they attend to before themselves, which are read once a chunk, and decodes' own."""
        near, own = reach.seen(prompt_context), reach.seen(context)
        return prompt * near, where(prompt > 0, maximum(near - (prompt + 1) / 2, 0.0), 0.0), decodes * own

    pairs, past, own = (by_reach(model, lambda reach, n=n: looked(reach)[n]) for n in range(3))  # type: ignore[misc]
    prompts = Step("prefill", prompt, (prompt > 0) * 1.0, pairs, past)
    generating = Step("decode", decodes, decodes, own, own)
    tokens, requests = prompt + decodes, decodes + prompts.requests
    resumed = decodes + (prompt_context > (prompt + 1) / 2)  # further chunks of a prompt have a past
    at = Step(phase, tokens, requests, prompts.pairs + generating.pairs, past + generating.positions, resumed=resumed)
    return at, (prompts, generating)


def paces(load: Load, of: Pipelines, reader: Reader) -> tuple[tuple[float, ...], float]:
    """Of an iteration's time, by stage; and how many tokens all pipelines can do, at the pace of the slowest stage. [1/s]"""
    seconds = of.stages.seconds(*_typical(load, of, reader))
    tokens = float(load.requests.prompt.mean()) if of.name == "prefill" else float(of.plan.microbatch)
    return tuple((seconds / seconds.sum()).tolist()), of.dp * tokens / float(seconds.max())


def _typical(load: Load, of: Pipelines, reader: Reader) -> tuple[Line, float]:
    """Operators of a full micro-batch of decodes, or of a prompt where pipelines only prefill; and to send on a value of it."""
    prompt, output = float(load.requests.prompt.mean()), float(load.requests.output.mean())
    if of.name == "prefill":
        phase, tokens, counts = "prefill", prompt, (prompt, prompt / 2, 0.0, 0.0)
    else:
        phase, tokens = "decode", float(of.plan.microbatch)
        counts = (0.0, 0.0, tokens, prompt + output / 2)
    at = iteration(load, of, reader, phase, *counts, 0.0)
    seconds: dict[tuple[str, str], float] = {}
    for of_part in at.timed:
        for call, taken in zip(of_part.block.calls, of_part.durations, strict=True):
            name = call.needs[0] if brings(call) else call.name
            seconds[call.part, name] = seconds.get((call.part, name), 0.0) + float(taken)
    parts = transformer(load.model, Step(phase, tokens, 1.0 if phase == "prefill" else tokens, tokens, tokens))
    return line_of(load.model, parts, of.precision, seconds), float(
        at.hop.mean
    ) / of.stages.carried if of.stages.carried else 0.0


def cores_of(design: Design) -> tuple[float, float]:
    """Cores that only prefill, and those that decode."""
    asked, count = design.mapping.serving, all_cores(design)
    apart = min(float(asked.prefill_cores), count)
    return apart, min(float(asked.decode_cores) or count, count - apart)


def decode_cores(design: Design) -> float:
    """Cores that only decode."""
    apart, others = cores_of(design)
    return others if apart else 0.0


def all_cores(design: Design) -> float:
    """Cores of the chip."""
    mesh = design.chip.mesh
    return float(mesh.rows * mesh.cols)


class Work(NamedTuple):
    """Iterations that a mean request asks for, shape (iterations, 1).

    Attributes:
        at, attending: steps, and those that share them.
        runs: how often each is done.
    """

    at: Step
    attending: tuple[Step, ...]
    runs: Any


def words_of(
    model: Model, chip: Chip, plan: PoolPlan, precision: Precision, work: Work, closed: Reader,
    lay: Callable[[str], tuple[Block, ...]],
    held: Callable[[PoolPlan, Any], Resident], passed: Callable[[tuple[Block, ...], Resident], Staged],
    fits: Callable[[PoolPlan, Resident], bool],
) -> tuple[Tried, PoolPlan]:  # fmt: skip
    """Words of pipelines, and their plan as what a core holds is counted.

    Args:
        model, chip, plan, precision: what is divided, and where.
        work: that is typical.
        closed: the closed reader.
        lay: calls of that work by one partition, but for what goes to all.
        held: what a core holds by a plan, and of weights those of which each core has all [B].
        passed: a pass of blocks of that work.
        fits: whether that has room.
    """

    def through(laid: tuple[Block, ...], here: Resident) -> tuple[Staged, Any]:
        staged = passed(laid, here)
        return staged, np.sum(staged.seconds * work.runs, axis=0, keepdims=True)

    phase = Phase(
        model, plan, precision, transformer(model, work.at), line(model, work.at),
        {word: lay(word) for word in offered(plan)},
        lambda word, everywhere: held(with_partition(plan, word), everywhere), through,
        lambda word, here: fits(with_partition(plan, word), here),
        work.runs, np.array([0]), len(work.runs), of_tiles(chip), closed,
    )  # fmt: skip
    best = quickest(phase)
    return best, with_partition(plan, best.counted)


def forms(model: Model) -> int:
    """How many sets of operators the phases of a model have."""

    def names(phase: str) -> list[tuple[str, str]]:
        parts: tuple[Part, ...] = transformer(model, Step(phase, 1.0, 1.0, 1.0, 1.0))
        return [(part.name, of.name) for part in parts for of in part.operators]

    return 1 if names("prefill") == names("decode") else 2

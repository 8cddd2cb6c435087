"""Pipelines of groups of tiles that serve requests: how many there are, what their cores hold, and what an iteration takes.

An iteration is one micro-batch's pass through all stages, prompts and decodes together: products over all tokens, attention of
each kind by itself. Leaves are of one design, or of several with the same words, of shape (designs,).

Cores that do both phases keep room for the activations of a chunk while they only decode, so that fewer weights stay in local
memory than in a batch: tokens of few requests take some per cent longer than there. Cores that only decode have no such room.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.account.partitions import Phase, Tried, quickest, with_partition
from dse.evaluators.account.passes import Staged, through_stages
from dse.evaluators.account.played import served
from dse.evaluators.account.services import several
from dse.evaluators.account.services.prompts import evenly
from dse.evaluators.graph.operators import Part
from dse.evaluators.graph.step import Step
from dse.evaluators.graph.transformer import line, transformer
from dse.evaluators.kernels.partition.onward import Way
from dse.evaluators.layouts.partitioned import Chosen, brings, merged, offered
from dse.evaluators.layouts.pipelines import blocks, room
from dse.evaluators.layouts.residency import Resident, Share, cached_here, resident
from dse.evaluators.layouts.stages import Line, Stages, cut, line_of
from dse.evaluators.machine.machine import of_tiles
from dse.evaluators.machine.shared import shared
from dse.evaluators.passes.call import Block
from dse.evaluators.readers import READERS
from dse.evaluators.readers.price import Reader
from dse.evaluators.serving.kvcache import Room, room_of
from dse.evaluators.serving.policy import Policy, policy
from dse.space.chip import Chip, decoding, memory_of_core
from dse.space.design import Design
from dse.space.elementwise import Array, maximum, minimum, option, where
from dse.space.layers import Reach, by_reach
from dse.space.mapping import AUTO, BYTES, DIVISIONS, STAGES, Mapping, PoolPlan, Precision
from dse.space.model import Model
from dse.space.workload import Load


class Pipelines(NamedTuple):
    """Pipelines of one phase, or of both.

    Attributes:
        name: of the phase; decode also for both.
        chip: as if all cores were of this kind.
        plan: of the phase.
        rules: how an iteration is formed, of each design.
        groups: of cores, that there is room for.
        dp: pipelines.
        batch: requests of one, over all its micro-batches.
        held: on the fullest core.
        room: what a request has on it, of all its layers.
        cut: stages of a pipeline, of each design.
        precision: formats.
        words: partitions of operators, where the plan leaves them open.
        holds: the plan, with the partition as which what a core holds is counted.
    """

    name: str
    chip: Chip
    plan: PoolPlan
    rules: tuple[Policy, ...]
    groups: Any
    dp: Any
    batch: Any
    held: Resident
    room: Room
    cut: Stages
    precision: Precision
    words: Chosen | None
    holds: PoolPlan

    @property
    def rule(self) -> Policy:
        """How an iteration of one design is formed."""
        (found,) = self.rules
        return found

    @property
    def stages(self) -> Stages:
        """Of a pipeline; numbers of one design."""
        return self.cut.plain

    @property
    def width(self) -> float:
        """Bytes of a value as it is multiplied. [B]"""
        return float(BYTES[self.precision.activations])

    @property
    def near(self) -> Any:
        """Of a core's local memory, what caches have. [B]"""
        return number(self.held.kv_here * self.held.kv)

    @property
    def free(self) -> Any:
        """Of a core's share of HBM, what weights leave. [B]"""
        return number(memory_of_core(self.chip)) - number((1 - self.held.weights_here) * self.held.weights)


_KNOWN: list[tuple[Design, Load, tuple[Pipelines, ...]]] = []
"""Fleets of the last designs and loads, by themselves: limits and metrics of a design ask one after the other."""

FLEETS = 8
"""That are kept."""


def fleet_of(design: Design, load: Load) -> tuple[Pipelines, ...]:
    """Pipelines that prefill, where there are such, and that decode."""
    known = next((fleet for one, its, fleet in _KNOWN if one is design and its is load), None)
    return known or _keep(design, load, _fleet(design, load))


def chosen(design: Design, rows: Array) -> Design:
    """Some of a design's rows, with the fleets that are known of these."""
    found = served.picked(design, rows)
    for one, load, fleet in list(_KNOWN):
        if one is design and len(rows) > 1:
            chips = (found.chip, decoding(found.chip))[: len(fleet)]
            _keep(found, load, tuple(_picked(of, chip, found.mapping, rows) for of, chip in zip(fleet, chips, strict=True)))
    return found


def _keep(design: Design, load: Load, fleet: tuple[Pipelines, ...]) -> tuple[Pipelines, ...]:
    _KNOWN.append((design, load, fleet))
    del _KNOWN[:-FLEETS]
    return fleet


def _picked(of: Pipelines, chip: Chip, mapping: Mapping, rows: Array) -> Pipelines:
    """Some rows of several designs, with a chip and a mapping of these rows."""

    def some(value: Any) -> Any:
        return value[rows] if np.size(value) > 1 else value

    room = Room(some(of.room.growing), some(of.room.fixed), tuple((most, some(nbytes)) for most, nbytes in of.room.windows))
    plan = getattr(mapping, of.name)
    return of._replace(
        chip=chip, plan=plan, rules=tuple(of.rules[row] for row in rows.tolist()), groups=some(of.groups), dp=some(of.dp),
        batch=some(of.batch), held=Resident(*map(some, of.held)), room=room, cut=of.cut.of(rows), holds=plan,
    )  # fmt: skip


def _fleet(design: Design, load: Load) -> tuple[Pipelines, ...]:
    chip, mapping, size = design.chip, design.mapping, max(several(design), 1)
    apart, others = cores_of(design)
    # a request has a buffer for all of it before its first chunk
    both = _each_rule(mapping.decode.chunk, size, lambda chunk: _both(mapping, chunk))
    if not np.any(apart):
        return (_pipelines("decode", chip, mapping.decode, both, others, mapping, load, _prompts(both, load)),)
    alone = _each_rule(mapping.prefill.chunk, size, _alone)
    return (
        _pipelines("prefill", chip, mapping.prefill, alone, apart, mapping, load, _prompts(alone, load)),
        _pipelines("decode", decoding(chip), mapping.decode, both, others, mapping, load, 0.0),
    )


def _both(mapping: Mapping, chunk: int) -> Policy:
    """How pipelines that decode form an iteration."""
    return policy(mapping.serving.policy, by_chunk=False, **_changes(mapping, chunk))


def _alone(chunk: int) -> Policy:
    """How those that only prefill do."""
    return policy("chunked", tokens=chunk, by_chunk=False) if chunk else policy("prefill_first")


def _each_rule(chunks: Any, size: int, rule: Callable[[int], Policy]) -> tuple[Policy, ...]:
    """Of each of some designs, by the longest chunk of a prompt."""
    each = np.broadcast_to(chunks, size).astype(int).tolist()
    known = {chunk: rule(chunk) for chunk in set(each)}
    return tuple(known[chunk] for chunk in each)


def _prompts(rules: tuple[Policy, ...], load: Load) -> Any:
    """The most prompt tokens of an iteration, or those of a prompt that goes whole: others go by blocks after it."""
    whole = float(load.requests.prompt.max())

    def of(rule: Policy) -> float:
        if rule.unit:
            return float(rule.tokens // rule.unit * rule.chunk)
        return min(whole, float(rule.tokens)) if rule.chunked else whole

    return of(rules[0]) if len(rules) == 1 else np.array([of(rule) for rule in rules])


def _changes(mapping: Mapping, chunk: int) -> dict[str, int]:
    given = {"tokens": mapping.serving.tokens, "unit": mapping.serving.unit, "chunk": chunk}
    return {name: int(value) for name, value in given.items() if value}


def _pipelines(
    name: str, chip: Chip, plan: PoolPlan, rules: tuple[Policy, ...], cores: Any, mapping: Mapping, load: Load, prompts: Any
) -> Pipelines:
    groups = count(room(chip, plan) * cores // (chip.mesh.rows * chip.mesh.cols))
    dp = count(where(plan.dp > 0, plan.dp, maximum(1, groups // count(plan.pp))))
    batch, longest = count(plan.microbatch * plan.pp), served.longest(load)
    tokens = prompts + (plan.microbatch * 1.0 if name == "decode" else 0.0)
    parts = transformer(load.model, Step("prefill", tokens, 1.0, tokens, 0.0))
    alike, near = replace(mapping, prefill=plan, decode=plan, serving=None), shared(chip)

    def with_share(share: Share | None, plan: PoolPlan, everywhere: Any) -> tuple[Resident, Room]:
        def held(cached: Any, sequences: Any) -> Resident:
            return resident(
                parts, load.model, plan, alike, chip.tile.sram, tokens=tokens, cached=cached, sequences=sequences, share=share,
                near=near and near.size, everywhere=everywhere,
            )  # fmt: skip

        whole = held(by_reach(load.model, lambda reach: 1.0 * batch * reach.kept(longest)), 1.0 * batch)
        return whole, room_of(load.model, lambda cached, sequences: held(cached, sequences).kv)

    line, stages = line_of(load.model, _one_token(load, "prefill"), mapping.precision), _each(plan.pp, len(rules))
    none, first = np.zeros(len(rules)), plan
    layers = cut(line._replace(seconds=np.zeros((len(rules), len(line.weights)))), stages, none, none > 0)
    if plan.partition == AUTO:  # which what a core holds decides on
        first = with_partition(plan, "k")

    def held_by(plan: PoolPlan, everywhere: Any = 0.0) -> Pipelines:
        holds = with_share(None, plan, everywhere)
        return Pipelines(name, chip, plan, rules, groups, dp, batch, *holds, layers, mapping.precision, None, plan)

    whole, everywhere = held_by(first), 0.0
    if plan.partition == AUTO:
        whole, everywhere = _with_words(whole, load, plan, mapping, prompts, held_by)
    inside = np.broadcast_to(option(plan.stages, STAGES) == STAGES.index("parts"), len(rules))
    if not inside.any():
        return whole
    # cut as if all came from HBM: what stays in local memory depends on where the stages end
    typical = _typical(load, whole._replace(held=whole.held._replace(kv_here=0.0, weights_here=0.0)), READERS["closed"])
    parted = whole._replace(cut=cut(typical[0], stages, typical[1], inside))
    held, taken = with_share(parted.stages.share, parted.holds, everywhere)
    if not inside.all():
        held, taken = _either(inside, held, whole.held), _either(inside, taken, whole.room)
    return parted._replace(held=held, room=taken)


def _either(which: Array, one: Any, other: Any) -> Any:
    """Numbers of the first for some of several designs and of the second for the others, however they are held together."""
    if isinstance(one, tuple):
        found = (_either(which, *both) for both in zip(one, other, strict=True))
        return type(one)(*found) if hasattr(one, "_fields") else tuple(found)
    alike = not (np.ndim(one) or np.ndim(other)) and one == other
    return one if alike else np.where(which, one, other)


def _each(count: Any, size: int) -> Array:
    """Whole things of each of some designs."""
    found: Array = np.broadcast_to(np.ravel(count), size).astype(np.int64)
    return found


def _one_token(load: Load, phase: str) -> tuple[Part, ...]:
    """Parts of a step whose weights, and values a token, count."""
    return transformer(load.model, Step(phase, 1.0, 1.0, 1.0, 1.0))


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
    crossing = at.tokens * of.stages.carried * of.width

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
    return merged(transformer(model, at), by_word, words, plan, of.width)


def least(of: Pipelines, load: Load, mapping: Mapping) -> Any:
    """Of a core's share of HBM, what the longest request takes by itself. [B]"""
    whole = number(of.room.of(served.longest(load)))
    return whole if mapping.serving.overflow == "ring" else maximum(0.0, whole - of.near)


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
    crossing = (prompt + decodes) * of.stages.carried * of.width
    held = of.held._replace(kv_here=1 - spilled)
    way = Way(of.plan.placement, of.plan.tp, of.plan.pp, of.dp, of.chip.mesh.rows)
    return through_stages(load.model, laid, crossing, of_tiles(of.chip), way, of.plan, held, reader, crowding)


def _steps(
    model: Model, phase: str, prompt: Any, prompt_context: Any, decodes: Any, context: Any
) -> tuple[Step, tuple[Step, ...]]:
    """An iteration, and the steps that share it: prompts and decodes."""

    def looked(reach: Reach) -> tuple[Any, Any, Any]:
        """Pairs of prompts, positions that they attend to before themselves, which are read once a chunk, and decodes' own."""
        return prompt / each * reach.after(before, each), reach.seen(before), decodes * reach.seen(context)

    each, before = evenly(prompt, prompt_context)
    pairs, past, own = (by_reach(model, lambda reach, n=n: looked(reach)[n]) for n in range(3))  # type: ignore[misc]
    prompts = Step("prefill", prompt, (prompt > 0) * 1.0, pairs, past)
    generating = Step("decode", decodes, decodes, own, own)
    tokens, requests = prompt + decodes, decodes + prompts.requests
    resumed = decodes + (prompt_context > (prompt + 1) / 2)  # further chunks of a prompt have a past
    at = Step(phase, tokens, requests, prompts.pairs + generating.pairs, past + generating.positions, resumed=resumed)
    if phase == "prefill":
        at = replace(at, decodes=decodes, decoded=own, scored=own)
    return at, (prompts, generating)


def paces(load: Load, of: Pipelines, reader: Reader) -> tuple[list[tuple[float, ...]], Any]:
    """Of an iteration's time, by stage, of each design; and how many tokens all pipelines can do. [1/s]

    They go at the pace of the slowest stage.
    """
    seconds = of.cut.seconds(*_typical(load, of, reader))
    tokens = float(load.requests.prompt.mean()) if of.name == "prefill" else of.plan.microbatch
    slowest, shares = seconds.max(axis=1), (seconds / seconds.sum(axis=1, keepdims=True)).tolist()
    found = of.dp * tokens / (float(slowest[0]) if len(slowest) == 1 else slowest)
    return [tuple(some[:count]) for some, count in zip(shares, of.cut.counts.tolist(), strict=True)], found


def _typical(load: Load, of: Pipelines, reader: Reader) -> tuple[Line, Array]:
    """Operators of a full micro-batch of decodes, or of a prompt where pipelines only prefill; and to send on a value of it.

    Of each design.
    """
    prompt, output = float(load.requests.prompt.mean()), float(load.requests.output.mean())
    size = len(of.rules)
    if of.name == "prefill":
        tokens: Any = prompt
        at = iteration(load, of, reader, "prefill", prompt, prompt / 2, 0.0, 0.0, 0.0)
    else:
        tokens = of.plan.microbatch * 1.0
        at = iteration(load, of, reader, "decode", 0.0, 0.0, tokens, prompt + output / 2, 0.0)
    seconds: dict[tuple[str, str], Any] = {}
    for of_part in at.timed:
        for call, taken in zip(of_part.block.calls, of_part.durations, strict=True):
            name = call.needs[0] if brings(call) else call.name
            seconds[call.part, name] = seconds.get((call.part, name), 0.0) + np.ravel(taken)
    line = line_of(load.model, _one_token(load, of.name), of.precision, seconds, size)
    hop, carried = np.broadcast_to(np.ravel(at.hop.mean), size), of.cut.carried
    return line, np.divide(hop, carried, out=np.zeros(size), where=carried != 0)


def room_of_request(design: Design, load: Load, plan: PoolPlan) -> Room:
    """What a request has on a core, in all layers."""
    said = design.mapping.precision

    def nbytes(cached: Any, sequences: float) -> Any:
        return cached_here(load.model, plan, cached, sequences, said)

    return room_of(load.model, nbytes)


def cores_of(design: Design) -> tuple[Any, Any]:
    """Cores that only prefill, and those that decode."""
    asked, cores = design.mapping.serving, all_cores(design)
    apart = minimum(asked.prefill_cores * 1.0, cores)
    return apart, minimum(where(asked.decode_cores > 0, asked.decode_cores, cores) * 1.0, cores - apart)


def decode_cores(design: Design) -> Any:
    """Cores that only decode."""
    apart, others = cores_of(design)
    return where(apart > 0, others, 0.0)


def all_cores(design: Design) -> Any:
    """Cores of the chip."""
    mesh = design.chip.mesh
    return mesh.rows * mesh.cols * 1.0


def number(value: Any) -> Any:
    """Of one design as a float."""
    return value if np.size(value) > 1 else float(np.squeeze(value))


def count(value: Any) -> Any:
    """Whole things, rounded down; of one design as an integer."""
    return np.floor(value) if isinstance(value, np.ndarray) else int(value)


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

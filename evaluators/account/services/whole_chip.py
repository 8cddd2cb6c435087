"""Tiles that all work on one operator at a time, and serve requests: an instance is the chip.

An iteration is one pass through all operators, prompts and decodes together: products and rows over the tokens of both, which
read weights once, and attention of each kind by itself. It goes by the plan of prefill where it has prompts, else by that of
decode. Latent attention and states are computed otherwise where nothing is prefilled: what of these is of prompts alone, or of
decodes alone, is done apart, in the same pass. Latents before a chunk are expanded again. Prompts are taken to be whole and
alike as far as their tokens and the positions that these attend to allow (`prompts.py`).

Where slices of attention are left open, those of a prompt by itself or of several serve all prompts of about its length, and
those of prompts as long as all that a chunk attends to serve the chunk too. Decodes have those that suit a few more or a few
less at a time, with as many keys. Chips have no links to others: caches go by the host.
"""

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.account import tiles
from dse.evaluators.account.breakdown import Row, repeated
from dse.evaluators.account.phase import Phase
from dse.evaluators.account.played import balanced, steady
from dse.evaluators.account.power import of_phases
from dse.evaluators.account.services import HERE, Composition, Done, Instance, counted, priced_by, several
from dse.evaluators.account.services.counted import each
from dse.evaluators.account.services.least import Least, at_a_time, fastest, lanes, multiplied, read_weights, worked_prompt
from dse.evaluators.account.services.prompts import alike, by_hosts, whole_points
from dse.evaluators.account.services.shared_prices import Shared, said_first
from dse.evaluators.account.tiles import KINDS, Held, filled, held, limits_of, most, one_by_one, sums
from dse.evaluators.graph.step import Step
from dse.evaluators.graph.transformer import transformer
from dse.evaluators.kernels.attention import attention
from dse.evaluators.layouts.attended import Attend, chunks, newest, nobody
from dse.evaluators.layouts.formats import itemsize_of
from dse.evaluators.layouts.turns import Iteration
from dse.evaluators.layouts.whole_chip import On, alone_blocks, attending_calls, blocks
from dse.evaluators.machine.machine import of_tiles
from dse.evaluators.passes.call import Block, Call
from dse.evaluators.program.activity import Activity
from dse.evaluators.readers import reader_of
from dse.evaluators.readers.cached import asked
from dse.evaluators.readers.closed_attention import Job
from dse.evaluators.readers.price import Timed, timed
from dse.evaluators.readers.through_cache import Kept, kept
from dse.evaluators.serving.kvcache import Room, room_of
from dse.evaluators.serving.policy import most_prompts, policies
from dse.evaluators.silicon import area
from dse.evaluators.silicon.energy import dynamic
from dse.space.chip import Chip, memory_channels, memory_of
from dse.space.design import Design
from dse.space.elementwise import Array, maximum, where
from dse.space.fields import equal, replaced, told
from dse.space.layers import by_reach
from dse.space.limits import Infeasible, Limit
from dse.space.mapping import Mapping
from dse.space.remember import same
from dse.space.workload import Load

FIDELITIES = ("closed",)

ONE_BY_ONE = True

TOGETHER: tuple[str, ...] = ()

CHECKS = 20
"""Compositions at which a table's error is measured: each takes a search for slices of every operator."""

SEVERAL = 16
"""Prompts at a time for which slices are looked for, beside one by itself."""

FEWER = 4
"""Slices are looked for at its powers of requests at a time: other counts have those of one of the two beside them."""

SLICES = ("rows", "cols", "queries", "keys")
"""What is chosen where a plan leaves it open."""


def words(design: Design) -> tuple[str, ...]:
    """What stays in a systolic array, in which designs that are worked out at once may differ."""
    return () if _of(design)[0].tile.matrix.dataflow == "ce" else ("chip.tile.matrix.dataflow",)


def limits(design: Design, load: Load) -> list[Limit]:
    """Memories, with the longest request by itself and the largest iterations; and groups of tiles that divide the mesh."""
    return limits_of(*_of(design), _held(design, load))


def instances(design: Design, load: Load, fidelity: str) -> tuple[Instance, ...]:
    """Chips of each pool."""
    chip, mapping = _of(design)
    parts = [dict(here) for here, _ in _held(design, load).values()]
    free = memory_of(chip) - parts[0]["weights"] - max(part["activations"] for part in parts)
    room, found = _room(design, load), []
    for rule, batch in policies(mapping.serving):
        axes = whole_points(load, most_prompts(rule, batch, load.longest), batch)
        key = "" if several(design) else priced_by(design, load, fidelity)
        of = _pricing(design, load, fidelity, axes)
        found.append(
            Instance(partial(_seconds, of, several(design)), free, room, lambda *largest, axes=axes: axes, CHECKS, key, more=of)
        )
    return tuple(found)


def early(design: Design, load: Load) -> None:
    """Says what limits ask of prices, so that designs are priced together."""
    with said_first():
        for phase, made_of in _largest(design, load).items():
            _filled(design, load, phase, made_of)


def asks(design: Design, load: Load, fidelity: str) -> None:
    """Says what a table of prices asks for the steady state, likewise."""
    made = instances(design, load, fidelity)
    with said_first():
        balanced.asked_for(made, design, load)


def at_least(design: Design, load: Load) -> Least:
    """Chips, and what all their channels and engines take at least; a cache may have weights."""
    chip, mapping = _of(design)
    brought = memory_channels(chip) * chip.hbm.channel_bandwidth
    decode = read_weights(load.model, mapping.precision) / brought if chip.l2 is None else 0.0
    prompt = worked_prompt(load.model) / fastest(chip)
    joules = dynamic(Activity(macs=multiplied(load)), chip, itemsize_of(mapping))
    return Least(devices(design), decode=decode, prompt=prompt, lanes=lanes(mapping.serving), joules=joules)


def sure(design: Design, load: Load) -> list[Limit]:
    """Limits that need no price: main memory, and groups of tiles."""
    return limits_of(*_of(design), {phase: (of, []) for phase, of in _stored(design, load, 1).items()})


def capacity(design: Design, load: Load) -> Any:
    """Requests that main memory has room for beside the largest iterations."""
    parts, serving = [dict(of) for of in _stored(design, load, 1).values()], _of(design)[1].serving
    free = memory_of(_of(design)[0]) - parts[0]["weights"] - max(of["activations"] for of in parts)
    return at_a_time(serving, free, _room(design, load), load.longest)


def decoded(design: Design, load: Load, context: float) -> Any:
    """The price of one request's next token, which reads so many positions; more requests take no less. [s]"""
    if design.chip.l2 is not None:  # what a cache has depends on how many requests there are
        return 0.0
    of = _shared(design, load, "decode", "closed")
    found = of.layers(1) + of.head(1) + of.tokens(1, int(np.ceil(context)))
    return found[0]


def prompted(design: Design, load: Load) -> Any:
    """What a token of a prompt takes at least, by prices that a table of the steady state has of products and rows. [s]"""
    mapping = _of(design)[1]
    if _of(design)[0].l2 is not None or mapping.serving.prefill_instances:
        return 0.0
    ((rule, batch),), of = policies(mapping.serving), _shared(design, load, "prefill", "closed")
    most = most_prompts(rule, batch, load.longest)
    tokens, _, decodes, *_ = steady.coarse(lambda *_: [np.zeros(1)], load)(most, load.longest, batch, load.longest)
    known = counted.known(whole_points(load, most, batch))
    return counted.least(known, of.layers, tokens[-1] + decodes[-1])


def transfer(design: Design, load: Load) -> tuple[Room, float]:
    """Caches go by way of the host."""
    return _room(design, load).times(1 / float(_of(design)[1].serving.host)), 0.0


def holders(design: Design, load: Load) -> tuple[int, ...]:
    """Each chip has all of a cache."""
    return (1, 1)


def areas(design: Design) -> tuple[Any, Any]:
    """Of one die, and of those of all chips. [mm2]"""
    chip = _of(design)[0]
    return area.die(chip), area.total(chip) * devices(design)


def area_parts(design: Design) -> dict[str, Any]:
    """Area of one chip by block. [mm2]"""
    return area.parts(_of(design)[0])


def used(
    design: Design, load: Load, done: Done, seconds: Any, fidelity: str, peak: Callable[[], Any], spent: Array | None = None,
    hosted: Any = 0.0,
) -> dict[str, Any]:  # fmt: skip
    """Shares of what all engines, channels and links could do in the time, what a tile holds, and energy from what is done.

    `spent` is what `done` has spent, without its seconds, in the order of `SPENT`; None where it is worked out.
    """
    chip, mapping = _of(design)
    if spent is None:
        each = [(times, _iteration(design, load, made_of, fidelity)) for pool in done for times, made_of in pool]
        spent = sum((times * _spent(design, 1, of)[1:, 0] for times, of in each), start=np.zeros(len(SPENT) - 1))
    joules, memory_bytes, hop_bytes, operations = spent
    joules = joules + by_hosts(_room(design, load), load, chip, mapping.serving.prefill_instances, hosted)
    whole = devices(design) * seconds
    rows, cols, engine = chip.mesh.rows, chip.mesh.cols, chip.tile.matrix
    engines = 2.0 * rows * cols * (engine.rows * engine.cols * chip.clock)
    links = 2 * (rows * (cols - 1) + cols * (rows - 1)) * (chip.noc.word_bytes * chip.clock / chip.noc.word)
    tokens = float(load.requests.output.sum())
    return {
        "utilisation": operations / (engines * whole),
        "hbm_utilisation": memory_bytes / (memory_channels(chip) * chip.hbm.channel_bandwidth * whole),
        "noc_utilisation": where(links > 0, hop_bytes / maximum(links * whole, 1e-300), 0.0),
        "sram_used": most(nbytes for _, kinds in _held(design, load).values() for _, nbytes in kinds),
        **of_phases(chip, lambda: [(joules, seconds)], tokens, chips=devices(design), peak=peak),
    }


def watts(design: Design, load: Load, pool: int, made_of: Composition, fidelity: str) -> Any:
    """Of one design."""
    each = np.broadcast_arrays(*(np.ravel(count) for count in made_of))
    found = [_spent(design, 1, _iteration(design, load, one, fidelity))[:2, 0] for one in zip(*each, strict=True)]
    return np.array([[joules / seconds] for seconds, joules in found])


def operators(design: Design, load: Load, pool: int, times: float, made_of: Composition, fidelity: str) -> Sequence[Row]:
    """Operators of an iteration."""
    parts = _iteration(design, load, made_of, fidelity)
    machine = of_tiles(_of(design)[0])
    found = tiles.rows(Phase("", machine, tuple(parts), None, 1.0, None, sums(parts)[0], None, None), fidelity)
    return [repeated(row, times) for row in found]


def remedy(worst: Infeasible, design: Design, loads: tuple[Load, ...]) -> str:
    """In words, what would do."""
    return tiles.remedy(worst, design)


SPENT = ("seconds", "energy", "memory bytes", "hop bytes", "operations")
"""What parts of an iteration take, in units s, J, B, B x hop and FLOP: an axis of that length, before one of designs."""

PARTS = 256
"""Parts of designs and phases whose shares of prices are kept."""

ROOM = "chip.hbm.capacity"
"""What limits alone depend on, where no cache is in front of it."""


class _Prices(NamedTuple):
    """What parts of an iteration spend, each shape priced once; shapes (SPENT, designs).

    Attributes:
        layers: all but the head and what prompts and decodes have by themselves, of so many tokens.
        head: of so many requests that get a token.
        prompts: attention in all layers, and what else is of prompts alone, of (requests, queries, keys, lengths of two prompts
            whose slices are tried).
        tokens: likewise of one token of each, of (requests, keys).
        filled: of an iteration, local memory of a tile in use, shape (KINDS, designs). [B]
    """

    layers: Callable[[int], Array]
    head: Callable[[int], Array]
    prompts: Callable[[int, int, int, int, int], Array]
    tokens: Callable[[int, int], Array]
    filled: Callable[[Composition], Array]


def _seconds(spent: Callable[..., Array], several: int, *counts: Array) -> Array:
    """Seconds alone of what compositions spend; of one design, without its axis."""
    found = spent(*counts)[..., 0, :]
    return found if several else found[..., 0]


def _pricing(design: Design, load: Load, fidelity: str, axes: Sequence[Array]) -> Callable[..., Array]:
    """What compositions spend, by tables of a part each: attention, and what depends on tokens or requests alone.

    Counts broadcast together; what is found has axes of `SPENT` and of designs more.
    """
    mapping = _of(design)[1]
    lengths, first = axes[0][1:], _shared(design, load, "prefill", fidelity)
    then = first if equal(mapping.prefill, mapping.decode) else _shared(design, load, "decode", fidelity)
    between = partial(counted.between, counted.known(axes))

    def pricing(prompt: Array, prompt_context: Array, decodes: Array, context: Array, spilled: Array) -> Array:
        new, at_once = np.rint(prompt), np.rint(decodes)
        count, own, past = alike(np.maximum(new, 1.0), prompt_context)
        keys = np.rint(own) + np.rint(past)
        cached = np.ceil(np.maximum(context, 1.0))
        near, long = (_nearest(lengths, of) for of in (np.rint(own), keys))
        prompts = each(first.prompts, count, np.rint(own), keys, near, long)
        decoding, some = (at_once > 0)[..., None, None], (new > 0)[..., None, None]
        tokens = np.where(decoding, each(then.tokens, at_once, cached), 0.0)
        alone = np.where(decoding, each(then.layers, at_once) + each(then.head, at_once) + tokens, 0.0)
        beside = tokens if first is then else np.where(decoding, each(first.tokens, at_once, cached), 0.0)
        # compositions that a table is compared with are priced as they are
        of = each if prompt.ndim == 1 else between
        mixed = of(first.layers, new + at_once) + of(first.head, count + at_once) + prompts + beside
        return np.where(some, mixed, np.where(decoding, alone, np.nan))

    return pricing


def _nearest(lengths: Array, tokens: Array) -> Array:
    """Of some lengths, those in whose ratio tokens are the nearest."""
    places = np.searchsorted(np.sqrt(lengths[1:] * lengths[:-1]), np.maximum(tokens, 1.0))
    return np.asarray(lengths[places])


@partial(same, few=PARTS)
def _shared(design: Design, load: Load, phase: str, fidelity: str) -> _Prices:
    """Those of several designs, each priced once however it serves requests: products and rows once for all attention."""
    apart, whole = _known(design, load, phase, fidelity, "attention."), _known(design, load, phase, fidelity)
    largest = _known(design, load, phase, fidelity, whats=len(KINDS))
    return _Prices(
        lambda *counts: apart.of(("layers", counts), lambda of: of.layers(*counts)),
        lambda *counts: apart.of(("head", counts), lambda of: of.head(*counts)),
        lambda *counts: whole.of(("prompts", counts), lambda of: of.prompts(*counts)),
        lambda *counts: whole.of(("tokens", counts), lambda of: of.tokens(*counts)),
        lambda *counts: largest.of(("filled", counts), lambda of: of.filled(*counts)),
    )


def _known(
    design: Design, load: Load, phase: str, fidelity: str, without: str = "mapping.serving.", whats: int = len(SPENT)
) -> Shared[_Prices]:
    """Designs that are priced for a phase, whatever is said below an address of its plan."""
    (other,) = {"prefill", "decode"} - {phase}
    # what a cache has depends on how many requests there are
    cached = any(_kept(design, load).values())
    elsewhere = () if cached else (*HERE, ROOM, f"mapping.{other}.", f"mapping.{phase}.{without}")
    beside = told(load.model), phase, fidelity
    return Shared(design, lambda some: _prices(some, load, phase, fidelity), elsewhere, *beside, whats=whats)


def _prices(design: Design, load: Load, phase: str, fidelity: str) -> _Prices:
    (chip, mapping), model = _of(design), load.model
    itemsize_of(mapping)  # refuses what tiles do not take
    plan = getattr(mapping, phase)
    on = On(model, chip, plan, mapping.precision, {}, _kept(design, load)[phase])
    machine, reader = of_tiles(chip), reader_of(fidelity)

    def spent(of: Sequence[Block]) -> Array:
        return _spent(design, designs, timed(of, machine, reader))

    forms, designs = {of: transformer(model, _step(of, 1, 1)) for of in ("prefill", "decode")}, max(several(design), 1)
    two = any(of.alone for part in forms["decode"] for of in part.operators)

    def attending(form: str, some: Attend, cuts: Sequence[On]) -> Array:
        """Each call as it is quickest."""
        every = list(zip(*(attending_calls(forms[form], some, of) for of in cuts), strict=True))
        each = [counted.quickest([spent_on(times, call) for times, call in calls]) for calls in every]
        return np.asarray(np.sum(each, axis=0))

    def spent_on(times: float, call: Call) -> Array:
        cost = reader.job(call.job)
        assert cost.activity is not None
        return _together_spent(design, designs, times * cost.seconds, cost.activity * times, times * call.flop)

    def alone(of: Iteration) -> Array | float:
        return spent(alone_blocks(of.step(), on)) if two else 0.0

    def cut(form: str, some: Attend) -> list[On]:
        """As the slices are that suit some requests."""
        calls = attending_calls(forms[form], some, on)
        found = [of.tiling for of in (one_by_one(asked(of.job))[0] for _, of in calls) if isinstance(of, Job)]
        names = (*SLICES, *(("splits",) if attention(plan.attention.dataflow).split else ()))
        changes = [{f"attention.{name}": getattr(of, name) for name in names} for of in found]
        return [on._replace(plan=replaced(plan, some)) for some in changes]

    @cache
    def sliced(length: int) -> list[On]:
        return [of for requests in (1, SEVERAL) for of in cut("prefill", chunks(model, requests, length, length))]

    @cache
    def decoded(requests: int, keys: int) -> list[On]:
        return cut("decode", newest(model, requests, float(keys)))

    @cache
    def others(tokens: int) -> Array:
        return spent([of for of in blocks(_step(phase, tokens, 1), nobody, on) if of.name != "head"])

    @cache
    def head(requests: int) -> Array:
        return spent([of for of in blocks(_step(phase, 1, requests), nobody, on) if of.name == "head"])

    @cache
    def prompts(requests: int, queries: int, keys: int, length: int, longer: int) -> Array:
        # a chunk has few queries and, after what is before it, many keys: slices of either may suit it
        cuts = sliced(length) + (sliced(longer) if longer > length else [])
        found = attending("prefill", chunks(model, requests, queries, keys), cuts)
        return found + alone(Iteration(model, "prefill", phase, requests, queries, keys - queries, 0, 0))

    @cache
    def newest_alone(requests: int) -> Array | float:
        return alone(Iteration(model, "decode", phase, 0, 0, 0, requests, 1.0))

    @cache
    def tokens(requests: int, keys: int) -> Array:
        fewer = FEWER ** int(np.log(requests) / np.log(FEWER) + 1e-9)
        cuts = [of for many in sorted({fewer, requests if requests == fewer else FEWER * fewer}) for of in decoded(many, keys)]
        return attending("decode", newest(model, requests, float(keys)), cuts) + newest_alone(requests)

    def full(made_of: Composition) -> Array:
        kinds = filled(_blocks(design, load, made_of))
        return np.array([np.broadcast_to(nbytes, designs) for _, nbytes in kinds])

    return _Prices(others, head, prompts, tokens, full)


def _spent(design: Design, designs: int, of: list[Timed]) -> Array:
    """What blocks spend, shape (SPENT, designs)."""
    return _together_spent(design, designs, *sums(of))


def _together_spent(design: Design, designs: int, seconds: Any, activity: Activity, operations: float) -> Array:
    chip, mapping = _of(design)
    joules = dynamic(activity, chip, itemsize_of(mapping))
    found = (seconds, joules, activity.memory_bytes, activity.hop_bytes, operations)
    return np.array([np.broadcast_to(value, designs) for value in found])


def _iteration(design: Design, load: Load, made_of: Composition, fidelity: str) -> list[Timed]:
    """Blocks of a mean iteration, and what they take."""
    return timed(_blocks(design, load, made_of), of_tiles(_of(design)[0]), reader_of(fidelity))


def _blocks(design: Design, load: Load, made_of: Composition) -> list[Block]:
    """Of a mean iteration; where its decodes are no whole number, of those beside it in their shares."""
    (chip, mapping), model = _of(design), load.model
    prompt, prompt_context, decodes, context = made_of[:4]
    found: list[Block] = []
    plain = {
        phase: On(model, chip, getattr(mapping, phase), mapping.precision, {}, of) for phase, of in _kept(design, load).items()
    }
    count, own, past, low = 0, 0, 0, int(decodes)
    if prompt > 0:
        some = alike(np.array([max(prompt, 1.0)]), np.array([prompt_context]))
        count, own, past = (int(np.rint(value[0])) for value in some)
    for at_once, share in ((low, 1 - (decodes - low)), (low + 1, decodes - low)):
        if share == 0 or not (count or at_once):
            continue
        phase = "prefill" if count else "decode"
        (turn,) = Iteration(model, phase, phase, count, own, past, at_once, float(context)).turns()
        found += [of._replace(times=of.times * share) for of in blocks(turn.at, turn.attend, plain[phase])]
    return found


def _step(phase: str, tokens: float, requests: float) -> Step:
    """Counts of an iteration whose attention is said by itself."""
    return Step(phase, float(tokens), float(requests), 0.0, 0.0)


@same
def _held(design: Design, load: Load) -> dict[str, Held]:
    """By phase, what memories hold in the largest iteration, and for the longest request."""
    largest = _largest(design, load)
    return {phase: (of, _filled(design, load, phase, largest[phase])) for phase, of in _stored(design, load, 1).items()}


def _largest(design: Design, load: Load) -> dict[str, Composition]:
    """By phase, the iteration that holds most."""
    prompts, longest = _prompt_tokens(design, load), load.longest - 1
    whole, batch = min(prompts, longest), float(int(_of(design)[1].serving.batch))
    return {"prefill": (prompts, (whole + 1) / 2, 0.0, 0.0), "decode": (0.0, 0.0, batch, float(longest))}


def _filled(design: Design, load: Load, phase: str, made_of: Composition) -> list[tuple[str, Any]]:
    """By kind of operator, local memory of a tile in use in an iteration. [B]"""
    found = _shared(design, load, phase, "closed").filled(made_of)
    return list(zip(KINDS, found if several(design) else found[:, 0].tolist(), strict=True))


def _prompt_tokens(design: Design, load: Load) -> int:
    """The most of an iteration."""
    serving = _of(design)[1].serving
    return max(most_prompts(rule, batch, load.longest) for rule, batch in policies(serving))


def _stored(design: Design, load: Load, requests: int) -> dict[str, tuple[tuple[str, float], ...]]:
    """By phase, bytes in HBM in the largest iteration, with so many of the longest requests."""
    mapping, longest = _of(design)[1], load.longest - 1
    batch, mixed = int(mapping.serving.batch), policies(mapping.serving)[-1][0].mixed
    cached = by_reach(load.model, lambda reach: float(reach.kept(longest)) * requests)
    tokens = {"prefill": _prompt_tokens(design, load) + batch * mixed, "decode": batch}
    return {
        phase: held(load.model, _step(phase, count, batch), cached, float(requests), mapping.precision)
        for phase, count in tokens.items()
    }


def _kept(design: Design, load: Load) -> dict[str, Kept | None]:
    """By phase, what a cache in front of main memory has, as many requests running as may and each of the longest."""
    chip, mapping = _of(design)
    if chip.l2 is None:
        return dict.fromkeys(("prefill", "decode"))
    stored = _stored(design, load, int(mapping.serving.batch))
    return {phase: kept(chip, of) for phase, of in stored.items()}


def _room(design: Design, load: Load) -> Room:
    """What a request has in HBM."""
    precision = _of(design)[1].precision

    def nbytes(cached: Any, sequences: float) -> float:
        found = dict(held(load.model, _step("decode", 1, 1), cached, sequences, precision))
        return found["KV cache"] + found.get("states", 0.0)

    return room_of(load.model, nbytes)


def devices(design: Design) -> Any:
    """Chips of all instances."""
    serving = _of(design)[1].serving
    return serving.instances + serving.prefill_instances


def _of(design: Design) -> tuple[Chip, Mapping]:
    return design.chip, design.mapping

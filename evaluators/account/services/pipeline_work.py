"""What pipelines of groups of tiles have done that serve requests: energy, and shares of what the chip could do.

Leaves are of one design, or of several with the same words, of shape (designs,).
"""

from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np

from dse.evaluators.account.passes import Staged
from dse.evaluators.account.played import peak
from dse.evaluators.account.played.served import Mean
from dse.evaluators.account.power import of_phases
from dse.evaluators.account.services.fleet import Pipelines, all_cores, decode_cores, iteration, room_of_request
from dse.evaluators.layouts.kv_transfer import Ways
from dse.evaluators.program.activity import Activity
from dse.evaluators.readers.price import Reader
from dse.evaluators.silicon.energy import dynamic
from dse.space.chip import decoding, memory_channels
from dse.space.design import Design
from dse.space.elementwise import Array, maximum, where
from dse.space.workload import Load


def worked(
    design: Design, load: Load, fleet: tuple[Pipelines, ...], reader: Reader, means: Sequence[Sequence[Mean]],
    fullest: Sequence[peak.Fullest], between: Ways | None, gone: Array, span: Any, *, steady: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """What has been used, and the energy of it.

    Args:
        design, load, fleet, reader: what serves.
        means: iterations of each pool.
        fullest: what each has under way at once.
        between: how caches are moved, where they are.
        gone: requests whose caches were, shape (requests,).
        span: of the run. [s]
        steady: whether the fullest iterations are the mean ones.
    """
    spent: Any = 0.0
    moved: Any = 0.0
    operations: Any = 0.0
    done, made = Activity(), dict[tuple[int, bool], Staged]()
    for place, (of, some) in enumerate(zip(fleet, means, strict=True)):
        for mean in some:
            at = made[place, mean.prompts] = mean_iteration(load, of, reader, mean, _crowding(between, place))
            work = at.activity * mean.times
            done, spent = done + work, spent + dynamic(work, of.chip, of.width)
            operations = operations + mean.times * sum(call.flop * times for call, _, times, _ in at.calls())
    if between is not None:
        caches = moving(design, load, fleet, between, gone)
        done, moved = done + caches, dynamic(caches, design.chip)

    def mean_watts(place: int, made_of: peak.Counts) -> Any:
        return np.atleast_2d(_watts(made[place, bool(np.any(made_of[0]))], fleet[place]))

    def most() -> Any:
        """Caches are on their way all the time, in the mean."""
        power = mean_watts if steady else watts(load, fleet, reader, between)
        return _flat(peak.peak(fullest, power)) + _flat(moved / span)

    tokens, apart = float(load.requests.output.sum()), decode_cores(design)
    return _used(design, done, operations, span) | of_phases(
        design.chip, lambda: [(_flat(spent + moved), span)], tokens, decode_cores=apart, peak=most
    )


def moving(design: Design, load: Load, fleet: tuple[Pipelines, ...], between: Ways, gone: Array) -> Activity:
    """Caches of some requests, shape (requests,), on their way: from memory to memory, but for what cores have themselves."""
    plan, away = fleet[-1].holds, sum(1 - of.held.kv_here for of in fleet)
    sent = room_of_request(design, load, plan).altogether(load.requests.prompt[gone]) * plan.tp
    return Activity(sent_bytes=sent, hop_bytes=sent * between.hops, memory_bytes=sent * away)


def watts(load: Load, fleet: tuple[Pipelines, ...], reader: Reader, between: Ways | None) -> peak.Watts:
    """Power of what iterations do. [W]"""

    def of_iterations(place: int, made_of: peak.Counts) -> Any:
        of = fleet[place]
        counts = (*made_of, _crowding(between, place))
        return _watts(iteration(load, of, reader, "prefill" if np.any(made_of[0]) else "decode", *counts), of)

    return of_iterations


def _crowding(between: Ways | None, place: int) -> Any:
    """How many times as long caches on their way make the messages of a pool."""
    return 1.0 if between is None else (between.prefill, between.decode)[place]


def _watts(at: Staged, of: Pipelines) -> Any:
    return dynamic(at.activity, of.chip, of.width) / at.seconds


def mean_iteration(load: Load, of: Pipelines, reader: Reader, mean: Mean, crowding: Any = 1.0) -> Staged:
    """The mean one of a kind."""
    prompt, prompt_context, decodes, context, spilled = mean.composition
    phase = "prefill" if mean.prompts else "decode"
    return iteration(load, of, reader, phase, prompt, prompt_context, decodes, context, spilled, crowding)


def fullest_core(fleet: tuple[Pipelines, ...]) -> Any:
    """Local memory in use where most is. [B]"""
    return _flat(reduce(maximum, (of.held.sram for of in fleet)))


def _used(design: Design, done: Activity, operations: Any, seconds: Any) -> dict[str, Any]:
    """Shares of what all of the chip's engines, channels and links could do in the time; idle cores have theirs."""
    chip, cores = design.chip, all_cores(design)
    decode = decode_cores(design)
    engines: Any = 0.0
    channels: Any = 0.0
    for of, count in ((chip, cores - decode), (decoding(chip), decode)):
        engines = engines + count * 2 * (of.tile.matrix.rows * of.tile.matrix.cols * of.clock)
        channels = channels + count / cores * (memory_channels(of) * of.hbm.channel_bandwidth)
    rows, cols = chip.mesh.rows * 1.0, chip.mesh.cols * 1.0
    links = 2 * (rows * (cols - 1) + cols * (rows - 1)) * (chip.noc.word_bytes * chip.clock / chip.noc.word)
    return {
        "utilisation": _flat(operations / (engines * seconds)),
        "hbm_utilisation": _flat(done.memory_bytes / (channels * seconds)),
        "noc_utilisation": _flat(where(links > 0, done.hop_bytes / (maximum(links, 1e-300) * seconds), 0.0)),
    }


def _flat(values: Any) -> Any:
    """Of one design as a float, of several of shape (designs,)."""
    return np.ravel(values) if np.size(values) > 1 else float(np.squeeze(values))

"""Steady-state replay of prompts on single-stage instances, compiled.

The module does what `prefill_replay.replay_prefill` does, where no iteration is in another stage. An instance has one
lane, so at most one iteration is under way, and no request is delayed by another lane's prompts. The state of an
instance stays in registers. Decoding requests leave in the order of last tokens: requests whose last token comes after
all others' are a list, as all are where outputs are equal, and the rest a heap.

Throughout: of is a `lane_clocks.ReplayPool`, room a `ReplayWorkspace`, i an instance, t an instant.
"""

# mypy: disable-error-code="no-untyped-def"

import math
from typing import NamedTuple

import numpy as np

from dse.evaluators.machine.compile_cache import inlined_function
from dse.evaluators.serving.lane_clocks import (
    NEAR,
    PLENTY,
    append_request,
    count_gaps,
    decode_pass_seconds,
    pop_heap,
    prefill_pass_seconds,
    push_heap,
)

INSTANCE = np.dtype(
    [
        ("held", "i8"),  # requests that have begun here, and have not left
        ("head", "i8"),  # first in the queue, -1 for none
        ("tail", "i8"),  # last in the queue
        ("queued", "i8"),
        ("prompts", "i8"),  # requests that prefill
        ("decodes", "i8"),  # requests that decode
        ("older", "i8"),  # those of them that wait for a token since `last`,
        ("fresh", "i8"),  # and since their first one, of those who do not get one in each pass
        ("tokens", "i8"),  # of a request that has decoded here at all times
        ("top", "i8"),  # of these, when the next one leaves
        ("listed", "i8"),  # first in the list of those who leave, -1 for none
        ("latest", "i8"),  # last in it
        ("heaped", "i8"),  # in the heap
        ("pace", "f8"),  # a pass of the decodes alone [s]
        ("end", "f8"),  # of the last pass that is known
        ("last", "f8"),
        ("leaves", "f8"),  # before which nobody who decodes leaves [s]
        ("at", "f8"),  # when it tries to start passes again; infinite for not before one ends
        ("next", "f8"),  # before which nothing happens [s]
        ("flying", "?"),  # whether a pass with prompts is under way
        ("due", "?"),  # whether a pass has ended, or somebody has come, at the instant `at`
    ],
    align=True,
)


class InstanceLane(NamedTuple):
    """State of an instance that its iterations change; fields as in `INSTANCE`."""

    held: int
    tokens: int
    end: float
    last: float
    older: int
    fresh: int
    decodes: int
    top: int
    listed: int
    latest: int
    heaped: int
    pace: float


class WaitingPrompts(NamedTuple):
    """Waiting prompts of an instance; fields as in `INSTANCE`."""

    head: int
    queued: int
    prompts: int


@inlined_function
def replay_single_stage(price, pool, share, nearest, load, steady, spilled, room):
    """Replay a load's prompts on single-stage instances; `share` is that of an iteration in the stage."""
    instances, turn = pool.instances, 0
    for i in range(instances):
        instance = room.alone[i]
        instance.held = instance.queued = instance.prompts = instance.decodes = instance.older = instance.fresh = (
            instance.tokens
        ) = instance.heaped = 0
        instance.head = instance.tail = instance.listed = instance.latest = -1
        instance.flying = instance.due = False
        instance.pace = instance.last = 0.0
        instance.top, instance.end = PLENTY, -math.inf
        instance.leaves = instance.at = instance.next = math.inf
    many, feeds = len(load.arrival), instances == 1
    r = 0
    while r <= many:
        t, best, every = load.arrival[r] if r < many else math.inf, 0 if nearest else turn, nearest or r == many
        for i in range(0 if every else turn, instances if every else turn + 1):
            instance = room.alone[i]
            if instance.next <= t or feeds:
                r = _advance(price, pool, share, load, steady, spilled, room, i, t, feeds, r)
            if instance.held + instance.queued < room.alone[best].held + room.alone[best].queued:
                best = i
        if r == many:
            return
        turn = turn + 1 if turn + 1 < instances else 0
        instance = room.alone[best]
        _come(room, r)
        append_request(instance, room.behind, r)
        instance.at, instance.due, instance.next = t, True, t
        r += 1


@inlined_function
def _come(room, r):
    """Nothing is done of a request."""
    room.done[r] = 0
    room.first[r] = room.begun[r] = room.last[r] = math.nan


@inlined_function
def _advance(price, pool, share, load, steady, spilled, room, i, until, feeds, r):
    """Plays an instance up to an instant, but for what starts then; who leaves by then is gone.

    The only one is fed with all requests from one on, and played to its end. Returns the request that comes next.
    """
    kept = room.alone[i]
    now = InstanceLane(
        kept.held, kept.tokens, kept.end, kept.last, kept.older, kept.fresh, kept.decodes, kept.top, kept.listed, kept.latest,
        kept.heaped, kept.pace,
    )  # fmt: skip
    who, flying, due, leaves, at = (
        WaitingPrompts(kept.head, kept.queued, kept.prompts),
        kept.flying,
        kept.due,
        kept.leaves,
        kept.at,
    )
    tail, many = kept.tail, len(load.arrival)
    while True:
        t, over = at, due and at >= until
        if not due:
            if flying:
                t = min(t, now.end)
            over = t > until or t == math.inf
            if not over:
                if flying and now.end <= t:
                    flying = False
                    now, prompts = _finished(price, pool, load, steady, spilled, room, i, now, who.prompts, t)
                    who = WaitingPrompts(who.head, who.queued, prompts)
                    leaves = min(leaves, _leaving(now))
                at, due, over = t, True, t >= until
        if over:
            t = until
        if (over or not flying) and leaves <= t:
            now = _caught(price, pool, steady, spilled, room, i, now, t)
            leaves = _leaving(now)
        if over:
            if not feeds or r == many:
                break
            _come(room, r)
            room.behind[r] = -1
            if who.head < 0:
                who = WaitingPrompts(r, who.queued + 1, who.prompts)
            else:
                room.behind[tail] = r
                who = WaitingPrompts(who.head, who.queued + 1, who.prompts)
            at, due, tail, r = until, True, r, r + 1
            until = load.arrival[r] if r < many else math.inf
            continue
        due, at = False, math.inf
        if not flying and who.prompts + who.queued > 0:
            now, who, flying, at = _started(price, pool, share, load, steady, spilled, room, i, now, who, t)
    instance = room.alone[i]
    instance.held, instance.tokens, instance.end, instance.last, instance.older, instance.fresh = (
        now.held,
        now.tokens,
        now.end,
        now.last,
        now.older,
        now.fresh,
    )
    instance.decodes, instance.top, instance.listed, instance.latest, instance.heaped = (
        now.decodes,
        now.top,
        now.listed,
        now.latest,
        now.heaped,
    )
    instance.pace, instance.head, instance.queued, instance.prompts = now.pace, who.head, who.queued, who.prompts
    instance.flying, instance.due, instance.leaves, instance.at = flying, due, leaves, at
    instance.next = min(min(at, leaves), now.end) if flying else min(at, leaves)
    return r


@inlined_function
def _leaving(now):
    """Time before which no request leaves, as in `lane_clocks.next_departure`. [s]"""
    return now.end + (now.top - now.tokens - 0.5) * now.pace if now.decodes > 0 else math.inf


@inlined_function
def _caught(price, pool, steady, spilled, room, i, now, t):
    """Continue until the last departure by an instant."""
    while now.decodes > 0 and now.end <= t:
        many = now.top - now.tokens
        if now.end + many * now.pace > t:
            break
        now = _passed(price, pool, steady, spilled, room, i, now, many)
    return now


@inlined_function
def _passed(price, pool, steady, spilled, room, i, now, many):
    """Count decode iterations as done, with token gaps as in `lane_clocks.count_passes`, and finish complete requests."""
    tokens, end, older, fresh, each = now.tokens, now.end, now.older, now.fresh, now.pace
    if many > 0:
        if len(room.gaps) > 0:
            if older > 0:
                count_gaps(room, end + each - now.last, older)
            for place in range(fresh):
                count_gaps(room, end + each - room.since[i, place], 1)
            others = now.decodes * many - older - fresh
            if others > 0:
                count_gaps(room, each, others)
        tokens, end, older, fresh = tokens + many, end + many * each, 0, 0
    decodes, top, listed, heaped = _left(room, i, tokens, end, now.decodes, now.top, now.listed, now.heaped)
    if decodes < now.decodes:
        each = _pace(price, pool, steady, spilled, room, decodes)
    held = now.held + decodes - now.decodes
    return InstanceLane(held, tokens, end, now.last, older, fresh, decodes, top, listed, now.latest, heaped, each)


@inlined_function
def _pace(price, pool, steady, spilled, room, decodes):
    """Time of a decode-only iteration, 0 without decodes. [s]"""
    return decode_pass_seconds(price, pool, steady, spilled, room, decodes) if decodes > 0 else 0.0


@inlined_function
def _started(price, pool, share, load, steady, spilled, room, i, now, who, t):
    """Start an iteration with prompts if possible; returns whether one started, and when it may."""
    most, at, flying = min(pool.batch, now.held + who.queued), math.inf, False
    stuck = goes = False
    if now.end > t:
        if who.prompts == 0:
            at = now.end
    elif who.prompts > 0 or (now.decodes < most and now.held < pool.batch):
        goes = True
        if now.decodes > 0 and now.end < t:  # in a pass of decodes
            whole = max(0.0, np.ceil((t - now.end) / now.pace - NEAR))
            end = now.end + whole * now.pace
            if end > t and who.prompts == 0:
                at, goes = end, False
            else:
                many = int(whole)
                if end > t:  # it has stood before the stage for the last part of one
                    many -= many > 0
                if many > 0:
                    now = _passed(price, pool, steady, spilled, room, i, now, many)
    if goes:
        beside = now.decodes if pool.mixed else 0
        prompt, pairs, past, held, who = _formed(pool, load, room, i, most, beside, now, who, t)
        end, last, older = now.end, now.last, now.older
        stuck = prompt == 0
        if not stuck:
            if older + now.fresh == 0:
                last, older = end, now.decodes
            end, flying = t + prefill_pass_seconds(price, steady, spilled, room, prompt, pairs, past, beside) * share, True
        now = InstanceLane(
            held, now.tokens, end, last, older, now.fresh, now.decodes, now.top, now.listed, now.latest, now.heaped, now.pace
        )
    if (stuck or who.queued > 0) and now.decodes > 0 and not flying:  # there may be room when somebody leaves
        at = min(at, max(t, now.end + (now.top - now.tokens) * now.pace))
    return now, who, flying, at


@inlined_function
def _finished(price, pool, load, steady, spilled, room, i, now, prompts, t):
    """Finish an iteration: decodes get a token, and completed prompts start decoding or leave."""
    tokens, older, fresh, decodes, top, listed = now.tokens, now.older, now.fresh, now.decodes, now.top, now.listed
    latest, heaped, held, each, running, keep = now.latest, now.heaped, now.held, now.pace, room.running[i], 0
    if older > 0 and pool.mixed:
        if len(room.gaps) > 0:
            count_gaps(room, t - now.last, older)
        tokens, older = tokens + 1, 0
        decodes, top, listed, heaped = _left(room, i, tokens, now.end, decodes, top, listed, heaped)
        held += decodes - now.decodes
    before = decodes
    for place in range(prompts):
        r = running[place]
        room.done[r] += room.share[r]
        room.share[r] = 0
        if room.done[r] < load.prompt[r]:
            running[keep] = r
            keep += 1
            continue
        room.first[r] = room.last[r] = t
        if not (pool.decodes and load.further[r] > 0):
            held -= 1
            continue
        decodes += 1
        if not (pool.mixed and pool.prefills):
            room.since[i, fresh] = t
            fresh += 1
        token = tokens + load.further[r]
        top = min(top, token)
        if listed >= 0 and token < room.share[latest]:
            push_heap(room.leaving[i], heaped, token, r)
            heaped += 1
            continue
        room.share[r], room.behind[r] = token, -1
        if listed < 0:
            listed = r
        else:
            room.behind[latest] = r
        latest = r
    if decodes > before or before < now.decodes:
        each = _pace(price, pool, steady, spilled, room, decodes)
    return InstanceLane(held, tokens, now.end, now.last, older, fresh, decodes, top, listed, latest, heaped, each), keep


@inlined_function
def _formed(pool, load, room, i, most, beside, now, who, t):
    """Prompts of an iteration, as the budget allows, as in `replay_prefill`, and the admitted requests."""
    running, held, decodes, head, queued, prompts = room.running[i], now.held, now.decodes, who.head, who.queued, who.prompts
    budget, chunks, longest = pool.tokens, PLENTY, PLENTY
    if pool.unit > 0:
        budget, chunks = PLENTY, (pool.tokens - beside) // pool.unit
    elif pool.chunked:
        budget -= beside
    if pool.chunk > 0:
        longest = pool.chunk
    prompt = pairs = past = 0.0
    for place in range(prompts):
        if budget <= 0 or chunks <= 0:
            break
        r = running[place]
        part = min(load.prompt[r] - room.done[r], budget, longest)
        room.share[r] = part
        prompt += part
        pairs += part * room.done[r] + part * (part + 1) / 2
        past += room.done[r]
        budget -= part
        chunks -= 1
    while (
        head >= 0 and prompts + decodes < most and held < pool.batch
        and budget > 0 and chunks > 0 and prompts < room.running.shape[1]
    ):  # fmt: skip
        r = head
        part = load.prompt[r]
        if pool.chunked:
            part = min(part, budget, longest)
        elif part > budget and prompt > 0:
            break
        head = room.behind[r]
        queued -= 1
        held += 1
        running[prompts] = r
        prompts += 1
        room.begun[r], room.share[r] = t, part
        prompt += part
        pairs += part * (part + 1) / 2
        budget -= part
        chunks -= 1
    return prompt, pairs, past, held, WaitingPrompts(head, queued, prompts)


@inlined_function
def _left(room, i, tokens, end, decodes, top, listed, heaped):
    """Release requests with all tokens after an iteration: remaining decodes, next departure, list and heap."""
    while decodes > 0 and top <= tokens:
        if listed >= 0 and room.share[listed] == top:
            r = listed
            listed = room.behind[r]
        else:
            heaped -= 1
            r = pop_heap(room.leaving[i], heaped)
        room.last[r] = end
        decodes -= 1
        top = room.share[listed] if listed >= 0 else PLENTY
        if heaped > 0:
            top = min(top, room.leaving[i, 0].token)
    return decodes, top, listed, heaped

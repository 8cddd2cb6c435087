"""Prompts of a load played on instances of one stage, compiled: `arrivals.played` where nothing goes round.

An instance has one lane, so that a pass is under way or none is, and nobody stands behind another's prompts. What an instance
is at stays in registers while it is played. Who decodes leaves in the order of last tokens: requests whose last token comes
after all others' are a list, as all are where outputs are alike, and the rest a heap.

Throughout: of is a `clocks.Station`, room an `arrivals.Room`, i an instance, t an instant.
"""

# mypy: disable-error-code="no-untyped-def"

import math

import numpy as np

from dse.evaluators.machine.compile_cache import apart, piece
from dse.evaluators.serving.clocks import NEAR, PLENTY, gap, pace, priced_once

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
        ("flying", "?"),  # whether a pass with prompts is under way
        ("due", "?"),  # whether a pass has ended, or somebody has come, at the instant `at`
        ("pace", "f8"),  # a pass of the decodes alone [s]
        ("end", "f8"),  # of the last pass that is known
        ("last", "f8"),
        ("leaves", "f8"),  # before which nobody who decodes leaves [s]
        ("at", "f8"),  # when it tries to start passes again; infinite for not before one ends
        ("next", "f8"),  # before which nothing happens [s]
    ]
)


@piece
def played_alone(price, of, share, nearest, load, steady, spilled, room):
    """As `arrivals.played`; `share` is that of a pass in the one stage."""
    instances, turn = of.instances, 0
    for i in range(instances):
        here = room.alone[i]
        here.held = here.queued = here.prompts = here.decodes = here.older = here.fresh = here.tokens = here.heaped = 0
        here.head = here.tail = here.listed = here.latest = -1
        here.flying = here.due = False
        here.pace = here.last = 0.0
        here.top, here.end = PLENTY, -math.inf
        here.leaves = here.at = here.next = math.inf
    for r in range(len(load.arrival) + 1):
        end = r == len(load.arrival)
        t, best, every = math.inf if end else load.arrival[r], 0 if nearest else turn, nearest or end
        for i in range(0 if every else turn, instances if every else turn + 1):
            here = room.alone[i]
            if here.next <= t:
                _advance(price, of, share, load, steady, spilled, room, i, t)
            if here.held + here.queued < room.alone[best].held + room.alone[best].queued:
                best = i
        if end:
            return
        turn = turn + 1 if turn + 1 < instances else 0
        here = room.alone[best]
        room.done[r] = 0
        room.first[r] = room.begun[r] = room.last[r] = math.nan
        room.behind[r] = -1
        if here.head < 0:
            here.head = r
        else:
            room.behind[here.tail] = r
        here.tail = r
        here.queued += 1
        here.at, here.due, here.next = t, True, t


@piece
def _advance(price, of, share, load, steady, spilled, room, i, until):
    """Plays an instance up to an instant, but for what starts then; who leaves by then is gone."""
    kept = room.alone[i]
    held, head, queued, prompts, decodes = kept.held, kept.head, kept.queued, kept.prompts, kept.decodes
    older, fresh, tokens, top, listed = kept.older, kept.fresh, kept.tokens, kept.top, kept.listed
    latest, heaped, flying, due, each = kept.latest, kept.heaped, kept.flying, kept.due, kept.pace
    end, last, leaves, at = kept.end, kept.last, kept.leaves, kept.at
    over = False
    while True:
        t = at
        if due and at >= until:
            over, t = True, until
        if not over and not due:
            if flying:
                t = min(t, end)
            if t > until or t == math.inf:
                over, t = True, until
        if over or (due and not flying):
            while decodes > 0 and leaves <= t and end <= t:  # passes until one leaves who does by then
                few = top - tokens
                if end + few * each > t:
                    break
                if few > 0:
                    _counted(room, i, few, each, end, last, older, fresh, decodes)
                    tokens, end, older, fresh = tokens + few, end + few * each, 0, 0
                before = decodes
                decodes, top, listed, heaped = _left(room, i, tokens, end, decodes, top, listed, heaped)
                held += decodes - before
                if decodes < before:
                    each = pace(price, of, steady, spilled, room, decodes) if decodes > 0 else 0.0
            if leaves <= t:
                leaves = end + (top - tokens - 0.5) * each if decodes > 0 else math.inf
        if over:
            break
        if not due:  # a pass has ended, or it is time
            if flying and end <= t:
                flying, before = False, decodes
                if older > 0 and of.mixed:
                    gap(room, t - last, older)
                    tokens, older = tokens + 1, 0
                    decodes, top, listed, heaped = _left(room, i, tokens, end, decodes, top, listed, heaped)
                    held += decodes - before
                had = before
                before = decodes
                keep, held, decodes, fresh, top, listed, latest, heaped = _booked(
                    of, load, room, i, t, prompts, held, decodes, fresh, tokens, top, listed, latest, heaped
                )
                prompts = keep
                if decodes > before or before < had:
                    each = pace(price, of, steady, spilled, room, decodes) if decodes > 0 else 0.0
                leaves = min(leaves, end + (top - tokens - 0.5) * each if decodes > 0 else math.inf)
            at, due = t, True
            continue
        due, at = False, math.inf
        if flying or prompts + queued == 0:
            continue
        most, stuck, goes = min(of.batch, held + queued), False, False
        if end > t:
            if prompts == 0:
                at = end
        elif prompts > 0 or (decodes < most and held < of.batch):
            goes = True
            if decodes > 0 and end < t:  # in a pass of decodes
                many = max(0, math.ceil((t - end) / each - NEAR))
                ends = end + many * each
                if ends > t and prompts == 0:
                    at, goes = ends, False
                else:
                    if ends > t:  # it has stood before the stage for the last part of one
                        many -= many > 0
                    if many > 0:
                        _counted(room, i, many, each, end, last, older, fresh, decodes)
                        tokens, end, older, fresh, before = tokens + many, end + many * each, 0, 0, decodes
                        decodes, top, listed, heaped = _left(room, i, tokens, end, decodes, top, listed, heaped)
                        held += decodes - before
                        if decodes < before:
                            each = pace(price, of, steady, spilled, room, decodes) if decodes > 0 else 0.0
        if goes:
            beside = decodes if of.mixed else 0
            prompt, pairs, past, head, queued, held, prompts = _formed(
                of, load, room, i, most, beside, t, head, queued, held, prompts, decodes
            )
            if prompt == 0:
                stuck = True
            else:
                if older + fresh == 0:
                    last, older = end, decodes
                end = t + priced_once(price, steady, spilled, room, prompt, pairs, past, beside) * share
                flying = True
        if (stuck or queued > 0) and decodes > 0 and not flying:  # there may be room when somebody leaves
            at = min(at, max(t, end + (top - tokens) * each))
    here = room.alone[i]
    here.held, here.head, here.queued, here.prompts, here.decodes = held, head, queued, prompts, decodes
    here.older, here.fresh, here.tokens, here.top, here.listed = older, fresh, tokens, top, listed
    here.latest, here.heaped, here.flying, here.due, here.pace = latest, heaped, flying, due, each
    here.end, here.last, here.leaves, here.at = end, last, leaves, at
    here.next = min(min(at, leaves), end) if flying else min(at, leaves)


@piece
def _booked(of, load, room, i, t, prompts, held, decodes, fresh, tokens, top, listed, latest, heaped):
    """Books prompts of a pass: who has all computed decodes from now on, or leaves. How many are left, and what has changed."""
    running, keep, waits = room.running[i], 0, not (of.mixed and of.prefills)
    for place in range(prompts):
        r = running[place]
        room.done[r] += room.share[r]
        room.share[r] = 0
        if room.done[r] < load.prompt[r]:
            running[keep] = r
            keep += 1
            continue
        room.first[r] = room.last[r] = t
        if not (of.decodes and load.further[r] > 0):
            held -= 1
            continue
        decodes += 1
        if waits:
            room.since[i, fresh] = t
            fresh += 1
        token = tokens + load.further[r]
        top = min(top, token)
        if listed >= 0 and token < room.share[latest]:
            _pushed(room.leaving[i], heaped, token, r)
            heaped += 1
            continue
        room.share[r], room.behind[r] = token, -1
        if listed < 0:
            listed = r
        else:
            room.behind[latest] = r
        latest = r
    return keep, held, decodes, fresh, top, listed, latest, heaped


@piece
def _formed(of, load, room, i, most, beside, t, head, queued, held, prompts, decodes):
    """Prompts of a pass, as far as the budget goes: as `arrivals.played` has them, and who is taken up."""
    running = room.running[i]
    budget, chunks, longest = of.tokens, PLENTY, PLENTY
    if of.unit > 0:
        budget, chunks = PLENTY, (of.tokens - beside) // of.unit
    elif of.chunked:
        budget -= beside
    if of.chunk > 0:
        longest = of.chunk
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
        head >= 0 and prompts + decodes < most and held < of.batch
        and budget > 0 and chunks > 0 and prompts < room.running.shape[1]
    ):  # fmt: skip
        r = head
        part = load.prompt[r]
        if of.chunked:
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
    return prompt, pairs, past, head, queued, held, prompts


@piece
def _counted(room, i, many, each, end, last, older, fresh, decodes):
    """The gaps of so many passes of decodes, each as long, as `clocks.passed` has them."""
    if older > 0:
        gap(room, end + each - last, older)
    for place in range(fresh):
        gap(room, end + each - room.since[i, place], 1)
    others = decodes * many - older - fresh
    if others > 0:
        gap(room, each, others)


@piece
def _left(room, i, tokens, end, decodes, top, listed, heaped):
    """Lets go who has all tokens when a pass has ended: how many decode then, when the next leaves, the list and the heap."""
    while decodes > 0 and top <= tokens:
        if listed >= 0 and room.share[listed] == top:
            r = listed
            listed = room.behind[r]
        else:
            heaped -= 1
            r = _popped(room.leaving[i], heaped)
        room.last[r] = end
        decodes -= 1
        top = room.share[listed] if listed >= 0 else PLENTY
        if heaped > 0:
            top = min(top, room.leaving[i, 0].token)
    return decodes, top, listed, heaped


@apart
def _pushed(heap, place, token, r):
    """One more in a heap of so many."""
    while place > 0:
        above = (place - 1) // 2
        if heap[above].token <= token:
            break
        heap[place].token, heap[place].request = heap[above].token, heap[above].request
        place = above
    heap[place].token, heap[place].request = token, r


@apart
def _popped(heap, left):
    """The first of a heap, of which so many are left."""
    found, place = heap[0].request, 0
    token, request = heap[left].token, heap[left].request
    while True:
        below = 2 * place + 1
        if below >= left:
            break
        if below + 1 < left and heap[below + 1].token < heap[below].token:
            below += 1
        if heap[below].token >= token:
            break
        heap[place].token, heap[place].request = heap[below].token, heap[below].request
        place = below
    heap[place].token, heap[place].request = token, request
    return found

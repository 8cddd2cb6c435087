"""KV memory in the serving simulation, compiled: block allocation, release, and the prefix cache.

Throughout: s is the `simulator_state.ServingState`, q a request, here an instance, pool its pool. An allocation step
has `pool.block` positions.
"""

# mypy: disable-error-code="no-untyped-def"

import math

from dse.evaluators.machine.compile_cache import called_part, inlined_function
from dse.evaluators.serving.prefix_blocks import evict_blocks, hold_prefix, match_prefix, release_prefix
from dse.evaluators.serving.simulator_state import BATCH, MEMORY
from dse.evaluators.serving.speculation import positions_needed


@inlined_function
def blocks_needed(s, pool, steps):
    """Blocks of a request with room for `steps`: growing layers, windows and fixed states."""
    blocks, windows = pool.fixed + pool.each * steps, s.windows[pool.number]
    for k in range(len(windows)):
        blocks += windows[k].blocks * min(steps, windows[k].steps)
    return blocks


@inlined_function
def steps_with_equal_blocks(s, pool, q):
    """Steps that need as many blocks each as the next one: until a window is full."""
    steps, windows = 1 << 40, s.windows[pool.number]
    for k in range(len(windows)):
        if windows[k].steps > q.room:
            steps = min(steps, windows[k].steps - q.room)
    return steps


@inlined_function
def transferred_positions(s, pool, positions):
    """Positions of a block that a request moves to or from the host; fixed states count as whole blocks."""
    if positions == 0:
        return 0
    found_positions, windows = pool.fixed * pool.block + pool.each * positions, s.windows[pool.number]
    for k in range(len(windows)):
        found_positions += windows[k].blocks * min(positions, windows[k].positions)
    return found_positions


@inlined_function
def host_wait_seconds(f, pool):
    """Time that an iteration waits for KV caches moving to or from the host. [s]

    Moves are dealt to copies of attention in rotation, each of which has links of its own: the first copy has most
    of them.
    """
    return f.cells * pool.host * math.ceil(f.moves / pool.copies) / max(f.moves, 1.0)


@inlined_function
def spilled_positions(pool, q, positions):
    """Positions of a request in the second memory, in proportion to its blocks there."""
    if q.spilled == 0:
        return 0.0
    return min(q.spilled * pool.block * q.room / (q.blocks + q.spilled), 1.0 * positions)


@inlined_function
def spilled_blocks(pool, q):
    """Blocks of the second memory that a request has; positions in its own buffer do not count."""
    return q.spilled if pool.pages > 0 else 0


@inlined_function
def _steps(pool, q, computed):
    """To take a request up: up to what is computed next, up to its next token's position, or up to its last one's.

    A request that decodes next has room for its guesses at once: else it would leave again before it has made a token.
    """
    positions = computed if pool.by_chunk else q.prompt + q.made
    if q.done == q.target:
        positions = positions_needed(pool, q)
    if pool.lifetime and not pool.hands_over:
        positions = max(positions, q.prompt + q.output - 1)
    return -(-positions // pool.block)


@inlined_function
def can_admit(s, pool, instance, q, computed):
    """Whether a request may be admitted, to be computed up to `computed` positions; its prefix is matched."""
    if pool.buffers > 0:
        return instance.buffers < pool.buffers
    if pool.gated:
        computed = q.prompt + q.made
    more, held = blocks_needed(s, pool, _steps(pool, q, computed)) - q.spared, instance.used + instance.paged
    return held == 0 or pool.blocks + pool.pages - held - more >= pool.spare


@called_part
def allocate(s, pool, instance, q, computed):
    """Allocate blocks for a request, in the second memory where the first is full; returns success."""
    if not can_admit(s, pool, instance, q, computed):
        return False
    q.room = _steps(pool, q, computed)
    q.shared = 0
    if pool.pooled:
        hold_prefix(s, instance, pool, q)
    need = blocks_needed(s, pool, q.room) - q.shared
    q.blocks = min(need, pool.blocks - instance.used)
    q.spilled = need - q.blocks
    instance.used += q.blocks
    instance.paged += spilled_blocks(pool, q)
    instance.peak = max(instance.peak, instance.used + instance.paged)
    instance.buffers += 1
    if pool.pooled:
        evict_blocks(s, instance, pool)
    return True


@inlined_function
def can_take_first(s, pool, instance, q):
    """Whether the first queued request may be admitted for at least one position.

    Requests from other instances share no prefix.
    """
    return can_admit(
        s, pool, instance, q, cached_positions(s, instance, pool, q) + 1 if pool.pooled and not (q.parked or q.remote) else 1
    )


@inlined_function
def wait_reason(s, instance):
    """Reason for which the first queued request waits, besides a running iteration; 0 for none."""
    if instance.head < 0:
        return 0
    pool, q = s.pools[instance.pool], s.requests[instance.head]
    if instance.held >= pool.batch:
        return BATCH
    if not (can_admit(s, pool, instance, q, q.done) if q.parked else can_take_first(s, pool, instance, q)):
        return MEMORY
    return BATCH if pool.static and not q.remote else 0


@called_part
def extend_allocation(s, pool, instance, q, positions):
    """Extend a request's memory to `positions`: next token or next chunk; returns success, all or nothing."""
    if positions <= q.room * pool.block:
        return True
    steps = -(-positions // pool.block)
    more, left = blocks_needed(s, pool, steps) - blocks_needed(s, pool, q.room), pool.blocks - instance.used
    if more > left + pool.pages - instance.paged and pool.buffers == 0:
        return False
    q.room, before = steps, spilled_blocks(pool, q)
    q.blocks += min(more, left)
    q.spilled += more - min(more, left)
    instance.used += min(more, left)
    instance.paged += spilled_blocks(pool, q) - before
    instance.peak = max(instance.peak, instance.used + instance.paged)
    if pool.pooled:
        evict_blocks(s, instance, pool)
    return True


@called_part
def free_blocks(s, pool, instance, q):
    """Free the memory of a request."""
    instance.used -= q.blocks
    instance.paged -= spilled_blocks(pool, q)
    instance.buffers -= 1
    if pool.pooled:
        release_prefix(s, instance, pool, q)
    q.blocks = q.spilled = q.room = 0


@called_part
def cached_positions(s, instance, pool, q):
    """Prompt positions in the prefix cache, never all, since the last one makes the token.

    Leading blocks count; where layers have states, those up to the last snapshot.
    """
    if pool.pooled:
        return match_prefix(s, instance, pool, q)
    if pool.prefix == 0:
        return 0
    blocks = kept = 0
    while blocks < q.hashed and s.cache[instance.number, s.hashes[q.first_hash + blocks]].there:
        blocks += 1
        if s.cache[instance.number, s.hashes[q.first_hash + blocks - 1]].state and blocks * pool.prefix_block < q.prompt:
            kept = blocks
    return kept * pool.prefix_block if pool.snapshot > 0 else min(blocks * pool.prefix_block, q.prompt - 1)


@called_part
def refresh_prefix(s, instance, pool, q, positions):
    """Make a prompt's blocks up to a position the newest of the prefix cache, the first block newest.

    Where layers have states, a snapshot is kept at the last whole block and at regular distances, among the
    positions computed since the request was admitted.
    """
    if pool.prefix == 0:
        return
    ring = s.cache[instance.number]
    end = ring[len(ring) - 1]
    blocks = min(q.hashed, -(-positions // pool.prefix_block))
    last, fit = q.prompt // pool.prefix_block, 0 < pool.snapshot <= pool.prefix - pool.entry
    for k in range(blocks, 0, -1):
        entry = ring[s.hashes[q.first_hash + k - 1]]
        had = entry.there and entry.state
        if entry.there:
            _forget(ring, pool, instance, entry)
        new = fit and q.begun < k * pool.prefix_block and (k == last or (k < last and pool.every > 0 and k % pool.every == 0))
        entry.state = had or new
        room = pool.entry + pool.snapshot * entry.state
        while instance.cached + room > pool.prefix:
            _forget(ring, pool, instance, ring[end.newer])
        instance.cached += room
        entry.there = True
        entry.older, entry.newer = end.older, len(ring) - 1
        ring[end.older].newer = s.hashes[q.first_hash + k - 1]
        end.older = s.hashes[q.first_hash + k - 1]


@inlined_function
def _forget(ring, pool, instance, entry):
    entry.there = False
    instance.cached -= pool.entry + pool.snapshot * entry.state
    ring[entry.older].newer = entry.newer
    ring[entry.newer].older = entry.older

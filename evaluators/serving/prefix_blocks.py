"""Prefix cache in the blocks of running requests, compiled: shared hash blocks, evicted by age.

Running requests and prefixes share one pool: a hash block held by requests is as much in use as their own blocks; a
block that no request holds stays until its space is needed, the one released longest ago first ([kwon2023]; vLLM's
prefix caching). It covers the whole steps of the tokens that its hash stands for, and is shared whole or not at all. If
there is room on the host, evicted blocks go there, concurrently with iterations and without taking their time, and the
oldest one leaves the host; a request that shares a host block brings it back into the pool before its iteration.

Throughout: s is the `simulator_state.ServingState`, q a request, here an instance, pool its pool. An allocation step
has `pool.block` positions.
"""

# mypy: disable-error-code="no-untyped-def"

from dse.evaluators.machine.compile_cache import called_part, inlined_function


@called_part
def match_prefix(s, instance, pool, q):
    """Leading positions of a request in the prefix cache, never all, since the last one makes the token.

    The blocks to share are recorded in the request: hash blocks, and the blocks of those that other requests hold.
    """
    ring, positions = s.cache[instance.number], 0
    q.matched = q.spared = 0
    while q.matched < q.hashed:
        entry = ring[s.hashes[q.first_hash + q.matched]]
        reach = positions + entry.steps * pool.block
        if not (entry.there or entry.host) or reach >= q.target:
            break
        positions = reach
        q.matched += 1
        if entry.held > 0:
            q.spared += entry.steps * pool.each
        if entry.steps * pool.block < pool.prefix_block:
            break
    return positions


@called_part
def hold_prefix(s, instance, pool, q):
    """Hold the matched prefix blocks of a request; blocks on the host are brought back, once."""
    ring = s.cache[instance.number]
    for k in range(q.first_hash, q.first_hash + q.matched):
        entry = ring[s.hashes[k]]
        if entry.host:
            _bring(ring, pool, instance, entry)
            entry.there = True
            q.fetch += entry.steps * pool.block
            instance.used += entry.steps * pool.each
        elif entry.held == 0:
            _unlink(ring, pool, instance, entry)
            instance.used += entry.steps * pool.each
        entry.held += 1
        q.shared += entry.steps * pool.each
        s.holds[k] = True
    q.entered = q.matched
    q.matched = q.spared = 0


@inlined_function
def next_block_position(pool, q):
    """Positions to compute before a request's next hash block can be shared; 0 if there is none."""
    if q.entered >= q.hashed:
        return 0
    start = q.entered * pool.prefix_block
    steps = min(pool.prefix_block, q.span - start) // pool.block
    return start + steps * pool.block if steps > 0 else 0


@called_part
def publish_blocks(s, instance, pool, q, computed):
    """Publish a request's computed hash blocks for sharing; a duplicate stays private."""
    ring = s.cache[instance.number]
    while 0 < next_block_position(pool, q) <= computed:
        k = q.first_hash + q.entered
        entry = ring[s.hashes[k]]
        if not entry.there:
            if entry.host:
                _bring(ring, pool, instance, entry)
            entry.there = True
            entry.held = 1
            entry.steps = (next_block_position(pool, q) - q.entered * pool.prefix_block) // pool.block
            q.blocks -= entry.steps * pool.each
            q.shared += entry.steps * pool.each
            s.holds[k] = True
        q.entered += 1


@called_part
def release_prefix(s, instance, pool, q):
    """Release the shared blocks of a request; unheld blocks become the newest, the first block newest."""
    ring = s.cache[instance.number]
    for k in range(q.first_hash + q.hashed - 1, q.first_hash - 1, -1):
        if s.holds[k]:
            s.holds[k] = False
            entry = ring[s.hashes[k]]
            entry.held -= 1
            if entry.held == 0:
                instance.used -= entry.steps * pool.each
                _link(ring, pool, instance, s.hashes[k])


@called_part
def evict_blocks(s, instance, pool):
    """Evict prefix blocks until the requests' blocks fit."""
    ring = s.cache[instance.number]
    while instance.used + instance.cached > pool.blocks:
        entry = ring[ring[len(ring) - 1].newer]
        number = ring[len(ring) - 1].newer
        _unlink(ring, pool, instance, entry)
        entry.there = False
        if pool.hosted > 0:
            count_host_transfer(s, instance, entry.steps * pool.each * pool.block)
            _send(ring, pool, instance, number)


@inlined_function
def count_host_transfer(s, instance, cells):
    """Count positions of blocks moved to or from the host."""
    instance.carried += cells
    s.total[0].carried += cells


@inlined_function
def _send(ring, pool, instance, number):
    """A hash block that has left the pool is the newest on the host, which the oldest leave."""
    last = len(ring) - 2
    entry, end = ring[number], ring[last]
    entry.host = True
    instance.hosted += entry.steps * pool.each
    entry.older, entry.newer = end.older, last
    ring[end.older].newer = number
    end.older = number
    while instance.hosted > pool.hosted:
        _bring(ring, pool, instance, ring[end.newer])


@inlined_function
def _bring(ring, pool, instance, entry):
    """A hash block leaves the host."""
    entry.host = False
    instance.hosted -= entry.steps * pool.each
    ring[entry.older].newer = entry.newer
    ring[entry.newer].older = entry.older


@inlined_function
def _link(ring, pool, instance, number):
    entry, end = ring[number], ring[len(ring) - 1]
    instance.cached += entry.steps * pool.each
    entry.older, entry.newer = end.older, len(ring) - 1
    ring[end.older].newer = number
    end.older = number


@inlined_function
def _unlink(ring, pool, instance, entry):
    instance.cached -= entry.steps * pool.each
    ring[entry.older].newer = entry.newer
    ring[entry.newer].older = entry.older

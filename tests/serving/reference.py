"""The serving loop once more, for clarity alone: lists and sets, every block of memory by name, one instant after the other."""

from collections import OrderedDict
from collections.abc import Sequence
from math import ceil, inf
from typing import Any

from dse.evaluators.serving.simulator import InstancePool
from dse.evaluators.serving.simulator_state import KvTransfer
from dse.space.requests import Requests

COUNTS = (
    "iterations",
    "prefilled",
    "decoded",
    "guessed",
    "reused",
    "lost",
    "preempted",
    "swapped",
    "sent",
    "fetched",
    "carried",
)

FAR = "in the second memory"


def run(many: Requests, pools: Sequence[InstancePool], transfer: KvTransfer) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The requests, each with the instants of its tokens, and counts."""
    requests = []
    for r in range(len(many)):
        hashes = list(many.hashes[many.starts[r] : many.starts[r + 1]]) if len(many.starts) else []
        prompt = int(many.prompt[r])
        if not any(pool.pooled for pool in pools) and len(hashes) != ceil(prompt / many.block):
            hashes = hashes[: prompt // many.block]
        requests.append(
            {
                "name": r, "arrival": float(many.arrival[r]), "prompt": int(many.prompt[r]), "output": int(many.output[r]),
                "hashes": hashes, "scheduled": None, "tokens": [], "cached": 0, "goal": int(many.prompt[r]), "memory": [],
                "steps": 0, "begun": 0, "buffer": None, "now": 0, "state": "new", "preempted": 0, "hit": None,
                "held": [], "offered": 0, "rank": int(many.ranks[r]) if len(many.ranks) else 0,
                "gone": None,
                "before": int(many.before[r]) if len(many.before) else -1,
                "think": float(many.think[r]) if len(many.think) else 0.0,
            }
        )  # fmt: skip
    machines = [machine(number, pool) for number, pool in enumerate(pools) for _ in range(pool.instances)]
    world = {
        "machines": machines, "pools": pools, "transfer": transfer, "turn": [0, 0], "channels": [0.0] * transfer.channels,
        "travelling": [], "block": many.block,
        "total": dict.fromkeys(COUNTS, 0),
        "played": [], "blocks taken": 0, "blocks given back": 0, "gaps": [],
    }  # fmt: skip
    coming, now = [r for r in requests if r["before"] < 0], -inf
    world["later"], world["coming"] = [r for r in requests if r["before"] >= 0], coming
    while any(len(r["tokens"]) < r["output"] for r in requests):
        ends = [lane["end"] for m in machines for lane in m["lanes"] if lane["end"] is not None]
        starts = [m["stages"][0] for m in machines if len(m["stages"]) > 1 and m["stages"][0] > now]
        then = min([r["arrival"] for r in coming] + ends + starts + [ready for ready, _ in world["travelling"]])
        for m in machines:
            memory = world["pools"][m["pool"]].memory
            used = memory.blocks - available(m) + memory.pages - len(m["pages"])
            m["area"] += used * (then - now) if used else 0.0
            if m["why"]:
                m[m["why"]] += then - now
        now = then
        for m in machines:
            for lane in m["lanes"]:
                if lane["end"] is not None and lane["end"] <= now:
                    book(world, m, lane, now)
        for ready, r in list(world["travelling"]):
            if ready <= now:
                world["travelling"].remove((ready, r))
                arrive(world, r)
        # those that wait for nobody, then turns
        ratios = sorted((r for r in coming if r["arrival"] <= now), key=lambda r: (r["before"] >= 0, r["arrival"], r["name"]))
        for arrival in ratios:
            coming.remove(arrival)
            wait(aware(world, arrival) or choose(world, 0), arrival)
        for m in machines:
            send(world, m, now)
            order = list(range(m["next"], len(m["lanes"]))) + list(range(m["next"]))
            for turn in order:
                if m["stages"][0] <= now and m["lanes"][turn]["end"] is None and begin(world, m, m["lanes"][turn], now):
                    m["next"] = (turn + 1) % len(m["lanes"])
            send(world, m, now)
            m["why"] = why(world, m)
    carried = world["total"]["carried"]
    for m in machines:
        while m["old"]:
            evict(world, m)
    world["total"]["carried"] = carried
    return requests, world


def machine(number: int, pool: InstancePool) -> dict[str, Any]:
    return {
        "pool": number, "queue": [], "lanes": [{"members": [], "end": None} for _ in range(pool.stages)], "next": 0,
        "free": set(range(pool.memory.blocks)), "buffers": set(range(pool.memory.buffers)), "stages": [0.0] * pool.stages,
        "pages": {f"{FAR} {number}" for number in range(pool.memory.pages)},
        "prefixes": OrderedDict(), "shared": {}, "old": OrderedDict(), "host": OrderedDict(),
        "expected": 0, "area": 0.0, "busy": 0.0,
        "why": "", "by_batch": 0.0, "by_memory": 0.0,
    }  # fmt: skip


def load(m: dict[str, Any]) -> int:
    return sum(len(lane["members"]) for lane in m["lanes"]) + m["expected"]


def choose(world: dict[str, Any], number: int, source: dict[str, Any] | None = None) -> dict[str, Any]:
    """A machine of a pool, and of the same block as that which a cache comes from."""
    alike, blocks = [[m for m in world["machines"] if m["pool"] == which] for which in (0, 1)], world["transfer"].blocks
    choices = alike[number]
    if source is not None:
        block = next(i for i, m in enumerate(alike[0]) if m is source) * blocks // len(alike[0])
        choices = [m for i, m in enumerate(alike[1]) if i * blocks // len(alike[1]) == block]
    if world["transfer"].nearest:
        return min(choices, key=lambda m: load(m) + len(m["queue"]))  # type: ignore[no-any-return]
    world["turn"][number] += 1
    return choices[(world["turn"][number] - 1) % len(choices)]  # type: ignore[no-any-return]


def aware(world: dict[str, Any], r: dict[str, Any]) -> dict[str, Any] | None:
    """The machine whose cache has most of a prompt, unless that is little, or some machine has far more to do than another."""
    transfer, pool = world["transfer"], world["pools"][0]
    if not transfer.aware:
        return None
    machines = [m for m in world["machines"] if m["pool"] == 0]
    best = max(machines, key=lambda m: hit_of(world, m, pool, r))
    loads = [load(m) + len(m["queue"]) for m in machines]
    uneven = max(loads) - min(loads) > transfer.apart and max(loads) > transfer.times * min(loads)
    return None if uneven or hit_of(world, best, pool, r) < transfer.matched * r["prompt"] else best


def why(world: dict[str, Any], m: dict[str, Any]) -> str:
    """What the first in a queue waits for, where no iteration can take it up as things are."""
    pool = world["pools"][m["pool"]]
    if not m["queue"]:
        return ""
    if load(m) >= pool.batch:
        return "by_batch"
    r = m["queue"][0]
    m["hands over"] = len(world["pools"]) == 2 and m["pool"] == 0
    shares = pool.pooled and r["state"] == "new"
    match = [m["shared"][h] for h, _ in matching(world, m, pool, r) if h in m["shared"]] if shares else []
    computed = (hit_of(world, m, pool, r) if shares else 0) + 1 if r["state"] != "on the host" else r["cached"]
    if not fits(m, pool, r, computed, sum(len(entry["blocks"]) for entry in match if entry["users"])):
        return "by_memory"
    return "by_batch" if pool.policy.static and r["state"] != "elsewhere" else ""


def hit_of(world: dict[str, Any], m: dict[str, Any], pool: InstancePool, r: dict[str, Any]) -> int:
    """Leading positions of a request that a machine has."""
    if pool.pooled:
        match = matching(world, m, pool, r)
        return match[-1][1] if match else 0
    hit = reached = 0
    for h in r["hashes"] if pool.prefix else []:
        if h not in m["prefixes"]:
            break
        reached += world["block"]
        if not pool.snapshot:
            hit = min(reached, r["prompt"] - 1)
        elif m["prefixes"][h] and reached < r["prompt"]:
            hit = reached
    return hit


def begin(world: dict[str, Any], m: dict[str, Any], lane: dict[str, Any], now: float) -> bool:
    """Forms an iteration and starts it."""
    pool = world["pools"][m["pool"]]
    moved = cells = ways = m["fetched"] = m["fetches"] = 0
    together = load(m) + len(m["queue"])
    room = min(ceil(pool.batch / pool.stages), ceil(together / pool.stages))
    plan: list[tuple[dict[str, Any], int]] = []
    for _ in range(2):
        pushed, started = compose(world, m, lane, pool, room, now, plan)
        moved += sum(started)
        cells += sum(cells_of(pool, positions) for positions in started)
        ways += sum(positions > 0 for positions in started)
        if plan or not pushed:
            break
    if not plan:
        return False
    tokens = sum(n for _, n in plan)
    pairs = sum(n * r["cached"] + n * (n + 1) // 2 for r, n in plan)
    decodes = [r for r, n in plan if n == 0]
    positions = sum(r["cached"] + 1 for r in decodes)
    far = sum(min(far_of(pool, r), r["cached"] + (n == 0)) for r, n in plan)
    c = [float(x) for x in pool.price.linear]
    step = c[0] + c[1] * tokens + c[2] * pairs + c[3] * len(decodes) + c[4] * positions + c[5] * far
    ways += m["fetches"]
    share = ceil(ways / pool.copies) / ways if ways else 1.0  # of a copy of attention that has most
    step += (cells + cells_of(pool, m["fetched"])) * pool.memory.host * share
    end = now
    for stage, share in enumerate(pool.shares):
        end = max(end, m["stages"][stage]) + step * share
        m["stages"][stage] = end
    lane["began"], lane["end"], lane["prompts"] = now, end, tokens > 0
    alike = [other for o in world["machines"] if o["pool"] == m["pool"] for other in o["lanes"] if other["end"] is not None]
    first = sum(other["prompts"] for other in alike)
    played = (m["pool"], tokens > 0, len(decodes), tokens + len(decodes), pairs + positions)
    world["played"].append((*played, first, len(alike) - first, len(alike)))
    m["busy"] += step
    for r, n in plan:
        r["now"] = n or 1
    count = world["total"]
    count["iterations"] += 1
    count["prefilled"] += tokens
    count["decoded"] += len(decodes)
    count["swapped"] += moved
    return True


def compose(
    world: dict[str, Any], m: dict[str, Any], lane: dict[str, Any], pool: InstancePool, room: int, now: float, plan: list[Any]
) -> tuple[bool, list[int]]:
    """Fills a plan. Returns whether somebody had to leave, and positions of each that is moved from and to the host."""
    policy, pushed = pool.policy, False
    moved: list[int] = []
    empty = not lane["members"]
    while m["queue"] and m["queue"][0]["state"] == "on the host" and can_join(m, lane, pool, room):
        if not take(world, m, pool, m["queue"][0]):
            break
        r = m["queue"].pop(0)
        r["state"] = "running"
        moved.append(r["cached"])
        world["total"]["carried"] += cells_of(pool, r["cached"])
        join(lane, r)
    if not policy.mixed:
        started, left = prompts(world, m, lane, pool, room, now, [], not policy.static or empty)
        plan += started
        moved += left
        pushed = m["pushed"]
    if not plan:
        most = policy.tokens if policy.chunked else inf
        for r in list(lane["members"]):
            if r not in lane["members"] or r["cached"] < r["goal"] or (len(plan) + 1) * (1 + pool.guesses) > most:
                continue
            while r in lane["members"] and not grow(world, m, pool, r, r["prompt"] + up_to(pool, r) - 1):
                moved += preempt(world, m, lane, pool)
                pushed = True
            if r in lane["members"]:
                plan.append((r, 0))
        if policy.mixed:
            started, left = prompts(world, m, lane, pool, room, now, plan, (not policy.static or empty) and not pushed)
            plan += started
            moved += left
            pushed = pushed or m["pushed"]
    return pushed, moved


def can_join(m: dict[str, Any], lane: dict[str, Any], pool: InstancePool, room: int) -> bool:
    return len(lane["members"]) < room and load(m) < pool.batch


def prompts(
    world: dict[str, Any],
    m: dict[str, Any],
    lane: dict[str, Any],
    pool: InstancePool,
    room: int,
    now: float,
    formed: list[Any],
    new: bool,
) -> tuple[list[tuple[dict[str, Any], int]], list[int]]:
    """Pieces of prompts for an iteration that has some decodes already, and positions of each that is moved to the host."""
    policy, plan, decodes = pool.policy, [], len(formed) * (1 + pool.guesses)
    moved: list[int] = []
    m["pushed"] = False
    budget: float = policy.tokens - (decodes if policy.chunked else 0)
    chunks: float = inf
    if policy.unit:
        budget, chunks = inf, (policy.tokens - decodes) // policy.unit
    for r in list(lane["members"]):
        if r in lane["members"] and r["cached"] < r["goal"] and budget > 0 and chunks > 0:
            n = int(min(r["goal"] - r["cached"], budget, policy.chunk or inf))
            while r in lane["members"] and not grow(world, m, pool, r, r["cached"] + n):
                # who leaves makes no token in this iteration
                formed[:] = [entry for entry in formed if entry[0] is not lane["members"][-1]]
                moved += preempt(world, m, lane, pool)
                m["pushed"] = True
            if r in lane["members"]:
                plan.append((r, n))
                budget, chunks = budget - n, chunks - 1
    new = new and not m["pushed"]
    while new and m["queue"] and can_join(m, lane, pool, room) and budget > 0 and chunks > 0:
        r = m["queue"][0]
        if r["state"] != "new":
            break
        hit = hit_of(world, m, pool, r)
        n = r["goal"] - hit
        if policy.chunked:
            n = int(min(n, budget, policy.chunk or inf))
        elif n > budget and plan:
            break
        if not take(world, m, pool, r, hit + n, shares=pool.pooled):
            break
        m["queue"].pop(0)
        join(lane, r)
        r["begun"] = r["cached"] = hit
        fetched = r.pop("fetched", 0)
        world["total"]["fetched"] += fetched
        m["fetched"] += fetched
        world["total"]["carried"] += cells_of(pool, fetched)
        m["fetches"] += fetched > 0
        remember(world, m, pool, r, hit)
        r["state"] = "running"
        world["total"]["reused"] += hit
        if r["scheduled"] is None:
            r["scheduled"], r["hit"] = now, hit
        plan.append((r, n))
        budget, chunks = budget - n, chunks - 1
    return plan, moved


def remember(world: dict[str, Any], m: dict[str, Any], pool: InstancePool, r: dict[str, Any], positions: int) -> None:
    if not pool.prefix:
        return
    known, size = m["prefixes"], world["block"]
    reached = ceil(positions / size)
    whole = list(range(size, r["prompt"] + 1, size))
    ends = [end for end in whole if end == whole[-1] or (pool.every and end % (pool.every * size) == 0)]
    if not pool.snapshot or pool.entry + pool.snapshot > pool.prefix:
        ends = []
    for place, h in reversed(list(enumerate(r["hashes"][:reached]))):
        end = (place + 1) * size
        state = known.pop(h, False) or (end in ends and end > r["begun"])

        def taken(states: list[bool]) -> int:
            return len(states) * pool.entry + sum(states) * pool.snapshot

        while taken([*known.values(), state]) > pool.prefix:
            known.popitem(last=False)
        known[h] = state


def matching(world: dict[str, Any], m: dict[str, Any], pool: InstancePool, r: dict[str, Any]) -> list[tuple[int, int]]:
    """Leading hash blocks of a request that are there, each with the positions up to its end, which leave one to compute."""
    matches: list[tuple[int, int]] = []
    for place, h in enumerate(r["hashes"]):
        entry = m["shared"].get(h) or m["host"].get(h)
        end = place * world["block"] + (entry["positions"] if entry else 0)
        if not entry or end > r["goal"] - 1:
            break
        matches.append((h, end))
        if entry["positions"] < world["block"]:
            break
    return matches


def offer(world: dict[str, Any], m: dict[str, Any], pool: InstancePool, r: dict[str, Any]) -> None:
    """A request's hash blocks that are computed belong to all from now on, unless others of the same name do."""
    size, block = world["block"], pool.memory.block
    covered = r["prompt"] if len(r["hashes"]) == ceil(r["prompt"] / size) else len(r["hashes"]) * size
    for place in range(r["offered"], len(r["hashes"])):
        tokens = min(size, covered - place * size) // block * block
        if tokens <= 0 or place * size + tokens > r["cached"]:
            return
        r["offered"] = place + 1
        h = r["hashes"][place]
        if h not in m["shared"]:
            own = [r["memory"].pop() for _ in range(tokens // block * pool.memory.each)]
            m["host"].pop(h, None)
            m["shared"][h] = {"blocks": own, "users": 1, "positions": tokens}
            r["held"].append((place, h))


def let_go(m: dict[str, Any], r: dict[str, Any]) -> None:
    """Nobody's hash blocks grow old, the last of a prompt first."""
    for _, h in sorted(r["held"], reverse=True):
        m["shared"][h]["users"] -= 1
        if not m["shared"][h]["users"]:
            m["old"][h] = None
    r["held"] = []


def evict(world: dict[str, Any], m: dict[str, Any]) -> None:
    """The oldest hash block is forgotten."""
    h, _ = m["old"].popitem(last=False)
    left = m["shared"].pop(h)
    blocks, pool = left["blocks"], world["pools"][m["pool"]]
    if pool.hosted:
        m["host"][h] = {"blocks": len(blocks), "positions": left["positions"]}
        world["total"]["carried"] += len(blocks) * pool.memory.block
        while sum(entry["blocks"] for entry in m["host"].values()) > pool.hosted:
            m["host"].popitem(last=False)
    assert not m["free"] & set(blocks)
    m["free"] |= set(blocks)
    world["blocks given back"] += len(blocks)


def available(m: dict[str, Any]) -> int:
    """Blocks that are free, or would be if what is old were forgotten."""
    return len(m["free"]) + sum(len(m["shared"][h]["blocks"]) for h in m["old"])


def block_of(world: dict[str, Any], m: dict[str, Any]) -> Any:
    """A block for a request; what is old gives way."""
    if not m["free"] and available(m):
        evict(world, m)
    if not m["free"] and world["pools"][m["pool"]].memory.buffers:
        return FAR
    world["blocks taken"] += 1
    return (m["free"] or m["pages"]).pop()


def of_step(pool: InstancePool, step: int) -> int:
    """Blocks that a request takes for one step of positions: of layers that keep all, and of windows that are not full."""
    memory = pool.memory
    return memory.each + sum(blocks for most, blocks in memory.windows if step * memory.block < most)


def cells_of(pool: InstancePool, positions: int) -> int:
    """What moves with a request, in positions of one block."""
    if not positions:
        return 0
    memory = pool.memory
    near = [blocks for most, blocks in memory.windows for _ in range(min(most, positions))]
    return memory.fixed * memory.block + memory.each * positions + sum(near)


def far_of(pool: InstancePool, r: dict[str, Any]) -> float:
    """Positions in the second memory, whose share of all that there is room for is that of the blocks."""
    far = sum(isinstance(block, str) for block in r["memory"])
    return far * pool.memory.block * r["steps"] / len(r["memory"]) if far else 0


def wanted(pool: InstancePool, r: dict[str, Any], hands_over: bool, computed: int = 0) -> int:
    """Steps to be taken up: by chunk for what is computed next, or for what comes back or arrives."""
    positions = r["prompt"] + len(r["tokens"])
    if pool.policy.by_chunk:
        positions = computed or r["cached"]
    if r["cached"] >= r["goal"]:
        positions = r["prompt"] + up_to(pool, r) - 1
    if pool.policy.lifetime and not hands_over:
        positions = max(positions, r["prompt"] + r["output"] - 1)
    return ceil(positions / pool.memory.block)


def up_to(pool: InstancePool, r: dict[str, Any]) -> int:
    """A decoding request's tokens after an iteration whose guesses are all right."""
    return min(len(r["tokens"]) + 1 + pool.guesses, r["output"])


def blocks_of(pool: InstancePool, steps: int) -> int:
    return pool.memory.fixed + sum(of_step(pool, step) for step in range(steps))


def fits(m: dict[str, Any], pool: InstancePool, r: dict[str, Any], computed: int, held_by_others: int) -> bool:
    if pool.memory.buffers:
        return bool(m["buffers"])
    if pool.policy.gated:
        computed = r["prompt"] + len(r["tokens"])
    free, whole = available(m) + len(m["pages"]), pool.memory.blocks + pool.memory.pages
    need = blocks_of(pool, wanted(pool, r, m["hands over"], computed)) - held_by_others
    return free == whole or free - need >= int(pool.memory.spare * whole)


def take(
    world: dict[str, Any], m: dict[str, Any], pool: InstancePool, r: dict[str, Any], computed: int = 0, *, shares: bool = False
) -> bool:
    m["hands over"] = len(world["pools"]) == 2 and m["pool"] == 0
    names = [h for h, _ in matching(world, m, pool, r)] if shares else []
    match = [m["shared"][h] for h in names if h in m["shared"]]
    if not fits(m, pool, r, computed, sum(len(entry["blocks"]) for entry in match if entry["users"])):
        return False
    r["steps"] = wanted(pool, r, m["hands over"], computed)
    if shares:
        r["held"], r["offered"] = list(enumerate(names)), len(names)
        back = {h: m["host"].pop(h) for h in names if h in m["host"]}
        r["fetched"] = sum(entry["positions"] for entry in back.values())
        for entry in match:
            entry["users"] += 1
        m["old"] = OrderedDict((h, None) for h in m["old"] if not m["shared"][h]["users"])
        for h, given_entry in back.items():
            blocks = [block_of(world, m) for _ in range(given_entry["blocks"])]
            m["shared"][h] = {"blocks": blocks, "users": names.count(h), "positions": given_entry["positions"]}
        match = [m["shared"][h] for h in names]
    for _ in range(blocks_of(pool, r["steps"]) - sum(len(entry["blocks"]) for entry in match)):
        r["memory"].append(block_of(world, m))
    if pool.memory.buffers:
        r["buffer"] = m["buffers"].pop()
    return True


def grow(world: dict[str, Any], m: dict[str, Any], pool: InstancePool, r: dict[str, Any], positions: int = 0) -> bool:
    """Room for so many positions, or for the next token's."""
    steps = ceil((positions or r["prompt"] + len(r["tokens"])) / pool.memory.block)
    more = sum(of_step(pool, step) for step in range(r["steps"], steps))
    if more > available(m) + len(m["pages"]) and not pool.memory.buffers:
        return False
    for _ in range(more):
        r["memory"].append(block_of(world, m))
    r["steps"] = max(r["steps"], steps)
    return True


def give_back(world: dict[str, Any], m: dict[str, Any], memory: list[Any], buffer: int | None) -> None:
    blocks = [block for block in memory if not isinstance(block, str)]
    pages = [block for block in memory if isinstance(block, str) and block != FAR]
    assert not m["free"] & set(blocks)
    assert not m["pages"] & set(pages)
    m["free"] |= set(blocks)
    m["pages"] |= set(pages)
    world["blocks given back"] += len(blocks) + len(pages)
    if buffer is not None:
        m["buffers"].add(buffer)


def preempt(world: dict[str, Any], m: dict[str, Any], lane: dict[str, Any], pool: InstancePool) -> list[int]:
    """The last to come leaves. Returns the positions that it moves to the host."""
    r = lane["members"].pop()
    give_back(world, m, r["memory"], r["buffer"])
    let_go(m, r)
    r["memory"], r["buffer"], r["offered"] = [], None, 0
    m["queue"].insert(sum(other["rank"] < r["rank"] for other in m["queue"]), r)
    r["preempted"] += 1
    world["total"]["preempted"] += 1
    if pool.policy.swap:
        r["state"] = "on the host"
        world["total"]["carried"] += cells_of(pool, r["cached"])
        return [r["cached"]]
    r["state"] = "new"
    world["total"]["lost"] += r["cached"]
    r["cached"], r["goal"], r["gone"] = 0, r["prompt"] + len(r["tokens"]), None
    return []


def book(world: dict[str, Any], m: dict[str, Any], lane: dict[str, Any], now: float) -> None:
    """An iteration has ended."""
    pool = world["pools"][m["pool"]]
    lane["end"] = None
    for r in list(lane["members"]):
        n, r["now"] = r["now"], 0
        if not n:
            continue
        prompt = r["cached"] < r["goal"]
        if prompt and len(world["pools"]) == 2 and m["pool"] == 0 and world["transfer"].layers:
            behind(world["transfer"], r, n, lane["began"], now)
        more = 0 if prompt else accepted(pool, r)
        r["cached"] += n + more
        if pool.pooled:
            offer(world, m, pool, r)
        if r["cached"] < r["goal"]:
            continue
        if prompt:
            remember(world, m, pool, r, r["goal"])
        world["total"]["guessed"] += more
        for _ in range(1 + more):
            if r["tokens"]:
                world["gaps"].append(now - r["tokens"][-1])
            r["tokens"].append(now)
        if len(r["tokens"]) == r["output"]:
            lane["members"].remove(r)
            give_back(world, m, r["memory"], r["buffer"])
            let_go(m, r)
            for turn in [turn for turn in world["later"] if turn["before"] == r["name"]]:
                world["later"].remove(turn)
                turn["arrival"] = now + turn["think"]
                world["coming"].append(turn)
        elif len(world["pools"]) == 2 and m["pool"] == 0:
            lane["members"].remove(r)
            r["state"], r["left"] = "elsewhere", (m, r["memory"], r["buffer"])
            r["memory"], r["buffer"], r["offered"] = [], None, 0
            r["target"] = choose(world, 1, m)
            wait(r["target"], r)
        # a decoding request's goal moves with it
        if not prompt:
            r["goal"] = r["cached"]


def accepted(pool: InstancePool, r: dict[str, Any]) -> int:
    """Guesses that are right before one is not, and before the last token."""
    for guess in range(min(pool.guesses, r["output"] - len(r["tokens"]) - 1)):
        bits = 0
        for word in (pool.seed, r["name"], len(r["tokens"]), guess):
            bits = splitmix(bits ^ word)
        if (bits >> 11) / 2**53 >= pool.acceptance:
            return guess
    return max(0, min(pool.guesses, r["output"] - len(r["tokens"]) - 1))


def splitmix(state: int) -> int:
    """The first number of SplitMix64 from a state."""
    whole = 2**64
    z = (state + 0x9E3779B97F4A7C15) % whole
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % whole
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % whole
    return z ^ (z >> 31)


def send(world: dict[str, Any], m: dict[str, Any], now: float) -> None:
    pool = world["pools"][m["pool"]]
    while m["queue"] and m["queue"][0]["state"] == "elsewhere" and load(m) < pool.batch:
        r = m["queue"][0]
        if not take(world, m, pool, r):
            break
        m["queue"].pop(0)
        m["expected"] += 1
        channel = world["channels"].index(min(world["channels"]))
        took = sending(world["transfer"], r["prompt"])
        if r["gone"] is not None and r["tokens"][-1] == now:
            world["channels"][channel] = max(world["channels"][channel] + took, r["gone"])
        else:
            world["channels"][channel] = max(now, world["channels"][channel]) + took
        world["travelling"].append((world["channels"][channel] + world["transfer"].latency, r))
        world["travelling"].sort(key=lambda entry: entry[0])
        world["total"]["sent"] += r["prompt"]


def behind(transfer: KvTransfer, r: dict[str, Any], tokens: int, start: float, end: float) -> None:
    """A channel that does nothing else has sent what an iteration has computed, layer after layer."""
    whole = sending(transfer, r["prompt"])
    if r["gone"] is None and r["begun"]:
        r["gone"] = start + whole * (r["begun"] / r["prompt"])
    part = whole * (tokens / r["prompt"])
    first = start + (end - start) / transfer.layers
    r["gone"] = max((first if r["gone"] is None else max(r["gone"], first)) + part, end + part / transfer.layers)


def sending(transfer: KvTransfer, positions: int) -> float:
    seconds = positions * transfer.per_token + transfer.fixed
    for most, each in transfer.windows:
        seconds += min(positions, most) * each
    return seconds


def arrive(world: dict[str, Any], r: dict[str, Any]) -> None:
    source, memory, buffer = r["left"]
    give_back(world, source, memory, buffer)
    let_go(source, r)
    m = r["target"]
    m["expected"] -= 1
    r["state"] = "running"
    join(min(m["lanes"], key=lambda lane: len(lane["members"])), r)


def wait(m: dict[str, Any], r: dict[str, Any]) -> None:
    """By rank, then by arrival."""
    m["queue"] = sorted([*m["queue"], r], key=lambda other: other["rank"])


def join(lane: dict[str, Any], r: dict[str, Any]) -> None:
    """By rank, then by admission."""
    lane["members"] = sorted([*lane["members"], r], key=lambda other: other["rank"])

"""The loop against its plain reference, and laws that hold for every policy and every load."""

import signal
import time
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dse.evaluators.serving.iteration_time import linear_time
from dse.evaluators.serving.kv_memory import KvMemory
from dse.evaluators.serving.scheduling_policy import POLICIES, SchedulingPolicy
from dse.evaluators.serving.simulator import NO_STOP, InstancePool, ServingRun, simulate_serving
from dse.evaluators.serving.simulator_state import KvTransfer, StopBounds
from dse.space.requests import Requests, make_requests
from tests.serving import reference


@dataclass
class Load:
    requests: Requests
    pools: list[InstancePool]
    transfer: KvTransfer

    def served(self, stop: StopBounds = NO_STOP) -> ServingRun:
        routing = "cache_aware" if self.transfer.aware else "least_loaded" if self.transfer.nearest else "round_robin"
        return simulate_serving(self.requests, self.pools, transfer=self.transfer, routing=routing, stop=stop)


def in_turns(draw: st.DrawFn, many: Requests) -> Requests:
    """Some requests wait for the answer to one above, which nobody else waits for."""
    free, before = list(range(len(many))), np.full(len(many), -1)
    for row in range(1, len(many)):
        above = [other for other in free if other < row]
        if above and draw(st.booleans()):
            before[row] = draw(st.sampled_from(above))
            free.remove(int(before[row]))
    think = draw(st.lists(st.sampled_from([0.0, 0.0, 0.001, 0.25, 3.0]), min_size=len(many), max_size=len(many)))
    requests = replace(many, before=before, think=np.array(think), turns=(before >= 0).astype(np.int32))
    return requests.with_session_starts(requests.arrival[before < 0])


@st.composite
def streams(draw: st.DrawFn) -> Requests:
    count = draw(st.integers(1, 25))
    lengths = draw(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=count, max_size=count))
    gaps = draw(st.lists(st.sampled_from([0.0, 0.0, 0.001, 0.5, 2.0, 40.0]), min_size=count, max_size=count))
    many = make_requests(lengths, np.cumsum(gaps))
    if draw(st.booleans()):
        many = in_turns(draw, many)
    if draw(st.booleans()):
        many = replace(many, ranks=np.array(draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))))
    if not draw(st.booleans()):
        return many
    # leading blocks of the prompt, all of them, or whole ones beyond it; what has one name may be of several lengths
    pairs = list(zip(many.prompt.tolist(), many.output.tolist(), strict=True))
    counts = [draw(st.sampled_from([-(-prompt // 8), prompt // 8, (prompt + output) // 8])) for prompt, output in pairs]
    hashes = [draw(st.lists(st.integers(0, 5), max_size=count, min_size=count)) for count in counts]
    starts = np.cumsum([0, *(len(digest) for digest in hashes)])
    return replace(many, starts=starts, hashes=np.array([h for digest in hashes for h in digest], np.int32), block=8)


@st.composite
def policies(draw: st.DrawFn) -> SchedulingPolicy:
    """One by name with a budget of a small machine, or any choice at all."""
    name = draw(st.sampled_from([*POLICIES, "", "", ""]))
    swap = draw(st.booleans())
    if name == "pd_fusion":
        unit = draw(st.integers(1, 8))
        return replace(POLICIES[name], swap=swap, unit=unit, tokens=draw(st.integers(unit, 16)), chunk=draw(st.integers(1, 30)))
    if name:
        by_chunk = POLICIES[name].chunked and draw(st.booleans())
        return replace(POLICIES[name], swap=swap, tokens=draw(st.integers(1, 60)), by_chunk=by_chunk, gated=by_chunk and swap)
    flags = {key: draw(st.booleans()) for key in ("mixed", "chunked")}
    flags |= {key: draw(st.integers(0, 3)) == 0 for key in ("static", "lifetime")}
    flags["by_chunk"] = flags["chunked"] and not flags["lifetime"] and draw(st.booleans())
    flags["gated"] = flags["by_chunk"] and draw(st.booleans())
    return SchedulingPolicy(**flags, swap=swap, tokens=draw(st.integers(1, 60)), chunk=draw(st.sampled_from([0, 1, 7])))


SHARES = [(1.0,), (1.0,), (0.5, 0.5), (0.5, 0.375, 0.125), (0.25, 0.75, 0.0)]
COEFFICIENTS = ([1.0, 0.25], [0.0, 0.125], [0.0, 0.01], [0.0, 0.25], [0.0, 0.001], [0.0, 0.002])


@st.composite
def sizes(draw: st.DrawFn, block: int) -> KvMemory:
    """What layers that are alike take of blocks, or those that differ: windows, states, and nothing that grows."""
    if draw(st.booleans()):
        return KvMemory(1, block)
    windows = draw(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 3)), max_size=2))
    each, fixed = draw(st.sampled_from([0, 1, 2])), draw(st.sampled_from([0, 1, 5]))
    return KvMemory(1, block, each=each, fixed=fixed, windows=tuple(windows))


@st.composite
def pools(draw: st.DrawFn, longest: int) -> InstancePool:
    """A pool whose memory holds the longest request, and often not much more."""
    block, spare = draw(st.integers(1, 8)), draw(st.sampled_from([0.0, 0.1]))
    single_draw = draw(sizes(block))
    levels = draw(st.sampled_from(["one", "one", "pages", "buffers"]))
    if levels == "buffers":
        memory = replace(
            single_draw, blocks=draw(st.integers(0, 12)), spare=0.0, buffers=draw(st.integers(1, 8)), buffer=longest
        )
    elif levels == "pages":
        blocks, more = draw(st.integers(0, 12)), draw(st.sampled_from([0, 1, 3, 10, 1000]))
        memory = replace(
            single_draw, blocks=blocks, spare=spare, pages=max(1, single_draw.blocks_needed(longest) - blocks) + more
        )
        memory = replace(memory, host=draw(st.sampled_from([0.0, 0.01])))
    else:
        blocks = max(1, single_draw.blocks_needed(longest)) + draw(st.sampled_from([0, 1, 3, 10, 1000]))
        memory = replace(single_draw, blocks=blocks, spare=spare, host=draw(st.sampled_from([0.0, 0.01])))
    rule = draw(policies())
    if memory.pages:
        rule = replace(rule, by_chunk=False, gated=False)
    shares = draw(st.sampled_from(SHARES[:1] if rule.by_chunk and not memory.buffers else SHARES))
    plain = memory.each and not (memory.pages or memory.buffers or memory.windows or memory.fixed) and 8 % block == 0
    pooled = bool(plain) and draw(st.booleans())
    guesses = min(draw(st.sampled_from([0, 0, 1, 3])), rule.tokens - 1)
    return InstancePool(
        linear_time(*(draw(st.sampled_from(choice)) for choice in COEFFICIENTS)), rule, memory,
        instances=draw(st.sampled_from([1, 1, 2, 3])), shares=shares,
        batch=draw(st.sampled_from([1, 3, 12])), prefix=0 if pooled else draw(st.sampled_from([0, 2, 5])),
        entry=draw(st.sampled_from([1, 1, 0])), snapshot=draw(st.sampled_from([0, 0, 1, 2, 9])),
        every=draw(st.sampled_from([0, 1, 2])), pooled=pooled,
        hosted=draw(st.sampled_from([0, 2, 7, 100])) if pooled else 0,
        guesses=guesses,
        acceptance=draw(st.sampled_from([0.0, 0.3, 0.7, 1.0])), seed=draw(st.integers(0, 2**31)),
    )  # fmt: skip


@st.composite
def loads(draw: st.DrawFn) -> Load:
    wanted_draw = draw(streams())
    longest = int((wanted_draw.prompt + wanted_draw.output - 1).max())
    many = draw(st.lists(pools(longest), min_size=1, max_size=2))
    if len(many) == 2:  # which is refused beside prefixes on the host, as are blocks that a request names twice
        many = [replace(pool, hosted=0) for pool in many]
    elif many[0].hosted:
        places = np.concatenate([np.arange(count) for count in np.diff(wanted_draw.starts)] or [np.empty(0, int)])
        wanted_draw = (
            replace(wanted_draw, hashes=(wanted_draw.hashes + 6 * places).astype(np.int32))
            if len(wanted_draw.hashes)
            else wanted_draw
        )
    moving = KvTransfer(*(draw(st.sampled_from(choice)) for choice in ([0.0, 0.01, 0.1], [0.0, 0.5], [1, 2], [True, False])))
    if moving.nearest:
        thresholds = (
            draw(st.sampled_from([0.0, 0.3, 0.9])),
            draw(st.sampled_from([0, 2, 64])),
            draw(st.sampled_from([1.0, 1.5])),
        )
        moving = moving._replace(aware=draw(st.booleans()), matched=thresholds[0], apart=thresholds[1], times=thresholds[2])
    moving = moving._replace(layers=draw(st.sampled_from([0, 0, 1, 4])))
    blocks = draw(st.integers(1, min(pool.instances for pool in many)))
    if draw(st.booleans()):
        moving = moving._replace(fixed=draw(st.sampled_from([0.0, 0.3])), windows=((draw(st.integers(1, 50)), 0.02),))
    return Load(wanted_draw, many, moving._replace(blocks=blocks))


def small(
    rule: SchedulingPolicy,
    lengths: list[tuple[int, int]],
    arrival: list[float],
    hashes: list[list[int]],
    memory: KvMemory,
    guesses: int = 0,
) -> Load:
    """One pool that shares prefixes; with guesses, all of them right, it has two stages."""
    starts = np.cumsum([0, *(len(digest) for digest in hashes)])
    many = make_requests(lengths, arrival)
    many = replace(many, starts=starts, hashes=np.array([h for digest in hashes for h in digest], np.int32), block=8)
    price, shares = linear_time(1.0, 0.25 if rule.lifetime else 0.0), (0.5, 0.5) if guesses else (1.0,)
    pool = InstancePool(
        price, replace(rule, tokens=24), memory, shares=shares, batch=8, pooled=True, guesses=guesses, acceptance=1.0
    )
    return Load(many, [pool], KvTransfer(0.0, 0.0, 1, True))


many_examples = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.sampled
@many_examples
@given(loads())
# a hash block enters at the end of the iteration whose right guess is its last token
@example(small(POLICIES["orca"], [(6, 11), (11, 9)], [1.0, 2.0], [[1, 2], [2, 2]], KvMemory(5, 4), 1))
@example(
    small(replace(POLICIES["chunked_prefill"], by_chunk=False), [(8, 11), (8, 6)], [0.0, 1.0], [[2, 0], [0]], KvMemory(5, 4), 1)
)
@example(
    small(
        POLICIES["prefill_first"], [(11, 8), (6, 12), (14, 4), (14, 11), (10, 10)], [0.0, 0.0, 0.0, 0.0, 4.0],
        [[1, 1], [0, 0], [1, 2], [0, 1, 1], [0, 1]], KvMemory(5, 8), 1,
    )
)  # fmt: skip
# decodes alone: a known prefix that has to go makes the first chunk smaller; who waits for a batch waits for memory as well
@example(small(POLICIES["chunked_prefill"], [(3, 15), (13, 10), (3, 3)], [0.0] * 3, [[0, 2], [2, 0], []], KvMemory(25, 1)))
@example(
    small(replace(POLICIES["static"], lifetime=False), [(15, 7), (3, 2), (2, 2)], [0.0, 1.0, 2.0], [[]] * 3, KvMemory(22, 1))
)
def test_the_loop_does_what_its_plain_reference_does(load: Load) -> None:
    run = load.served()
    plain, world = reference.run(load.requests, load.pools, load.transfer)
    for name, time_name in (("scheduled", "scheduled"), ("first", 0), ("completed", -1)):
        expected = [r[time_name] if isinstance(time_name, str) else r["tokens"][time_name] for r in plain]
        assert run[name].tolist() == expected, name
    assert run["preempted"].tolist() == [r["preempted"] for r in plain]
    assert run["hit"].tolist() == [r["hit"] for r in plain]
    assert {name: run.total[name] for name in world["total"]} == world["total"]
    for name in ("area", "busy", "by_batch", "by_memory"):
        assert run.state.instances[name] == pytest.approx([m[name] for m in world["machines"]]), name
    gaps = run.state.gaps
    assert gaps["count"].sum() == len(world["gaps"])
    assert gaps["seconds"].sum() == pytest.approx(sum(world["gaps"]))

    for pool, (at_once, kept) in enumerate(zip(run.state.at_once, run.state.busiest, strict=True)):
        played = [entry for entry in world["played"] if entry[0] == pool]
        most = [max((entry[place] for entry in played), default=0) for place in (5, 6, 7)]
        assert [at_once[name] for name in ("most_prompts", "most_decodes", "most")] == most
        assert at_once["prompts"] == at_once["decodes"] == 0
        for prompts, octave in np.ndindex(kept.shape):
            alike = [entry[3:5] for entry in played if entry[1] == bool(prompts) and entry[2].bit_length() == octave]
            busiest = kept[prompts, octave]
            tokens, positions = busiest["prompt"] + busiest["requests"], busiest["pairs"] + busiest["positions"]
            assert (tokens, positions) == max(alike, default=(0, 0))


@pytest.mark.sampled
@many_examples
@given(loads())
def test_everything_asked_is_made_once_and_nothing_before_its_time(load: Load) -> None:
    run, requests = load.served(), load.requests
    assert (run["made"] == requests.output).all()
    assert (run["scheduled"] >= run.requests.arrival).all()
    assert (run.requests.arrival >= requests.arrival).all()
    if len(requests.before):
        turn = requests.before >= 0
        waited = run["completed"][requests.before[turn]] + requests.think[turn]
        assert (run.requests.arrival[turn] == waited).all()
    assert (run["first"] > run["scheduled"]).all()
    assert (run["completed"] >= run["first"]).all()
    total = run.total
    assert total["served"] == len(requests)
    assert total["in_system"] == total["queued"] == 0
    # positions that were computed, taken from the prefix cache, and thrown away again
    held = int((requests.prompt + requests.output - 1).sum())
    assert total["prefilled"] + total["decoded"] + total["guessed"] + total["reused"] - total["lost"] == held
    assert run.state.gaps["count"].sum() == int((requests.output - 1).sum())


@pytest.mark.sampled
@many_examples
@given(loads())
def test_memory_that_was_taken_is_given_back_and_was_there(load: Load) -> None:
    served = load.served()
    instances = served.state.instances
    assert (instances["used"] == 0).all()
    assert (instances["paged"] == 0).all()
    assert (instances["buffers"] == 0).all()
    assert (instances["held"] == 0).all()
    blocks = np.array([pool.memory.blocks + pool.memory.pages for pool in load.pools])[instances["pool"]]
    assert (instances["peak"] <= blocks).all()
    _, world = reference.run(load.requests, load.pools, load.transfer)
    assert world["blocks taken"] == world["blocks given back"]
    assert all(len(m["free"]) == load.pools[m["pool"]].memory.blocks for m in world["machines"])
    assert all(len(m["pages"]) == load.pools[m["pool"]].memory.pages for m in world["machines"])


@pytest.mark.sampled
@many_examples
@given(streams(), st.data())
def test_pages_do_what_a_ring_does_where_neither_runs_out(requests: Requests, data: st.DataObject) -> None:
    longest = int((requests.prompt + requests.output - 1).max())
    draw = data.draw(pools(longest))
    rule = replace(draw.policy, by_chunk=False, gated=False)
    memory = replace(
        draw.memory, blocks=data.draw(st.integers(0, 40)), spare=0.0, host=0.0, pages=0, buffers=10**4, buffer=longest
    )
    ring = replace(draw, policy=rule, memory=memory, pooled=False, hosted=0)
    pages = replace(ring, memory=replace(memory, pages=10**6, buffers=0, buffer=0))
    runs = [simulate_serving(requests, (pool,)) for pool in (ring, pages)]
    for name in ("scheduled", "first", "completed"):
        assert runs[0][name].tolist() == runs[1][name].tolist()
    assert runs[0].total["preempted"] == runs[1].total["preempted"] == 0


@pytest.mark.sampled
@many_examples
@given(loads())
def test_littles_law(load: Load) -> None:
    served = load.served()
    assert served.total["system_area"] == pytest.approx(float((served["completed"] - served.requests.arrival).sum()))


@pytest.mark.sampled
@many_examples
@given(loads())
def test_what_iterations_worked_on_adds_up(load: Load) -> None:
    run = load.served()
    work, total = run.state.work, run.total
    assert work["iterations"].sum() == total["iterations"]
    assert work["prompt"].sum() == total["prefilled"]
    assert work["requests"].sum() == total["decoded"]
    assert (work["prompt"][:, 0] == 0).all()
    # a prompt's token looks at itself and at what is before it
    assert (work["pairs"] >= work["prompt"]).all()
    assert (work["far"] <= work["positions"] + work["past"]).all()


@pytest.mark.sampled
@many_examples
@given(loads())
def test_no_instance_is_busier_than_always_and_no_request_faster_than_alone(load: Load) -> None:
    served, requests = load.served(), load.requests
    instances = served.state.instances
    span = float(served["completed"].max())
    assert (instances["busy"] / instances["stages"] <= span * (1 + 1e-9)).all()
    # every token but the first takes an iteration of its own, through all stages, but for those that are guessed
    least = min(float(pool.price.linear[0]) for pool in load.pools)
    last = float(load.pools[-1].price.linear[0])
    assert (served["first"] - served["scheduled"] >= least * (1 - 1e-9)).all()
    passes = -(-(requests.output - 1) // (1 + load.pools[-1].guesses))
    assert (served["completed"] - served["first"] >= passes * last * (1 - 1e-9) - 1e-9).all()


@pytest.mark.sampled
@many_examples
@given(loads())
def test_the_same_load_has_the_same_result(load: Load) -> None:
    once, again = load.served(), load.served()
    assert (once.state.requests == again.state.requests).all() or np.array_equal(
        once["completed"], again["completed"], equal_nan=True
    )
    assert once.total == again.total


@pytest.mark.sampled
@many_examples
@given(loads(), st.integers(1, 20))
def test_a_run_that_pauses_goes_on_as_if_it_had_not(load: Load, work: int) -> None:
    whole, paused = load.served(), load.served(NO_STOP._replace(work=work))
    for name in ("scheduled", "first", "completed"):
        assert paused[name].tolist() == whole[name].tolist()
    kept = {name: value for name, value in whole.total.items() if name not in ("work", "now", "coming")}
    assert {name: paused.total[name] for name in kept} == pytest.approx(kept, rel=1e-12)  # sums in another order
    assert paused.state.gaps["count"].tolist() == whole.state.gaps["count"].tolist()


def test_a_request_of_a_thousand_million_tokens_can_be_interrupted() -> None:
    def pressed(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    pool = InstancePool(linear_time(1.0), POLICIES["orca"], KvMemory(1 << 40), batch=4)
    simulate_serving(make_requests([(1, 1)], [0.0]), [pool])  # compiled
    before = signal.signal(signal.SIGALRM, pressed)
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    start = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            simulate_serving(make_requests([(1, 2**31 - 1)], [0.0]), [pool])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - start < 5


@pytest.mark.sampled
@many_examples
@given(loads())
def test_first_come_first_served(load: Load) -> None:
    """One instance, requests of one length: they are taken up, and get their first token, in the order they came."""
    requests = load.requests
    longest = int((requests.prompt + requests.output).argmax())
    pair = (int(requests.prompt[longest]), int(requests.output[longest]))
    alike = Load(
        make_requests([pair] * len(requests), requests.arrival),
        [replace(load.pools[0], instances=1)],
        load.transfer._replace(blocks=1),
    )
    served = alike.served()
    assert (np.diff(served["scheduled"]) >= 0).all()
    if load.pools[0].stages == 1:
        assert (np.diff(served["first"]) >= 0).all()


@pytest.mark.sampled
@many_examples
@given(loads())
def test_an_instance_is_not_idle_while_it_could_work(load: Load) -> None:
    """One instance, one stage, memory and room for all: it is busy from each arrival on, until nobody is in the system."""
    pool = load.pools[0]
    if pool.policy.unit:
        pool = replace(pool, policy=replace(pool.policy, tokens=pool.policy.unit + 30))
    roomy = replace(pool, instances=1, shares=(1.0,), batch=30, memory=KvMemory(100_000, 8), prefix=0)
    run = simulate_serving(load.requests, [roomy])
    busy, end = 0.0, 0.0
    for arrival, completed in sorted(zip(run.requests.arrival, run["completed"], strict=True)):
        busy += max(0.0, completed - max(arrival, end))
        end = max(end, completed)
    assert run.state.instances["busy"][0] == pytest.approx(busy)

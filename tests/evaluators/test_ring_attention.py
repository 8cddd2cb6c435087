"""Attention around a ring: rows get what NumPy says, and blocks go on beside work, as long as is priced for it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dse.evaluators.calls.call import GroupExchange
from dse.evaluators.cost_models import READERS
from dse.evaluators.cost_models.event_simulator import simulate_events
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.kernels.partition import ring_attention
from dse.evaluators.layouts import pipelines
from dse.evaluators.machine.machine import HardwareModel
from dse.evaluators.machine.mesh_fabric import MeshFabric
from dse.evaluators.program.activity_counts import count_activity
from dse.evaluators.program.kernel_ir import Loop, Program, Round, SendInstruction
from dse.space.mapping import PLACEMENTS
from dse.testing.functional_simulator import run_program as by_numbers
from tests.evaluators.test_partition import ENGINES, LOCKED, WORMHOLE
from tests.samples import asked


def drawn(seed: int) -> tuple[str, int, int, int, int]:
    rng = np.random.default_rng(seed)
    sizes = (int(rng.integers(1, 9)) for _ in range(3))
    return (str(rng.choice(PLACEMENTS)), int(rng.choice([1, 2, 3, 4, 6, 8, 9, 16])), *sizes)


def right(at: tuple[str, int, int, int, int], program: Program) -> bool:
    """Whether a program is attention of all rows to all keys."""
    placement, cores, rows, qk_dim, v_dim = at
    rng = np.random.default_rng(rows)
    q, k, v = (3 * rng.normal(size=(cores * rows, dim)).astype(np.float32) for dim in (qk_dim, qk_dim, v_dim))
    tiles = by_numbers(program, ring_attention.scatter_operands(q, k, v, placement, cores))
    scores = q.astype(float) @ k.T
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    wanted = shares @ v / shares.sum(axis=1, keepdims=True)
    return bool(np.allclose(ring_attention.gather_result(tiles, placement, cores), wanted, atol=1e-3))


def sends(turn: Round | Loop) -> bool:
    return isinstance(turn, Round) and isinstance(turn.steps[0], SendInstruction)


@pytest.mark.parametrize("seed", range(16))
def test_rows_attend_to_all_keys(seed: int) -> None:
    at = drawn(seed)
    assert right(at, ring_attention.build_program(*at))


def test_a_wrong_destination_is_noticed() -> None:
    at = ("ring", 8, 4, 5, 3)
    program = ring_attention.build_program(*at)
    turns = list(program.strands[0])
    first = next(place for place, turn in enumerate(turns) if sends(turn))
    turn = turns[first]
    assert isinstance(turn, Round)
    keys, values = turn.steps
    assert isinstance(keys, SendInstruction)
    turns[first] = Round((replace(keys, target=keys.source), values))
    assert not right(at, replace(program, strands=(tuple(turns),)))


@pytest.mark.parametrize("routing", ["locked", "wormhole"])
def test_blocks_go_on_beside_work_as_long_as_the_closed_form_says(routing: str) -> None:
    fabric, rng, gaps = {"locked": LOCKED, "wormhole": WORMHOLE}[routing], np.random.default_rng(1), list[float]()
    for _ in range(30):
        placement, cores = str(rng.choice(PLACEMENTS)), int(rng.choice([2, 3, 4, 6, 8, 16]))
        rows, dim = int(rng.integers(8, 65)), int(rng.choice([32, 64, 128]))
        program = ring_attention.build_program(placement, cores, rows, dim, dim, "float16")
        messages = replace(program, strands=(tuple(turn for turn in program.strands[0] if sends(turn)),))
        way, whole = simulate_events(messages, fabric), simulate_events(program, fabric, engines=ENGINES)
        assert count_activity(program).sent_bytes == (cores - 1) * cores * rows * 2 * dim * 2
        work = simulate_events(
            replace(program, strands=(tuple(turn for turn in program.strands[0] if not sends(turn)),)), fabric, engines=ENGINES
        )
        assert max(work.seconds, way.seconds) <= whole.seconds * (1 + 1e-9)
        assert whole.seconds < work.seconds + way.seconds
        waits = ring_attention.ring_attention_wait(placement, cores, 2.0 * rows * 2 * dim, work.seconds, fabric)
        gaps.append(abs((work.seconds + waits) / whole.seconds - 1))
    # keys and values are two messages there, and the running sums of a block do not all wait for its values
    assert np.median(gaps) < 0.05
    assert np.quantile(gaps, 0.9) < 0.1


def fabrics(locked: float) -> st.SearchStrategy[MeshFabric]:
    """Networks of all paces."""
    times = st.floats(0.0, 20.0)
    return st.builds(
        lambda hop, ramp, post, word: WORMHOLE._replace(hop=hop, ramp=ramp, post=post, word=word, locked=locked),
        times, times, times, st.floats(0.5, 4.0),
    )  # fmt: skip


MACHINES = st.sampled_from([0.0, 1.0]).flatmap(fabrics)
GROUPS = st.tuples(st.sampled_from(PLACEMENTS), st.sampled_from([2, 3, 4, 6, 8, 9, 16]), st.integers(1, 50_000))


LONG_WAYS = WORMHOLE._replace(hop=1.0, ramp=0.0, post=4.0)
"""A long way back takes most of a step, and a start as much."""


@given(GROUPS, MACHINES, st.floats(0.0, 4.0))
@example(("linear_seq", 8, 1), LONG_WAYS, 0.0)
@example(("linear_seq", 8, 4), LONG_WAYS._replace(post=0.0, word=4.0), 1.0)
@example(("linear_seq", 16, 1), LONG_WAYS._replace(post=2.0), 0.0)
@example(("linear_seq", 8, 40), LONG_WAYS._replace(hop=13.0, post=0.0, word=1.9), 1.0)
@example(("linear_interleave", 6, 105), LONG_WAYS._replace(hop=12.3, ramp=20.0, post=0.0, word=4.0, locked=1.0), 0.0)
@settings(max_examples=25)
def test_events_say_what_the_closed_form_says(drawn_case: tuple[str, int, int], fabric: MeshFabric, worked: float) -> None:
    placement, cores, nbytes = drawn_case
    machine, exchange = _machine(fabric), GroupExchange(1.0, placement, cores, float(nbytes), attended=True)
    work = worked * float(READERS["analytical"].exchange(exchange, machine, 0.0))
    closed, played = (work + READERS[word].exchange(exchange, machine, work) for word in ("analytical", "events"))
    assert played >= work
    # cores that a long way puts out of step wait for one another a hop or two more or less; whose turn a locked channel is
    # nobody plans, and who waits for it has posted meanwhile, so that a start each step is not seen
    slack = max((0.1 if fabric.locked else 0.02) * closed, 8 * (fabric.hop + fabric.ramp))
    assert closed - slack - fabric.locked * (cores - 1) * fabric.post <= played <= closed + slack


@given(GROUPS, MACHINES, st.floats(0.0, 4.0), st.floats(1.0, 3.0))
@settings(max_examples=15)
def test_more_work_or_longer_blocks_never_take_less(
    drawn_case: tuple[str, int, int], fabric: MeshFabric, worked: float, more: float
) -> None:
    placement, cores, nbytes = drawn_case
    machine, exchange = _machine(fabric), GroupExchange(1.0, placement, cores, float(nbytes), attended=True)
    work = worked * float(READERS["analytical"].exchange(exchange, machine, 0.0))
    for word in ("analytical", "events"):
        takes = READERS[word].exchange
        before = work + takes(exchange, machine, work)
        assert more * work + takes(exchange, machine, more * work) >= before * (1 - 1e-9)
        assert work + takes(exchange._replace(nbytes=more * nbytes), machine, work) >= before * (1 - 1e-9)


def test_a_block_as_a_whole_moves_what_keys_and_values_do() -> None:
    for placement in PLACEMENTS:
        for cores in (1, 2, 6, 9, 16):
            whole, parts = (
                ring_attention.single_instruction_program(placement, cores, 6 * 8),
                ring_attention.build_program(placement, cores, 6, 3, 5, "int8"),
            )
            assert count_activity(whole).sent_bytes == count_activity(parts).sent_bytes == cores * (cores - 1) * 6 * 8


@pytest.mark.parametrize("word", ["mn", "mn_k", "input_only"])
def test_keys_of_earlier_chunks_go_around_as_well(word: str) -> None:
    base = asked("chip=npu64", "model=qwen3_4b", f"mapping.both.partition={word}").base
    plan, model = base.mapping.prefill, asked("chip=npu64", "model=qwen3_4b").workload.cases[0].model
    kv = 2 * model.kv_heads * model.head_dim * 2.0  # keys and values of 16 bits

    def moved(tokens: float, cached: float) -> tuple[float, float]:
        step = StepCounts("prefill", tokens, 1.0, tokens * (cached + tokens / 2), cached)
        calls = (call for block in pipelines.group_blocks(model, step, plan, base.mapping.precision) for call in block.calls)
        call = next(call for call in calls if call.exchange is not None and call.exchange.attended)
        return call.exchange.nbytes, call.sent

    cores = int(plan.tp)
    for tokens, cached in ((256.0, 0.0), (256.0, 1024.0), (512.0, 4096.0)):
        assert moved(tokens, cached) == ((tokens + cached) / cores * kv, (cores - 1) * (tokens + cached) * kv)


def _machine(fabric: MeshFabric) -> HardwareModel:
    return HardwareModel(None, None, None, 0.0, fabric, None, 0.0)

"""States of recurrent layers on tiles with HBM: closed form against events on random sizes; bytes and operations by hand."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.cost_models import jobs
from dse.evaluators.cost_models.analytical_recurrent import decode_state_job, prefill_state_job, resident_state_share
from dse.evaluators.cost_models.job_sequence import JobSequence
from dse.evaluators.cost_models.submesh_jobs import job_on_submesh
from dse.evaluators.kernels.vector.recurrent_decode import RULE_OPERATIONS, RecurrenceShape
from dse.space.chip import Chip
from tests.samples import asked

GDN = RecurrenceShape("delta", 32, 16, 128, 128, 64, 64)


def chip(name: str = "tile32") -> Chip:
    chip: Chip = asked(f"chip={name}", "workload=attention").base.chip
    return chip


@pytest.mark.sampled
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_closed_and_played_updates_agree_on_random_sizes(data: Any) -> None:
    def pick(*values: Any) -> Any:
        return data.draw(st.sampled_from(values))

    keys, sequences = pick(1, 4, 16), data.draw(st.integers(1, 200))
    heads = keys * pick(1, 2, 4)
    shape = RecurrenceShape(pick(*RULE_OPERATIONS), heads, keys, pick(64, 128, 256), pick(64, 128), sequences, sequences)
    job = decode_state_job(shape, chip(pick("tile32", "tile_gh200")), pick(1.0, 2.0), pick(0.0, 0.3))
    closed, played = (jobs.job_cost(fidelity, job) for fidelity in ("analytical", "events"))
    # of a few states, whose loads meet at a channel in no order of turns, up to a quarter
    assert closed.seconds == pytest.approx(played.seconds, rel=0.1 if shape.states > 1024 else 0.25)
    assert closed.activity.memory_bytes == played.activity.memory_bytes
    assert closed.activity.hop_bytes == pytest.approx(played.activity.hop_bytes)


@pytest.mark.parametrize("rule", RULE_OPERATIONS)
def test_bytes_and_operations_are_those_of_states(rule: str) -> None:
    shape = RecurrenceShape(rule, 32, 16, 128, 128, 64, 64)
    activity = jobs.job_cost("analytical", decode_state_job(shape, chip())).activity
    row = 2 * 128 + 2 * 128  # keys and queries, values and outputs
    scalars = 4 * ((128 if rule == "channel_delta" else 1) + (rule != "linear"))
    assert activity.memory_bytes == 64 * 32 * (2 * 128 * 128 * 4 + 2 * row + scalars)
    assert shape.updates == 64 * 32 * {"delta": 7, "channel_delta": 7, "ssd": 5, "linear": 5}[rule] * 128 * 128


@pytest.mark.parametrize("fidelity", ["analytical", "events"])
def test_states_that_stay_cost_no_traffic_but_memory(fidelity: str) -> None:
    far, half, near = (jobs.job_cost(fidelity, decode_state_job(GDN, chip(), resident=share)) for share in (0.0, 0.5, 1.0))
    assert far.activity.memory_bytes - half.activity.memory_bytes == pytest.approx(GDN.state_bytes, rel=0.01)
    assert near.seconds < 0.05 * far.seconds
    assert half.seconds == pytest.approx(far.seconds / 2, rel=0.05)


def test_as_many_states_stay_as_local_memories_have_room_for() -> None:
    assert resident_state_share(GDN, chip()) == 1.0
    many = RecurrenceShape("delta", 32, 16, 128, 128, 256, 256)
    assert resident_state_share(many, chip()) == 5 * 1024 / 8192  # of 64 KiB each, in 384 KiB


def test_a_part_of_the_mesh_stands_for_all_of_it() -> None:
    job = decode_state_job(GDN, chip(), resident=0.25)
    part, times = job_on_submesh(job, 8)
    assert isinstance(part, JobSequence)
    whole = jobs.job_cost("events", job).seconds
    assert times * jobs.job_cost("events", part).seconds == pytest.approx(whole, rel=0.1)


@pytest.mark.sampled
@settings(max_examples=25, deadline=None)
@given(st.data())
def test_closed_and_played_prompts_agree_on_random_sizes(data: Any) -> None:
    def pick(*values: Any) -> Any:
        return data.draw(st.sampled_from(values))

    keys, sequences, rule = pick(1, 4, 16), data.draw(st.integers(1, 60)), pick(*RULE_OPERATIONS)
    heads, prompt = keys * pick(1, 2, 4), data.draw(st.integers(1, 5000))
    shape = RecurrenceShape(rule, heads, keys, pick(64, 128), pick(64, 128), sequences, sequences * prompt, pick(64, 128))
    job = prefill_state_job(shape, chip(pick("tile32", "tile_gh200")), pick(1.0, 2.0))
    closed, played = (jobs.job_cost(fidelity, job) for fidelity in ("analytical", "events"))
    # half are within 0.1 %, nine in ten within 3 %; a few items of a short prompt have their channel's links alone
    assert closed.seconds == pytest.approx(played.seconds, rel=0.15 if prompt > 500 else 0.25)
    assert closed.activity.memory_bytes == played.activity.memory_bytes


@pytest.mark.parametrize(("rule", "chunk"), [("delta", 64), ("ssd", 128), ("linear", 128)])
def test_products_of_chunks_are_as_many_as_the_formula_says(rule: str, chunk: int) -> None:
    """And what inverts a chunk's triangle, twice as many products of squares as the chunk has bits, less two."""
    shape = RecurrenceShape(rule, 32, 32, 128, 64, 32, 32 * 16 * chunk, chunk)  # an item a tile
    inverse = 2 * (chunk.bit_length() - 2) * 2 * chunk**2 if rule == "delta" else 0
    activity = jobs.job_cost("analytical", prefill_state_job(shape, chip())).activity
    assert 2 * activity.macs == shape.chunk_flop + shape.tokens * shape.heads * inverse


def test_a_prompt_moves_its_tokens_and_each_state_once() -> None:
    shape = RecurrenceShape("delta", 32, 16, 128, 128, 32, 32 * 4096)
    job = prefill_state_job(shape, chip())
    assert job.items == shape.states  # no head is cut
    token = 2 * (4 * 128) + 2 * 4  # queries, keys, values, outputs; a decay and a step
    assert jobs.job_cost("analytical", job).activity.memory_bytes == 2 * shape.state_bytes + shape.tokens * 32 * token

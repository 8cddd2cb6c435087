"""Room for recurrent states in local memories of pipelines: what stays is not read, and takes the room of what else would."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.config.question import Question
from dse.evaluators import evaluate, explain
from dse.evaluators.accounting.decode_segments import arrays_by_model
from dse.evaluators.accounting.pipelines import _lay_phases
from dse.evaluators.layouts.residency import CoreResidency
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from tests.samples import asked

SMALL = ("chip=npu64", "workload.batch=[8]", "workload.prompt=256", "workload.output=4")
STATES = "mapping.decode.state_share"


def of_states(*words: str) -> Question:
    """A model of which three layers of four have states."""
    return asked(
        *SMALL, "model=qwen3_1b7", "+model.qwen3_1b7.order='7 (3 state, full)'",
        "+model.qwen3_1b7.kinds={full:{},state:{recurrence:{rule:delta,heads:16,key_heads:8,key_dim:128,value_dim:128,conv:4}}}",
        *words,
    )  # fmt: skip


@cache
def of_any() -> Question:
    return of_states(f"+{STATES}=0")


def replaced_sram(question: Question, sram: float) -> Question:
    return replace(question, base=replace_leaves(question.base, {"chip.tile.sram": sram}))


def held(question: Question, **changes: Any) -> CoreResidency:
    """What the fullest core holds in decode."""
    (job,) = arrays_by_model(question.workload)
    design = replace_leaves(question.base, {f"mapping.{name.replace('__', '.')}": value for name, value in changes.items()})
    return _lay_phases(design, job)["decode"][1]


@given(
    st.floats(0, 0.9), st.floats(0, 1), st.sampled_from([1, 4, 16]), st.sampled_from([1, 4]),
    st.sampled_from(["k", "mn"]), st.sampled_from([1e5, 1e6, 4e6]),
)  # fmt: skip
@settings(max_examples=15, deadline=None)
def test_what_stays_and_what_does_not_are_all_there_is(
    share: float, kv: float, tp: int, pp: int, partition: str, sram: float
) -> None:
    given_sram = replaced_sram(of_any(), sram)
    settings = {"decode__tp": tp, "decode__pp": pp, "decode__partition": partition, "sram_kv_share": kv}
    pooled, apart = (
        held(given_sram, **settings, decode__state_share=None),
        held(given_sram, **settings, decode__state_share=share),
    )
    assert apart.kv + apart.states == pytest.approx(pooled.kv, rel=1e-12)
    assert pooled.states == 0 < apart.states
    for residency in (pooled, apart):
        assert residency.sram + residency.hbm == pytest.approx(
            residency.activations + residency.kv + residency.states + residency.weights, rel=1e-12
        )
        assert residency.sram <= max(sram, residency.activations) * (1 + 1e-12)
    room = max(sram - apart.activations, 0)
    assert apart.states_here * apart.states == pytest.approx(min(apart.states, share * room), rel=1e-12)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.4, 0.9])
def test_states_that_stay_are_not_read_from_memory(share: float) -> None:
    states = of_states(f"+{STATES}={share}", "chip.tile.sram='4 MB'", "mapping.both.tp=4", "mapping.both.pp=2")
    resident_share = float(np.max(held(states).states_here))
    assert (resident_share > 0) == (share > 0)
    rows = [row for row in explain(states.base, states.workload.cases[0]).rows if row.phase == "decode"]
    base = explain(replace_leaves(states.base, {STATES: 0.0}), states.workload.cases[0]).rows
    all_read = [row for row in base if row.phase == "decode"]
    read, whole = (sum(row.nbytes for row in rows_of_state if row.operator == "state") for rows_of_state in (rows, all_read))
    assert whole > 0
    assert read == pytest.approx((1 - resident_share) * whole, rel=1e-9)


def test_shares_side_by_side_are_those_of_each() -> None:
    states = of_states(f"+{STATES}=0", "chip.tile.sram='4 MB'")
    designs = [replace_leaves(states.base, {STATES: share}) for share in (0.0, 0.2, 0.9)]
    together = evaluate(stack_designs(designs), states.workload).columns
    for name in ("tpot", "sram_used", "hbm_used", "energy"):
        alone = [evaluate(stack_designs([design]), states.workload).columns[name][0] for design in designs]
        assert np.allclose(together[name], alone, rtol=1e-12), name


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("model=qwen3_1b7", f"+{STATES}=0.2"), "no model of the workload has recurrent states"),
        (
            ("model=qwen3_next_80b_a3b", "+mapping.prefill.state_share=0.2"),
            "mapping.prefill.state_share: .*set mapping.decode.state_share",
        ),
        (("model=qwen3_next_80b_a3b", f"+{STATES}=0.95"), "state_share"),
    ],
)
def test_room_for_states_that_cannot_be_is_refused(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(DesignError, match=message):
        asked(*SMALL, *words)


def test_pipelines_that_serve_keep_states_with_caches() -> None:
    with pytest.raises(DesignError, match="recurrent states are stored with the KV caches"):
        asked("chip=npu64", "workload=serving", "model=qwen3_next_80b_a3b", f"+{STATES}=0.2")

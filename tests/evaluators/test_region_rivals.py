"""Algorithms that kernels of a region choose by themselves: each is the quickest of the words, alone and in a batch."""

from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.config.question import Question
from dse.evaluators import METRICS, evaluate, explain
from dse.evaluators.accounting.decode_segments import arrays_by_model
from dse.evaluators.accounting.layout import layout_of
from dse.evaluators.calls.call import KernelCall
from dse.evaluators.cost_models import READERS
from dse.evaluators.cost_models import analytical as closed
from dse.evaluators.cost_models.fastest_algorithm import kernels_by_choice
from dse.evaluators.evaluation import explain_infeasibility
from dse.evaluators.kernels import gemm, gemv
from dse.evaluators.machine.machine import mesh_program_machine
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.mapping import AUTO
from tests.samples import asked

WORDS = {"gemm": gemm.GEMM_CANDIDATES, "gemv": gemv.GEMV_CANDIDATES}
EXAMPLES = settings(max_examples=8, deadline=None)


@cache
def wafer() -> Question:
    """One request on a wafer whose cores have room for a model on any region."""
    return asked(
        "chip=wse2", "model=llama3_8b", "workload.batch=[1]", "workload.prompt=64", "workload.output=8",
        "chip.core.sram='64 MB'", "mapping.prefill.rows=20", "mapping.decode.rows=24",
    )  # fmt: skip


@st.composite
def designs(draw: Any) -> Design:
    """Regions of any sides, on cores that post, pass on and multiply at any pace."""
    rates = {
        f"chip.core.{name}": draw(st.sampled_from([1.0, 4.0, 30.0])) for name in ("software_stage", "message_start", "launch")
    }
    sides = {
        f"mapping.{phase}.{side}": draw(st.integers(3, 24)) for phase in ("prefill", "decode") for side in ("rows", "cols")
    }
    depth = {"mapping.both.ktree_k": draw(st.integers(1, 3))}
    paths = {"chip.noc.routing_paths": draw(st.sampled_from([4, 7, 24]))}
    return with_words(replace_leaves(wafer().base, rates | sides | paths), **{k.split(".")[-1]: v for k, v in depth.items()})


def with_words(design: Design, **options: Any) -> Design:
    """A design with words or numbers of both phases."""
    return replace_leaves(
        design, {f"mapping.{phase}.{name}": value for phase in ("prefill", "decode") for name, value in options.items()}
    )


def calls(design: Design, fidelity: str = "analytical") -> list[tuple[KernelCall, Any]]:
    """Calls of both phases and their seconds."""
    job = arrays_by_model(wafer().workload)[0]
    found_phases = layout_of(design).phases(design, job, fidelity, detailed=True)[:2]
    return [
        pair for phase in found_phases for block in phase.timed for pair in zip(block.block.calls, block.durations, strict=True)
    ]


@given(designs())
@EXAMPLES
def test_each_kernel_has_the_quickest_of_the_words(design: Design) -> None:
    open_ = with_words(design, gemm=AUTO, gemv=AUTO)
    if explain_infeasibility(open_, wafer().workload) is not None:
        return
    by = {word: calls(with_words(design, **{kind: word})) for kind, words in WORDS.items() for word in words}
    for place, (call, seconds) in enumerate(calls(open_)):
        assert call.kernel is not None
        fitting = [rival.word for rival in call.kernel.rivals if rival.fits] or ["ktree"]  # who has no choice has it always
        assert np.array_equal(seconds, np.minimum.reduce([by[word][place][1] for word in fitting]))
        named = kernels_by_choice(call.kernel, mesh_program_machine(design.chip), closed.kernel_cost)
        assert all(any(by[word][place][0].kernel == name for word in fitting) for name in named)


@given(designs())
@settings(max_examples=2, deadline=None)
def test_events_play_what_the_closed_form_chooses(design: Design) -> None:
    sides = {f"mapping.{phase}.{side}": size for phase in ("prefill", "decode") for side, size in (("rows", 5), ("cols", 4))}
    design = replace_leaves(with_words(design, gemm=AUTO, gemv=AUTO, ktree_k=2), {**sides, "chip.noc.routing_paths": 24.0})
    machine = mesh_program_machine(design.chip)
    for (call, closed_), (_, events) in zip(calls(design), calls(design, "events"), strict=True):
        assert call.kernel is not None
        ways = kernels_by_choice(call.kernel, machine, closed.kernel_cost)
        assert not any(way.rivals for way in ways)
        by = [[READERS[word].kernel(way, machine).seconds * way.times for way in ways] for word in ("analytical", "events")]
        which = np.argmin(np.broadcast_arrays(*by[0]), axis=0)
        assert np.array_equal(closed_, np.choose(which, by[0]))
        assert np.array_equal(events, np.choose(which, by[1]))


@given(designs(), st.sampled_from(["gemm", "gemv"]))
@EXAMPLES
def test_no_word_is_quicker_than_all_together_and_what_any_can_do_is_done(design: Design, kind: str) -> None:
    workload, asked_ = wafer().workload, [with_words(design, **{kind: word}) for word in (*WORDS[kind], AUTO)]
    *single, auto = [
        (explain_infeasibility(design, workload), evaluate(stack_designs([design]), workload).columns["latency"][0])
        for design in asked_
    ]
    able = [latency for limit, latency in single if limit is None]
    assert (auto[0] is None) == bool(able)
    assert not able or auto[1] <= min(able) * (1 + 1e-12)


@given(st.lists(designs(), min_size=4, max_size=4))
@settings(max_examples=4, deadline=None)
def test_a_batch_whose_kernels_choose_is_its_singles(drawn: list[Design]) -> None:
    words, workload = [with_words(design, gemm=AUTO, gemv=AUTO) for design in drawn], wafer().workload
    many = evaluate(stack_designs(words), workload)
    for row, word in enumerate(words):
        alone = evaluate(stack_designs([word]), workload)
        assert many.limit[row] == alone.limit[0]
        for name in METRICS:
            assert many.columns[name][row] == pytest.approx(alone.columns[name][0], rel=1e-12, nan_ok=True), name


@pytest.mark.parametrize(("fidelity", "side"), [("analytical", 20), ("events", 6), ("cycles@3", 240)])
def test_the_breakdown_says_what_was_chosen_and_adds_up(fidelity: str, side: int) -> None:
    words, workload = with_words(wafer().base, gemm=AUTO, gemv=AUTO, rows=side, regions=1), wafer().workload
    words = replace_leaves(words, {"chip.core.software_stage": 0.0})
    explanation, case = explain(words, workload.cases[0], fidelity=fidelity), workload.cases[0]
    assert explanation.seconds == pytest.approx(
        evaluate(stack_designs([words]), workload, fidelity=fidelity).columns["latency"][0], rel=1e-9
    )
    chosen = {(row.phase, row.operator): row.shape.partition(" by ")[2] for row in explanation.rows}
    assert {chosen["prefill", name] for name in ("down", "scores", "values")} <= set(gemm.GEMM_CANDIDATES)
    assert chosen["decode", "softmax"] in gemv.GEMV_CANDIDATES
    assert chosen["decode", "rope"] == ""
    closed_ = {(row.phase, row.operator): row.shape.partition(" by ")[2] for row in explain(words, case).rows}
    assert chosen.items() <= closed_.items()


def test_a_word_that_nobody_has_is_refused() -> None:
    with pytest.raises(DesignError, match=r"mapping.prefill.gemm_ffn: no option 'atuo'"):
        evaluate(stack_designs([replace_leaves(wafer().base, {"mapping.prefill.gemm_ffn": "atuo"})]), wafer().workload)

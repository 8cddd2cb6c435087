"""Attention of an iteration of prompts and decodes: one launch for both, or one for each."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators.evaluation import evaluate
from dse.evaluators.kernels.library import decode_attention as generation
from dse.evaluators.kernels.library import library_kernel_time
from dse.evaluators.kernels.library import prefill_attention as context
from dse.evaluators.machine.library_die import DieLibraries, die_libraries
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from tests.samples import asked

BASE = asked("chip=h100", "stack=trtllm_h100", "mapping=sglang", "mapping.both.allreduce=library").base


def _libraries(launches: str) -> DieLibraries:
    libraries = die_libraries(
        BASE.chip, replace_leaves(BASE, {"mapping.stack.prefill_attention.launches": launches}).mapping.stack
    )
    assert libraries is not None
    return libraries


@settings(max_examples=60)
@given(
    st.integers(1, 4000).map(float), st.integers(1, 8).map(float), st.integers(0, 8000).map(float),
    st.integers(0, 512).map(float), st.integers(1, 16000).map(float), st.sampled_from([1.0, 8.0, 32.0]),
)  # fmt: skip
def test_two_launches_take_what_each_takes(
    m: float, prompts: float, past: float, decodes: float, keys: float, heads: float
) -> None:
    kv = max(1.0, heads / 8)
    each = 4 * 128 * kv
    moved = prompts * m * heads * 1024 + prompts * past * each
    alone = context.PrefillAttention(m, prompts, past + (m + 1) / 2, past + m, 0.0, 0.0, heads, 256.0, moved)
    single = generation.DecodeAttention(decodes, keys, heads, kv, 1.0, 256.0, decodes * keys * each, decodes * heads * 512)
    both = alone._replace(decodes=decodes, cached=keys, nbytes=moved + decodes * keys * each)
    problem = context.MixedBatchAttention(both, alone, single)
    two, kernel_time = _libraries("two"), library_kernel_time(problem, _libraries("two"))
    assert kernel_time is not None
    parts = [library_kernel_time(problem, two) for problem in (alone, single)]
    assert parts[0] is not None
    assert parts[1] is not None
    whole = parts[0].seconds() + (parts[1].seconds() if decodes else 0.0)
    assert float(kernel_time.seconds()) == pytest.approx(float(whole), rel=1e-12)
    time = library_kernel_time(problem, _libraries("one"))
    assert time is not None
    assert time.seconds() == library_kernel_time(both, _libraries("one")).seconds()  # type: ignore[union-attr]


def test_two_launches_need_a_part_for_decodes() -> None:
    lone = DieLibraries(_libraries("two").die, tuple(part for part in _libraries("two").parts if part[0] != "decode_attention"))
    alone = context.PrefillAttention(64.0, 1.0, 32.5, 64.0, 0.0, 0.0, 32.0, 256.0, 1e6)
    problem = context.MixedBatchAttention(alone, alone, generation.DecodeAttention(4.0, 64.0, 32.0, 8.0, 1.0, 256.0, 1e6, 1e4))
    with pytest.raises(DesignError, match=r"add mapping\.stack\.decode_attention, or set launches=one"):
        library_kernel_time(problem, lone)


def test_a_word_of_the_stack_decides_what_serving_takes() -> None:
    """Decodes that share a launch with prompts are not split over cores: long caches make that slower."""
    words = ["chip=h100", "stack=trtllm_h100", "workload=serving", "model=llama3_8b"]
    words += ["mapping.both.tp=1", "workload.requests=60", "workload.prompt=4000", "workload.output=64", "workload.rate=20 Hz"]
    tpot = []
    for launches in ("one", "two"):
        question = asked(*words, f"mapping.stack.prefill_attention.launches={launches}")
        evaluation = evaluate(stack_designs([question.base]), question.workload)
        assert evaluation.feasible.all()
        tpot.append(float(evaluation.columns["tpot"][0]))
    assert np.isfinite(tpot).all()
    assert tpot[1] < tpot[0]

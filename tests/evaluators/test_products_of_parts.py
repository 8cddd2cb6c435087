"""Matrix products of attention and of feed-forward parts each by an algorithm of their own, on a mesh of cores."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.evaluators import evaluate, explain
from dse.space.design import Design, stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from tests.samples import asked

WORDS = ("meshgemm", "cannon", "summa", "allgather", "t10", "ladder")
SIZES = ("workload.batch=[1]", "workload.prompt=300", "workload.output=3")
OF = asked("chip=wse2", "model=llama3_8b", *SIZES)


def design(rows: int, **words: str) -> Design:
    return replace_leaves(
        OF.base, {"mapping.prefill.rows": rows} | {f"mapping.prefill.{name}": word for name, word in words.items()}
    )


def prefilled(design: Design) -> dict[str, float]:
    """Seconds by part of a layer."""
    seconds_by_segment: dict[str, float] = {}
    for row in explain(design, OF.workload.cases[0]).rows:
        if row.phase == "prefill":
            seconds_by_segment[row.segment] = seconds_by_segment.get(row.segment, 0.0) + row.seconds
    return seconds_by_segment


@pytest.mark.sampled
@settings(max_examples=30, deadline=None)
@given(st.sampled_from(WORDS), st.sampled_from(WORDS), st.sampled_from(WORDS), st.integers(20, 700))
def test_each_part_takes_what_it_takes_where_all_are_alike(usual: str, attention: str, ffn: str, rows: int) -> None:
    mixed = prefilled(design(rows, gemm=usual, gemm_attention=attention, gemm_ffn=ffn))
    assert mixed["attention"] == pytest.approx(prefilled(design(rows, gemm=attention))["attention"], rel=1e-12)
    assert mixed["ffn"] == pytest.approx(prefilled(design(rows, gemm=ffn))["ffn"], rel=1e-12)
    (ttft,) = evaluate(stack_designs([design(rows, gemm=usual, gemm_attention=attention, gemm_ffn=ffn)]), OF.workload).columns[
        "ttft"
    ]
    assert sum(mixed.values()) == pytest.approx(ttft, rel=1e-9)


def test_a_batch_of_words_is_its_designs_one_by_one() -> None:
    rng = np.random.default_rng(9)
    designs = []
    for _ in range(20):
        words = {name: str(rng.choice(WORDS)) for name in ("gemm", "gemm_attention", "gemm_ffn")}
        designs.append(design(int(rng.integers(20, 700)), **words))
    together = evaluate(stack_designs(designs), OF.workload)
    for place, single_design in enumerate(designs):
        alone = evaluate(stack_designs([single_design]), OF.workload)
        assert together.limit[place] == alone.limit[0]
        for name, column in alone.columns.items():
            assert together.columns[name][place] == pytest.approx(column[0], rel=1e-12, nan_ok=True), name


def test_played_kernels_are_those_of_each_part() -> None:
    given_design = design(16, gemm="meshgemm", gemm_ffn="cannon")
    played = explain(given_design, OF.workload.cases[0], fidelity="events@4")
    usual = explain(design(16, gemm="meshgemm"), OF.workload.cases[0], fidelity="events@4")
    seconds = [
        {(row.segment, row.operator): row.seconds for row in explanation.rows if row.phase == "prefill"}
        for explanation in (played, usual)
    ]
    changed = {key[0] for key, value in seconds[0].items() if value != pytest.approx(seconds[1][key], rel=1e-9)}
    assert changed == {"ffn"}


@pytest.mark.parametrize(
    ("word", "why"),
    [
        ("+mapping.decode.gemm_ffn=summa", "mapping.decode.gemm_ffn: decode multiplies vectors"),
        ("+mapping.prefill.gemm_ffn=suma", "mapping.prefill.gemm_ffn: no option 'suma'; did you mean 'summa'"),
    ],
)
def test_what_nothing_reads_is_refused(word: str, why: str) -> None:
    def answered() -> None:
        question = asked("chip=wse2", "model=llama3_8b", word)
        evaluate(stack_designs([question.base]), question.workload)

    with pytest.raises(DesignError, match=why):
        answered()

"""What is refused is named by its address, with what would do: each refusal's advice is followed here, and then it runs."""

import re
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.config.compose import compose, find_study_folder
from dse.config.question import build_question
from dse.config.record_parser import CONSTANT, USUAL_CHOICES
from dse.evaluators import FIDELITIES, evaluate, fidelities
from dse.evaluators.evaluation import explain_infeasibility
from dse.execution.study import build_study
from dse.space.compatibility import CASE_TYPES, KINDS, PLURALS
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from tests.samples import asked


@pytest.mark.parametrize("fidelity", ["events", "cycles"])
def test_what_keeps_a_reader_from_a_part_of_a_mesh_is_named_and_without_it_the_reader_plays(fidelity: str) -> None:
    question = asked("chip=wse2_hbm")
    with pytest.raises(
        DesignError, match=rf"fidelity: {fidelity}@8 .*because of chip\.hbm.*fidelity=events; valid: analytical$"
    ):
        evaluate(stack_designs([question.base]), question.workload, fidelity=f"{fidelity}@8")
    assert "events" in fidelities(question.base, question.workload)
    assert fidelity in fidelities(replace_leaves(question.base, {"chip.hbm": None}), question.workload, part=True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("chip=tile32", "workload=serving"), "use static batches, workload=static"),
        (("chip=a100",), "chip.hbm, whose banks are not set; add +memory@chip.hbm.banks=hbm3"),
        (("chip=mesh8", "workload=traffic"), "does not support traffic patterns"),
        (("chip=hbm3", "workload=stream"), "this chip is a memory without cores"),
    ],
    ids=lambda words: words[0],
)
def test_a_reader_that_a_design_has_not_is_refused_with_those_that_it_has(words: tuple[str, ...], message: str) -> None:
    question = asked(*words)
    known = fidelities(question.base, question.workload)
    for fidelity in set(FIDELITIES) - set(known):
        with pytest.raises(DesignError, match=f"fidelity: {fidelity} .*; valid: {', '.join(known)}$") as refused:
            evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity)
        assert message in str(refused.value) or fidelity == "steady_state"


def test_every_kind_of_case_has_a_name_for_people() -> None:
    assert {*PLURALS} == {*CASE_TYPES.values()} | {case for _, case in KINDS}


LINES = [
    ("chip=tile_gh200", "model=qwen3_1b7", "mapping=flat_prefetch"),
    ("chip=npu64", "model=qwen3_4b", "workload=serving", "mapping=npu_serving_prefetch"),
    ("chip=a100", "stack=trtllm_a100"),
    ("chip=wse2_hbm", "mapping=waferllm_prefetch"),
]


def addresses(group: Any, prefix: str) -> Iterator[tuple[str, Any]]:
    """Addresses of groups of fields and of values below one; a constant, with its source, is a value."""
    for name, entry in group.items():
        yield f"{prefix}.{name}", entry
        if isinstance(entry, dict) and not set(entry) <= CONSTANT:
            yield from addresses(entry, f"{prefix}.{name}")


@pytest.mark.sampled
@pytest.mark.parametrize("line", LINES, ids=" ".join)
@given(st.data())
@settings(max_examples=4, deadline=None)
def test_a_word_for_a_group_and_a_group_for_a_word_are_refused_by_their_address(
    line: tuple[str, ...], data: st.DataObject
) -> None:
    config = compose(line)
    known = [
        address
        for root in ("chip", "mapping")
        for address in addresses(config[root], root)
        if address[0].split(".")[1] not in USUAL_CHOICES
    ]
    address, entry = data.draw(st.sampled_from(known))
    is_group = isinstance(entry, dict) and not set(entry) <= CONSTANT
    plus = "" if is_group else "+"  # which puts a field into a value too
    with pytest.raises(DesignError) as refused:
        build_question(compose([*line, f"{address}=cannon" if is_group else f"{plus}{address}={{odd: 1}}"]), Path())
    assert str(refused.value).startswith(f"{address}: ")
    assert re.search("group of fields" if is_group else "one value, not a group of fields", str(refused.value))


@given(st.permutations(["dataflow: flat_async", "rows: 2", "cols: 2", "queries: 0", "keys: 0"]), st.integers(1, 5))
@settings(max_examples=3, deadline=None)
def test_attention_that_serving_cannot_have_is_what_is_refused(fields: list[str], count: int) -> None:
    words = ("chip=npu64", "model=qwen3_4b", "workload=serving", "mapping=npu_serving")
    with pytest.raises(DesignError, match=r"^mapping\.prefill\.attention: .*remove it"):
        build_question(compose([*words, f"+mapping.both.attention={{{', '.join(fields[:count])}}}"]), Path())


CLASHES = [
    (("mapping=npu", "+space.mapping.both.partition=choice(k,meshgemm)", "+space.mapping.both.placement=choice(ring,mesh)"),
     "mapping.both.partition", ("mapping.both.partition=meshgemm",)),
    (
        ("mapping=npu_ktree", "+space.mapping.both.partition=choice(k,mn)"),
        "mapping.both.allreduce",
        ("mapping.both.partition=mn",),
    ),
    (
        ("mapping=npu_flat_attention", "+space.mapping.sram_kv_share=choice(0,0.5)"),
        "mapping.sram_kv_share",
        ("mapping.sram_kv_share=0.5",),
    ),
    (("mapping=npu_flat_attention", "+space.mapping.precision.kv=choice(fp16,int8)"), "mapping.precision.kv",
     ("mapping.precision.kv=int8",)),
]  # fmt: skip
"""Knobs whose words do not all go together, the address of the limit of those that do not, and one such design, typed."""


@pytest.mark.parametrize(("words", "address", "typed"), CLASHES, ids=lambda words: words[0] if isinstance(words, tuple) else "")
def test_words_that_do_not_go_together_are_one_infeasible_design_of_a_space(
    words: tuple[str, ...], address: str, typed: tuple[str, ...]
) -> None:
    """The others are what they are by themselves; typed by itself the design is refused in the same line."""
    question = asked("chip=npu64", "model=qwen3_1b7", "mapping.both.tp=16", "workload.batch=[2]", *words)
    designs = [
        question.space.design_at(question.space.row(question.space.grid(0, 4), row))
        for row in range(question.space.combinations or 0)
    ]
    outcomes = evaluate(stack_designs(designs), question.workload)
    refused = [row for row in range(len(designs)) if row in outcomes.refused]
    assert 0 < len(refused) < len(designs)
    for row, design in enumerate(designs):
        if row in refused:
            infeasibility = outcomes.row_outcome(row)
            assert infeasibility == explain_infeasibility(design, question.workload)
            assert infeasibility.limit == address  # type: ignore[union-attr]
            assert outcomes.refused[row] == f"{address}: {infeasibility.remedy}"  # type: ignore[union-attr]
        else:
            columns = evaluate(stack_designs([design]), question.workload).columns
            assert all(
                np.array_equal(column[row], columns[name][0], equal_nan=True) for name, column in outcomes.columns.items()
            )
    alone = asked("chip=npu64", "model=qwen3_1b7", "mapping.both.tp=16", "workload.batch=[2]", words[0], *typed)
    with pytest.raises(DesignError, match=f"^{re.escape(outcomes.refused[refused[0]])}$"):
        evaluate(stack_designs([alone.base]), alone.workload).require_compatible()


def test_a_study_whose_knobs_leave_such_words_as_they_are_is_refused() -> None:
    words = ("study=quickstart", "chip=npu64", "mapping=npu_ktree", "~space.chip", "~space.mapping", "report.lines=[]")
    tp, partition = "+space.mapping.both.tp=choice(16)", "+space.mapping.both.partition=choice(k,mn)"
    for knobs, refused in (((tp,), True), ((tp, partition), False)):
        config = compose([*words, "mapping.both.partition=mn", *knobs])
        with pytest.raises(DesignError, match="has no sums over a whole") if refused else nullcontext():
            build_study(config, find_study_folder(config))


def test_what_a_file_leaves_out_is_told_from_what_there_is_not() -> None:
    with pytest.raises(DesignError, match=r"^mapping\.stack\.gemm: this mapping leaves it out; \+mapping"):
        compose(["chip=a100", "mapping.stack.gemm=4"])
    with pytest.raises(DesignError, match=r"^mapping\.stack: no field 'mapping\.stack\.produce'"):
        compose(["chip=a100", "mapping.stack.produce=4"])
    with pytest.raises(DesignError, match=r"^mapping: null is not the name of a mapping; valid: .*flat, "):
        compose(["chip=a100", "mapping=null"])


@pytest.mark.parametrize("algorithm", ["two_level", "ring"])
def test_what_only_the_preset_says_falls_away_with_the_algorithm_that_reads_it(algorithm: str) -> None:
    words = ("chip=npu64", "model=qwen3_4b", "mapping=npu_ktree", f"mapping.both.allreduce.algorithm={algorithm}")
    sums = asked(*words).base.mapping.decode.allreduce
    assert (sums.algorithm, sums.ktree_k) == (algorithm, None)
    assert asked(*words[:3]).base.mapping.decode.allreduce.ktree_k == 2
    with pytest.raises(DesignError, match=rf"allreduce\.ktree_k: has no effect with {algorithm}"):
        asked(*words, "mapping.both.allreduce.ktree_k=3")
    both = "+space.mapping.both.allreduce.algorithm=choice(ktree,ring)"
    assert asked(*words, both).base.mapping.decode.allreduce.ktree_k == 2


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("workload.output=128",), "workload.output: has no effect without workload.prompt"),
        (("workload.prompt=512",), "workload.output: missing; set the number of output tokens"),
        (("study=quickstart", "workload.prompt=512"), "workload.prompt: has no effect with workload.lengths"),
        (("model=llama3_8b", "workload.expert_load=even"), "workload.expert_load: no model here has experts"),
        (("model.llama3_8b.layers=1000000000",), "model.llama3_8b.layers: 1,000,000,000 is above the maximum, 10,000"),
        (("precision.weights=fp7",), "precision: no field .*; did you mean mapping.precision.weights"),
        (("chip=[h100,a100]",), r"chip: one chip, not \[h100,a100\]; use dse compare chip=\[h100,a100\]"),
        (("chip=h100", "chip.hbm.bandwidth=[1 GB/s,2 GB/s]"), "chip.hbm.bandwidth: one value, not .*; a study tries several"),
    ],
    ids=lambda words: words[0],
)
def test_one_length_of_a_request_without_the_other_is_refused(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(DesignError, match=message):
        asked(*words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("workload.cv=3",), "workload.cv: arrivals=poisson does not use it; set arrivals=gamma"),
        (("workload.shuffle=true",), "workload.shuffle: needs a file; set workload.trace"),
        (("workload.rate_scale=2",), "workload.rate_scale: arrivals=poisson does not use it; set arrivals=trace"),
        (("workload.trace={trace}", "workload.prompt=100"), "workload.prompt: has no effect with workload.trace"),
        (("workload.trace={trace}", "workload.arrivals=trace", "workload.rate='3 Hz'"), "workload.rate: arrivals=trace has"),
    ],
    ids=lambda words: words[-1],
)
def test_what_other_loads_read_is_refused(words: tuple[str, ...], message: str, tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("arrival,prompt,output\n0,100,10\n1,200,20\n")
    config = compose(["chip=h100", "workload=serving", *(word.format(trace=trace) for word in words)])
    with pytest.raises(DesignError, match=message):
        build_question(config, tmp_path)


def test_a_sequence_beside_prompts_is_refused_where_it_is_typed() -> None:
    config = compose(["workload.prompt=100", "workload.output=10", "workload.sequence=[20]"])
    with pytest.raises(DesignError, match=r"workload\.sequence: has no effect with workload\.prompt"):
        build_question(config, Path())


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("block", "words", "message"),
    [
        ("prompt: 100, output: 10, sequence: [20]", (), "workload.sequence: has no effect with workload.prompt"),
        ("sequence: [20]", ("workload.prompt=100", "workload.output=10"), ""),
        ("sequence: [20], requests: 30", (), "workload.requests: needs a file; set workload.lengths"),
        ("prompt: 100, output: 10", ("workload.output_share=0.5",), "workload.output_share: has no effect with"),
        ("prompt: 100, output: 10, requests: null", (), ""),
        ("lengths: some.csv, batch: [1]", (), ""),
        (
            "lengths: some.csv, batch: [1]",
            ("workload.sequence=[20]",),
            "workload.sequence: has no effect with workload.lengths",
        ),
    ],
)
def test_the_file_of_a_study_is_held_to_the_same(
    block: str, words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says and nothing reads is refused as if it were typed; and gives way to what is typed."""
    folder = tmp_path / "studies" / "mine"
    folder.mkdir(parents=True)
    (folder / "study.yaml").write_text(f"question: which\nworkload: {{{block}}}\n")
    (folder / "some.csv").write_text("prompt,output\n" + "100,10\n" * 64)
    monkeypatch.chdir(tmp_path)
    config = compose(["study=mine", *words])
    if not message:
        build_question(config, folder)
        return
    with pytest.raises(DesignError, match=message):
        build_question(config, folder)


@pytest.mark.parametrize(
    "words",
    [
        ("workload=elementwise", "mapping=tensor_parallel"),
        (
            "workload=collective",
            "workload.pattern=allreduce",
            "workload.group_axis=rectangle",
            "workload.root=0",
            "workload.group=mesh",
            "workload.combine=sum",
            "mapping=sglang",
            "mapping.both.tp=4",
        ),
    ],
)
def test_what_reads_nothing_of_main_memory_meets_no_banks(words: tuple[str, ...]) -> None:
    question = asked("chip=h200", "stack=ideal", *words, "+memory@chip.hbm.banks=hbm3", "chip.hbm.banks.stacks=6")
    with pytest.raises(DesignError, match=r"fidelity: events simulates only main memory .*; use analytical$"):
        evaluate(stack_designs([question.base]), question.workload, fidelity="events")


@pytest.mark.parametrize("name", ["serving", "nothing"])
def test_a_part_of_presets_is_no_mapping_that_a_line_chooses(name: str) -> None:
    """Whether there is such a part or not."""
    with pytest.raises(DesignError, match=f"^mapping: parts/{name} is a part of presets and not a mapping; .*npu_serving"):
        compose(["chip=npu64", f"mapping=parts/{name}"])

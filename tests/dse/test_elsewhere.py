"""Constants of stacks say on which chips they were fitted, and answers on other chips say that."""

import csv
from pathlib import Path
from typing import Any

import pytest
import yaml

import dse
from dse.analysis.capacity import find_capacity
from dse.analysis.compare import collect_comparison_notes, compare_best_mappings
from dse.analysis.evaluation import Evaluation
from dse.commands import capacity_output as capacities
from dse.commands.evaluate_output import evaluation_record
from dse.config.compose import CONF, STUDIES
from dse.report.caveats import find_foreign_constant_caveats
from dse.space.errors import DesignError
from dse.studies.gpu_measured.fit import meant_for
from tests.dse.toy import toy

FEW = ("model=qwen3_1b7", "workload.batch=[1]", "workload.prompt=64", "workload.output=4")
LIBRARY = "mapping.both.allreduce=library"


def answer(*words: str) -> Evaluation:
    return dse.evaluate(*words, *FEW)


def test_parts_say_the_chip_that_they_were_fitted_on() -> None:
    with (STUDIES / "gpu_measured/results.csv").open() as file:
        chips = {(row["kind"], row["stack"]): row["chip"] for row in csv.DictReader(file)}
    files: dict[Any, Path] = {(path.parent.name, path.stem): path for path in (CONF / "library").rglob("*.yaml")}
    assert files.keys() == chips.keys()
    for (kind, stack), path in files.items():
        document, chip = yaml.safe_load(path.read_text()), chips[kind, stack]
        assert (document["fitted_on"], tuple(document.get("meant_for", ()))) == ([chip], meant_for(chip, kind))
        assert all((CONF / f"chip/{name}.yaml").exists() for name in (chip, *meant_for(chip, kind)))


def with_defaults(path: Path) -> dict[str, Any]:
    """What a stack's file says, and those stacks do that it starts from."""
    document: dict[str, Any] = yaml.safe_load(path.read_text())
    bases = [name for name in document.get("defaults", []) if isinstance(name, str) and name != "_self_"]
    return {key: value for name in bases for key, value in with_defaults(path.with_stem(name)).items()} | document


def test_flat_rates_that_were_fitted_say_where() -> None:
    for path in (CONF / "stack").glob("*.yaml"):
        document = with_defaults(path)
        fitted = any(isinstance(constant, dict) and constant.get("source") == "fitted" for constant in document.values())
        anywhere = path.stem == "unfitted"  # on rows of five vendors, so that it is of no chip
        assert (fitted and not anywhere) == ("fitted_on" in document), path.stem


@pytest.mark.parametrize(
    ("words", "note"),
    [
        ("chip=h100 stack=trtllm_h100 mapping.both.allreduce=library", ""),
        ("chip=h200 stack=trtllm_h100 mapping.both.allreduce=library", ""),
        ("chip=a100", ""),
        ("chip=h800 stack=vllm_allreduce_h100 mapping.both.allreduce=library", "ring_collectives, one_shot_allreduce on h100"),
        (
            "chip=mi300x stack=vllm_allreduce_h100 mapping.both.allreduce=library",
            "ring_collectives, one_shot_allreduce on h100",
        ),
        ("chip=mi300x stack=vllm_allreduce_h100 mapping.both.tp=1", ""),  # one die exchanges nothing
        ("chip=npu_dse stack=flash3_h100", "prefill_attention on h100"),
        ("chip=h100 stack=sglang_he2025", "flat rates on a100"),
        (
            "chip=h100 stack=sglang_he2025 +library/prefill_attention@mapping.stack.prefill_attention=flash3_h100",
            "flat rates on a100",
        ),
        (
            "chip=mi300x stack=flash3_h100 +library/gemm@mapping.stack.gemm=vllm_a100",
            "gemm on a100 and prefill_attention on h100",
        ),
    ],
)
def test_an_answer_says_what_was_fitted_on_other_chips(words: str, note: str) -> None:
    found_answer = answer(*words.split())
    chip, stack = found_answer.names["chip"], found_answer.names["stack"]
    wanted = f"stack={stack} was fitted on other chips ({note}); on chip={chip} it is extrapolated" if note else ""
    assert found_answer.extrapolation_text == wanted
    assert [text for name, text in found_answer.facts() if name == "not fitted"] == ([wanted] if note else [])
    assert evaluation_record(found_answer).extrapolated == (wanted or None)


def test_a_constant_that_is_typed_is_nobodys_fit() -> None:
    words = ("chip=h100", "stack=flash3_h100")
    sources = {source.address: source for source in answer(*words, "mapping.stack.prefill_attention.start=9us").sources}
    assert sources["mapping.stack.prefill_attention.start"].fitted_on == ()
    assert sources["mapping.stack.prefill_attention.achieved"].fitted_on == ("h100",)
    assert "h200" in sources["mapping.stack.prefill_attention.achieved"].meant_for


def test_a_constant_says_its_chip_before_its_group(tmp_path: Path) -> None:
    own = tmp_path / "mine/own.yaml"
    own.parent.mkdir()
    own.write_text("mapping: {stack: {operator_launch: {value: 5 us, source: fitted, fitted_on: [h100], note: mine}}}\n")
    words = ("--config-dir", str(tmp_path), "+mine@_global_=own", "stack=sglang_he2025", *FEW)
    chips = {source.address: source.fitted_on for source in dse.evaluate(*words, "chip=h100").sources}
    assert (chips["mapping.stack.operator_launch"], chips["mapping.stack.hbm_efficiency"]) == (("h100",), ("a100",))
    own.write_text("chip: {hbm: {strided_row_overhead: {value: 5 ns, source: fitted, fitted_on: [h100], note: mine}}}\n")
    with pytest.raises(DesignError, match=r"chip\.hbm\.strided_row_overhead: one value, not a group of fields"):
        dse.evaluate(*words, "chip=h100")


def test_chips_side_by_side_and_studies_say_it_too(tmp_path: Path) -> None:
    words = ("stack=flash3_h100", "mapping.both.tp=1")
    assert "(prefill_attention on h100); on chip=a100 it is extrapolated" in collect_comparison_notes(
        compare_best_mappings(["chip=[a100,h100]", *words, *FEW], "tpot")
    )
    constant_caveats = find_foreign_constant_caveats(toy(tmp_path, "chip=a100", "stack=flash3_h100"))
    several = find_foreign_constant_caveats(toy(tmp_path, "chips=[a100,h200]", "stack=flash3_h100"))
    assert (
        [(constant_caveat.kind, constant_caveat.what) for constant_caveat in constant_caveats]
        == [(caveat.kind, caveat.what) for caveat in several]
        == [("stack", "a100")]
    )


def test_a_deployment_says_it_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Of the best one: where it is of one die, nothing reads how dies exchange."""
    load = ("model=qwen3_1b7", "devices=2", "workload.requests=400", "workload.prompt=64", "workload.output=4")
    words = ("stack=vllm_allreduce_h100", "disaggregated=false", "workload.ttft=20ms", "workload.tpot=100ms", *load)
    of_two = ("mapping.both.tp=2", LIBRARY)
    several = (["chip=h100", *of_two], ["chip=mi300x", *of_two], ["chip=mi300x", "mapping.both.tp=1"])
    own, other, alone = (find_capacity([*overrides, *words]) for overrides in several)
    parts = "ring_collectives, one_shot_allreduce"
    wanted = f"stack=vllm_allreduce_h100 was fitted on other chips ({parts} on h100); on chip=mi300x it is extrapolated"
    notes = [capacities.capacity_record(sides).chips[0].extrapolated for sides in (own, other, alone)]
    assert notes == [None, wanted, None]
    capacities.write_capacity(other, tmp_path / "page.html", as_json=False)
    assert f"not fitted {wanted}" in " ".join(capsys.readouterr().out.split())


def test_chips_that_are_no_list_of_names_are_refused() -> None:
    with pytest.raises(
        DesignError, match=r"mapping\.stack\.prefill_attention\.fitted_on: 'a100' is not a list of chips by name"
    ):
        answer("chip=h100", "stack=flash3_h100", "mapping.stack.prefill_attention.fitted_on=a100")

"""A chip has the mapping and the number formats that it names, however it is chosen."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import OmegaConf

import dse
from dse.config.compose import _usual_of_composed, compose, find_study_folder
from dse.config.question import build_question
from dse.config.record_parser import USUAL_CHOICES
from dse.config.untrusted_files import SHIPPED_CONF
from dse.evaluators.evaluation import explain_infeasibility
from dse.space.compatibility import CASE_TYPES, KINDS, workload_name
from dse.space.compatibility import case_type_of as workload_kind
from dse.space.design import Design
from dse.space.machines import guess_machine
from tests.marks import slow_if

CHIPS = sorted(path.stem for path in (SHIPPED_CONF / "chip").glob("*.yaml"))
OTHERS = ("stream", "traffic")
"""Mappings of chips that are asked for something else than models; the name is that of the workload too."""


EACH_ALONE = ("a100", "npu64", "tile32", "mesh8_fast")
"""Chips with mappings of each sort, which are chosen by every way by itself too."""

LONGEST = {
    *EACH_ALONE, "ascend910c", "h100_ep", "mi300x", "npu256", "npu_dse", "tile_gh200", "tpu_v5p", "wafer64", "wafer64_nvlink",
    "wse2_hbm",
}  # fmt: skip
"""Chips that take long, some because they are the first of their sort that is composed."""


def design(config: dict[str, Any]) -> Design:
    return build_question(config, find_study_folder(config)).base


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@slow_if(lambda chip: chip in LONGEST)
@pytest.mark.sampled
@pytest.mark.parametrize("chip", CHIPS)
def test_a_chip_gives_the_same_design_by_every_way(chip: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    typed = compose([f"chip={chip}"])
    load = typed["choices"]["mapping"] if typed["choices"]["mapping"] in OTHERS else "static"
    if load in OTHERS:
        typed = compose([f"chip={chip}", f"workload={load}"])
    write(tmp_path / "studies/by/study.yaml", f"defaults: [override /chip: {chip}, override /workload: {load}]\n")
    write(tmp_path / "studies/mine/study.yaml", f"defaults: [override /chip: mine, override /workload: {load}]\n")
    write(tmp_path / "own/chip/mine.yaml", f"defaults: [{chip}, _self_]\n")
    ways = [["--config-dir=own", "study=mine"]]  # an own file, and a study that chooses it
    if chip in EACH_ALONE:
        ways += [["study=by"], ["--config-dir=own", "chip=mine", f"workload={load}"]]
    assert [design(compose(way)) for way in ways] == [design(typed)] * len(ways)


def test_an_own_file_runs_as_the_chip_that_it_is_made_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "chip/mine.yaml", "defaults: [a100, _self_]\n")
    what = ("model=llama3_70b", "mapping.both.tp=8")
    own, ours = (dse.evaluate(*chip, *what) for chip in (("-cd", ".", "chip=mine"), ("chip=a100",)))
    assert own.design == ours.design
    assert own.metrics["tpot"] == ours.metrics["tpot"]


STUDY = "defaults: [override /chip: npu64{}]\n"


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("words", "mapping"),
    [
        (["chip=a100"], "sglang"),
        (["chip=a100", "mapping=tensor_parallel"], "tensor_parallel"),
        (["chip=a100", "workload=serving"], "sglang_serving"),
        (["chip=npu_dse", "workload=serving"], "serving"),
        (["chip=h100_ep", "workload=serving"], "expert_parallel_serving"),
        (["chip=h100", "workload=experts"], "sglang"),
        (["chip=a100", "workload=gemm"], "sglang"),
        (["chip=npu_dse", "workload=collective"], "tensor_parallel"),
        (["chip=npu64", "workload=gemv"], "summa"),
        (["chip=dojo", "workload=gemm"], "product_dojo"),
        (["chip=npu64", "workload=serving"], "npu_serving"),
        (["chip=wse2", "workload=serving"], "waferllm_serving"),
        (["chip=wse3", "workload=serving"], "waferllm_serving"),
        (["chip=dojo", "workload=serving"], "waferllm_dojo_serving"),
        (["chip=tile32", "workload=serving"], "flat_serving"),
        (["chip=tile_gh200", "workload=serving"], "flat_serving"),
        (["chip=tile32", "workload=gemv"], "summa"),
        (["chip=tile32", "workload=attention"], "attention"),
        (["chip=mesh8_fast"], "traffic"),
        (["-cd=own", "chip=mine", "workload=serving"], "npu_serving"),
        (["-cd=own", "chip=npu64", "workload=load"], "npu_serving"),
        (["-cd=own", "chip=other"], "npu_t10"),
        (["-cd=own", "chip=other", "mapping.prefill.pp=2"], "npu_t10"),
        (["study=plain"], "npu"),
        (["study=plain", "chip=tile32"], "flat"),
        (["study=chosen"], "npu_t10"),
        (["study=chosen", "chip=tile32"], "npu_t10"),
        (["study=chosen", "mapping=npu_wsc_llm"], "npu_wsc_llm"),
        (["study=body"], "npu_waferllm"),
        (["+chip.mapping=tensor_parallel"], "tensor_parallel"),
    ],
    ids=" ".join,
)
def test_who_names_the_mapping(words: list[str], mapping: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user, else the study, else the composed chip for such a workload, else the workload, else the chip."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "own/chip/mine.yaml", "defaults: [npu64, _self_]\n")
    write(tmp_path / "own/chip/other.yaml", "defaults: [npu64, _self_]\nmapping: npu_t10\n")
    write(tmp_path / "own/workload/load.yaml", "defaults: [serving, _self_]\n")
    write(tmp_path / "studies/plain/study.yaml", STUDY.format(""))
    write(tmp_path / "studies/chosen/study.yaml", STUDY.format(", override /mapping: npu_t10"))
    write(tmp_path / "studies/body/study.yaml", STUDY.format("") + "chip: {mapping: npu_waferllm}\n")
    assert compose(words)["choices"]["mapping"] == mapping


@cache
def read(group: str, name: str) -> dict[str, Any]:
    """A file with those that it is made of; of a part from another folder, that it is there."""
    config = yaml.load((SHIPPED_CONF / group / f"{name}.yaml").read_text(), Loader=yaml.CSafeLoader)
    group_config: dict[str, Any] = {}
    for entry in config.pop("defaults", ["_self_"]):
        if isinstance(entry, dict):
            group_config |= {key.rpartition("@")[2].partition(".")[0]: {} for key in entry}
        else:
            group_config |= config if entry == "_self_" else read(group, entry)
    return group_config


def test_every_chip_brings_a_mapping_for_every_workload_that_something_runs_there() -> None:
    loads = {path.stem: read("workload", path.stem) for path in (SHIPPED_CONF / "workload").glob("*.yaml")}
    wrong = {}
    for chip in CHIPS:
        parts = {name: part if part is None or name in USUAL_CHOICES else {} for name, part in read("chip", chip).items()}
        machine = guess_machine(name for name, part in parts.items() if part is not None)
        for name, load in loads.items():
            kind = KINDS.get((machine, workload_kind(load)))
            named = _usual_of_composed(OmegaConf.create({"chip": parts, "workload": load}), {"mapping": "usual"}, ("", "", ""))[
                0
            ]
            if kind is not None and named not in kind.mappings:
                wrong[chip, name] = named
    assert not wrong


def test_every_mapping_that_ships_is_for_some_kind_of_case() -> None:
    assert {name for kind in KINDS.values() for name in kind.mappings} == {
        path.stem for path in (SHIPPED_CONF / "mapping").glob("*.yaml")
    }


def test_a_product_fits_a_tray_of_dojo() -> None:
    question = build_question(compose(["chip=dojo", "workload=gemm"]), Path())
    assert explain_infeasibility(question.base, question.workload) is None


def test_every_kind_of_workload_is_called_as_its_file() -> None:
    names = {path.stem for path in (SHIPPED_CONF / "workload").glob("*.yaml")}
    assert {
        workload_name({field: "gemm", "kernel": "gemm"} if field == "kernel" else {field: 1}) for field in CASE_TYPES
    } < names


FIELDS = "both: {tp: 8, partition: mn}"
BOTH = {
    "study": ("studies/mine/study.yaml", f"mapping: {{{FIELDS}, decode: {{tp: 4}}}}\n", "study=mine"),
    "mapping": ("own/mapping/mine.yaml", f"defaults: [npu, _self_]\n{FIELDS}\ndecode: {{tp: 4}}\n", "mapping=mine"),
}


@pytest.mark.sampled
@pytest.mark.parametrize("where", BOTH)
def test_both_phases_are_set_in_one_word_in_a_file(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    path, text, word = BOTH[where]
    write(tmp_path / path, text)
    arguments = ["--config-dir=own", "chip=npu64", word]
    mapping = compose(arguments)["mapping"]
    assert [mapping[phase][key] for phase in ("prefill", "decode") for key in ("tp", "partition")] == [8, "mn", 4, "mn"]
    assert compose([*arguments, "mapping.prefill.tp=2"])["mapping"]["prefill"]["tp"] == 2
    assert compose([*arguments, "mapping.both.tp=2"])["mapping"]["decode"]["tp"] == 2
    assert "both" not in mapping


@pytest.mark.sampled
@pytest.mark.parametrize("chip", ["h100", "npu_dse"])
def test_a_chip_is_asked_in_the_same_formats_whatever_it_is_asked(chip: str) -> None:
    """A batch of one, the same request served and a kernel by itself are comparable: all of them read ahead, or none."""
    mappings = [design(compose([f"chip={chip}", f"workload={load}"])).mapping for load in ("static", "serving", "experts")]
    assert len({repr((mapping.precision, mapping.prefill.prefetch, mapping.decode.prefetch)) for mapping in mappings}) == 1


def test_gpus_serve_as_they_run_batches() -> None:
    named = {chip: (read("chip", chip).get("mapping"), read("chip", chip).get("mapping_serving")) for chip in CHIPS}
    assert all((mapping == "sglang") == (serving == "sglang_serving") for mapping, serving in named.values()), named

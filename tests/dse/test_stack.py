"""A die has the stack of software that its chip names, unless another is chosen; what has no caches has none."""

from pathlib import Path

import pytest

import dse
from dse.config.compose import compose, find_study_folder
from dse.config.question import build_question
from dse.config.untrusted_files import SHIPPED_CONF
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.machines import POOL, POOLED, machine_of

CHIPS = sorted(path.stem for path in (SHIPPED_CONF / "chip").glob("*.yaml"))
STACKS = sorted(path.stem for path in (SHIPPED_CONF / "stack").glob("*.yaml"))
FEW = ("model=qwen3_1b7", "workload.batch=[1]", "workload.prompt=64", "workload.output=4")


def design(*words: str) -> Design:
    config = compose(words)
    return build_question(config, find_study_folder(config)).base


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("words", "stack"),
    [
        ([], "ideal"),
        (["chip=a100"], "trtllm_v1"),
        (["chip=a100", "workload=serving"], "trtllm_v1"),
        (["chip=a100", "workload=gemm", "mapping=tensor_parallel"], "trtllm_v1"),
        (["chip=ascend910b"], "unfitted"),
        (["chip=ascend910b", "stack=cann_yuzuguler2025"], "cann_yuzuguler2025"),
        (["chip=npu64"], None),
        (["-cd=own", "chip=mine"], "trtllm_v1"),
        (["-cd=own", "chip=other"], "nccl_a100"),
        (["-cd=own", "chip=other", "mapping.stack.hbm_efficiency=0.5"], "nccl_a100"),
        (["study=plain"], "unfitted"),
        (["study=plain", "chip=npu_dse"], "ideal"),
        (["study=chosen"], "nccl_a100"),
        (["study=chosen", "stack=ideal"], "ideal"),
        (["study=body"], "nccl_a100"),
    ],
    ids=str,
)
def test_who_names_the_stack(words: list[str], stack: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user, else the study, else the composed chip."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "own/chip/mine.yaml", "defaults: [a100, _self_]\n")
    write(tmp_path / "own/chip/other.yaml", "defaults: [a100, _self_]\nstack: nccl_a100\n")
    write(tmp_path / "studies/plain/study.yaml", "defaults: [override /chip: ascend910b]\n")
    write(tmp_path / "studies/chosen/study.yaml", "defaults: [override /chip: ascend910b, override /stack: nccl_a100]\n")
    write(tmp_path / "studies/body/study.yaml", "defaults: [override /chip: ascend910b]\nchip: {stack: nccl_a100}\n")
    assert compose(words)["choices"].get("stack") == stack


@pytest.mark.sampled
@pytest.mark.parametrize("chip", CHIPS)
def test_dies_with_a_cache_have_a_stack_and_others_have_none(chip: str) -> None:
    config = compose([f"chip={chip}"])
    pooled = "l2" in config["chip"]
    assert (config["mapping"].get("stack") is not None) == pooled
    if pooled:
        assert machine_of(design(f"chip={chip}").chip) in (POOL, POOLED)


@pytest.mark.sampled
@pytest.mark.parametrize("stack", STACKS)
def test_every_stack_runs_on_every_die(stack: str) -> None:
    ideal = dse.evaluate("chip=a100", "stack=ideal", *FEW).metrics["latency"]
    rings = "library/ring_collectives" in (SHIPPED_CONF / f"stack/{stack}.yaml").read_text()  # which no other allreduce reads
    more = ("mapping.both.allreduce=library",) if rings else ()
    assert dse.evaluate("chip=a100", f"stack={stack}", *FEW, *more).metrics["latency"] >= ideal


def test_a_stack_is_refused_where_nothing_reads_it() -> None:
    with pytest.raises(DesignError, match=r"mapping\.stack: .* does not read it"):
        design("chip=wse2", "stack=tuned")


@pytest.mark.parametrize("words", [("chip=a100", "mapping=waferllm"), ("chip=wse2", "mapping=tensor_parallel")], ids=" ".join)
def test_a_mapping_for_another_machine_is_refused_as_that(words: tuple[str, str]) -> None:
    with pytest.raises(DesignError, match=r"mapping: the chosen mapping is for .*; for models on .* choose mapping="):
        design(*words)


def test_a_stack_that_there_is_not_is_named_with_those_that_there_are() -> None:
    with pytest.raises(DesignError, match="stack: no option 'tund'; did you mean 'tuned'"):
        design("chip=a100", "stack=tund")


OLD = """
cores: 100
core: {matrix: 2 Top/s, vector: 0.5 Top/s, attention_passes: 3, achieved: 0.5}
l2: {size: 40 MB, bandwidth: 7 TB/s}
hbm: {capacity: 80 GB, bandwidth: 2 TB/s, gap: 0 s, waste: 0}
network: {ports: 2, bandwidth: 150 GB/s, latency: 5 us, latency_per: collective, achieved: 0.25, call: 10 us}
operator_overhead: 2 us
defaults: [npu_dse, _self_]
"""
NEW = [
    "mapping.stack.attention_passes=3",
    "mapping.stack.matrix_efficiency=0.5",
    "mapping.stack.network_efficiency=0.25",
    "mapping.stack.collective_launch=10 us",
    "mapping.stack.operator_launch=2 us",
]


def test_a_chip_that_was_written_before_there_were_stacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "chip/old.yaml", OLD)
    overrides = ("-cd=.", "chip=old", "mapping.both.tp=8")
    old, bare = design(*overrides), design(*overrides, "stack=ideal")
    assert bare != old
    assert design(*overrides, "stack=ideal", *NEW) == old
    assert design(*overrides, "mapping.stack.matrix_efficiency=0.75") == design(*overrides, "chip.core.achieved=0.75") != old

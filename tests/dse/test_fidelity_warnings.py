"""Lines of an answer on contention that its fidelity does not count."""

import csv

import pytest

from dse.analysis.evaluation import evaluate_config
from dse.analysis.fidelity_warnings import WARNINGS
from dse.config.compose import compose
from dse.studies.what_closed_misses.stored_gaps import HERE, read_gaps

MODEL = ["model=qwen3_1b7", "workload.batch=[2]", "workload.prompt=[64]", "workload.output=[4]"]
TILES = ["chip=tile32", "chip.mesh.rows=8", "chip.mesh.cols=8", "chip.hbm.channels=8"]
BANKS = ["chip=h100", "+memory@chip.hbm.banks=hbm3", "chip.hbm.banks.stacks=5", "stack=ideal"]
NODES = ["chip=h800_ep", "chip.dies.rows=4", "mapping.both.ep=16", "model=deepseek_v2_lite", "workload.batch=[64]"]


def warnings(*words: str) -> str:
    return " ".join(text for name, text in evaluate_config(compose([*MODEL, *words])).facts() if name == "not counted")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ([*TILES, "mapping=flat_prefetch"], "prefetch beside operators"),
        ([*TILES, "chip.noc.vcs=1"], "one virtual channel"),
        (NODES, "experts over two nodes"),
        (BANKS, "cores side by side on banks"),
    ],
)
def test_a_design_is_warned_of_what_its_fidelity_misses(words: list[str], text: str) -> None:
    assert text in warnings(*words)


@pytest.mark.parametrize(
    "words",
    [
        TILES,
        [*TILES, "chip.noc.word_bytes=32B"],
        ["chip=h100"],
        ["chip=npu64"],
        [*NODES, "mapping.both.ep=8"],
        [*BANKS, "fidelity=events"],
    ],
)
def test_other_designs_are_not_warned(words: list[str]) -> None:
    assert warnings(*words) == ""


def test_a_kernel_alone_is_not_warned() -> None:
    words = [*TILES, "chip.noc.vcs=1", "workload=gemm", "workload.shapes=[64x64x64]"]
    assert evaluate_config(compose(words)).warnings == []


def test_stated_gaps_are_those_that_the_study_measured() -> None:
    gaps = [gap for gap in read_gaps() if not gap.refusal]
    with (HERE / "overlaps.csv").open(newline="") as file:
        overlaps = [row for row in csv.DictReader(file) if row["what"].startswith("prefetch")]
    together = max(float(row["together"]) / max(float(row["first"]), float(row["second"])) - 1 for row in overlaps)
    banks = max(gap.gap for gap in gaps if gap.family == "dies with a cache")
    nodes = max(gap.gap for gap in gaps if gap.family == "nodes of dies")
    texts = [warning.text for warning in WARNINGS]
    for share, text in zip((together, None, nodes, banks), texts, strict=True):
        assert share is None or f"{share:.0%}".replace("%", " %") in text, text

"""The accuracy that the project promises on published figures, and that READMEs say what comes out."""

import csv
import os
from pathlib import Path

import pytest

from dse.accuracy.tolerances import read_known_misses, row_tolerance
from dse.accuracy.validate import COLUMNS, ValidationRow, compare_file, parse_value_range, simulate_metric
from dse.commands.notebook_api import find_study, find_study_paths
from dse.commands.validate_all import ValidatedRow
from dse.studies.write import PAPERS, VERDICTS, line, names, rows_of_paper, written_document
from tests.marks import slow_if

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "studies").glob("*/published.csv"))
SHARED = ROOT.parent / "shared" / "validation" / "published.csv"


def test_every_speedup_of_table_1_is_within_fifteen_hundredths() -> None:
    rows = [row for row in compare_file(ROOT / "studies/preserve_table1/published.csv") if row.unit == "ratio"]
    assert len(rows) == 10
    for row in rows:
        assert row.simulated == pytest.approx(float(row.published), abs=0.15), row.id


@pytest.mark.parametrize("model", ["llama3_8b", "llama3_70b", "qwen2_7b", "qwen2_72b", "phi3_small", "phi3_medium"])
def test_prefetching_gains_most_on_as_many_devices_as_the_text_of_table_1_says(model: str) -> None:
    study = "study=preserve_table1", f"model={model}"
    gain = {
        tp: simulate_metric((*study, f"mapping.prefill.tp={tp}"), "ratio(mapping.prefill.prefetch=none, throughput)")
        for tp in (2, 4, 8)
    }
    most = 2 if model == "qwen2_7b" else 4
    assert max(gain, key=lambda tp: gain[tp] or 0.0) == most


def test_the_gain_and_the_optimum_of_figure_6_come_out() -> None:
    rows = {row.id: row for row in compare_file(ROOT / "studies/preserve_l2/published.csv")}
    assert rows["p-f6-gain"].simulated == pytest.approx(1.25, abs=0.05)
    assert rows["p-f6-l2-on"].simulated == pytest.approx(104, abs=32)
    assert rows["p-f6-l2-off"].simulated == 8


@pytest.mark.slow
def test_multicasts_in_the_network_gain_what_is_published_at_large_sizes() -> None:
    rows = {row.id: row for row in compare_file(ROOT / "studies/flat_fig7/published.csv")}
    for name in ("f-mc-tree", "f-mc-seq"):
        for size in ("", "-64k", "-384k"):
            assert abs(rows[name + size].error or 0.0) < 0.10


LONG = {
    "README",
    "accuracy",
    "capacity",
    "flat_fig1",
    "flat_fig7",
    "flat_fig9",
    "flat_models",
    "mesh_llm",
    "gpu_deployments",
    "npusim_fig10",
    "preserve_table1",
    "residuals",
    "d2d_bandwidth",
    "deepseek_wafer",
    "engines",
    "ep_placement",
    "flat_coexplore",
    "constant_weights",
    "flat_fig8",
    "flat_fig12",
    "gpu_measured",
    "hbm_in_models",
    "machines",
    "hbm_patterns",
    "joint_probe",
    "long_context",
    "sparse_gather",
}
"""Studies whose findings take more than some ten seconds to compute, and the table of all: FINDINGS=all asks of these too.
Lines of README's table whose studies are all quick are asked always.

A result that changes is noticed by the golden set; whoever writes that again writes the findings again as well.
"""

LONGEST = {
    "npu_serving", "npusim_fig13", "npusim_fig14", "npusim_fig7", "npusim_fig9", "preserve_l2", "silicon", "six_chips",
    "split_pools", "waferllm_tables",
}  # fmt: skip
"""Of the others, those that take longest."""

LEFT_OUT = set() if os.environ.get("FINDINGS") == "all" else LONG


@pytest.mark.parametrize("name", find_study_paths())
def test_a_study_that_ships_can_be_run_as_it_stands(name: str) -> None:
    assert find_study(name).question.workload.cases


@slow_if(lambda name: name in LONGEST)
@pytest.mark.parametrize("name", [name for name in names() if name not in LEFT_OUT | {VERDICTS}])
def test_a_finding_says_what_comes_out(name: str) -> None:
    """Verdicts of claims are asked of in tests/validation/test_claims.py."""
    old, new = written_document(name)
    assert old == new, f"run python -m dse.studies.write {name}"


def test_the_summary_leaves_no_study_out() -> None:
    assert not [path for path in FILES if not path.parent.name.startswith(tuple(PAPERS))]


@pytest.fixture(scope="module")
def quick() -> dict[str, list[ValidationRow]]:
    """Rows of the studies that are asked, simulated."""
    return {path.parent.name: compare_file(path) for path in FILES if path.parent.name not in LEFT_OUT}


def test_a_check_is_said_to_hold_or_is_among_the_misses(quick: dict[str, list[ValidationRow]]) -> None:
    """Whoever makes a check hold takes it off the list, and whoever breaks one says why there."""
    failing = {
        (study, row.id)
        for study, rows in quick.items()
        for row in rows
        if row.role == "check" and ValidatedRow(study, row, row_tolerance(study, row.id), "").fails
    }
    assert failing == {(study, row) for study, row in read_known_misses() if study not in LEFT_OUT}
    assert {study for study, _ in read_known_misses()} <= {path.parent.name for path in FILES}


def test_the_readme_says_how_far_off_papers_are(quick: dict[str, list[ValidationRow]]) -> None:
    """Of papers all of whose studies are asked."""
    known = {path.parent.name for path in FILES}
    prefixes = [prefix for prefix in PAPERS if all(study in quick for study in known if study.startswith(prefix))]
    assert {"waferllm", "noc", "silicon"} <= set(prefixes)
    text = (ROOT / "README.md").read_text()
    for prefix in prefixes:
        assert "| " + " | ".join(line(PAPERS[prefix], rows_of_paper(prefix, quick))) + " |" in text


VARIED = {
    "noc_curves": ("chip.router.",),
    "npusim_fig8": ("chip.tile.sram", "chip.tile.matrix.", "chip.hbm.channel_bandwidth"),
    "npusim_fig12": ("chip.decode.", "chip.tile.matrix.", "chip.hbm.channel_bandwidth"),
    "npusim_fig13": ("chip.tile.sram",),
    "npusim_fig14": ("chip.decode.",),
    "gpu_deployments": ("chip.dies.rows",),
    "engines": ("chip.dies.", "chip.nodes.size"),
    "silicon": (
        "chip.cores",
        "chip.clock",
        "chip.core.",
        "chip.hbm.bandwidth",
        "chip.dram.device_bandwidth",
        "chip.published=null",  # the model's own figures are what these rows score
    ),
}
"""Studies of figures whose axes are the chip's: what the paper varies there ([zhu2025] table 3), nodes, or a card."""

MACHINES = {
    "waferllm_tables": 2,
    "npusim_fig10": 2,
    "deepseek_wafer": 3,
    "silicon": 16,
    "gpu_measured": 4,
    "gpu_deployments": 3,
    "engines": 12,
}
"""Studies that compare a wafer with GPUs, large cores with small ones, chips that exist, GPUs; a table with clusters too."""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_rows_state_only_what_the_paper_states(path: Path) -> None:
    """No chip constant in a row but what the figure varies, and one chip for each machine of a paper."""
    with path.open() as file:
        rows = list(csv.DictReader(file))
    assert rows
    assert tuple(rows[0]) == COLUMNS
    for row in rows:
        given = (row["overrides"] + " " + row["baseline"]).split()
        given = [override for override in given if not override.startswith(VARIED.get(path.parent.name, ("nothing",)))]
        assert not [override for override in given if override.startswith(("chip.", "+chip.", "technology"))]
    chips = {override for row in rows for override in row["overrides"].split() if override.startswith("chip=")}
    assert len(chips) <= MACHINES.get(path.parent.name, 1)


@pytest.mark.skipif(not SHARED.exists(), reason="the collected figures are not beside this checkout")
def test_figures_are_keyed_as_collected() -> None:
    with SHARED.open() as file:
        collected = {row["id"]: row["value"] for row in csv.DictReader(file)}
    for path in FILES:
        with path.open() as file:
            for row in csv.DictReader(file):
                if row["id"] in collected:
                    assert parse_value_range(row["value"]) == parse_value_range(collected[row["id"]]), row["id"]

"""Certified fronts of serving loads: random boxes show by how much a faster chip is slower at most."""

import re
from pathlib import Path

import numpy as np
import pytest

from dse.commands.notebook_api import find_study
from dse.evaluators import evaluate
from dse.evaluators.accounting.leaf_effects import SERVED_MARGIN
from dse.execution.certify import Certifier, describe_certificate
from dse.execution.study import Study
from dse.search.pareto import front_mask
from dse.space.errors import DesignError
from tests.dse.test_certify import count_violations
from tests.marks import slow_if

LOAD = (
    "quickstart",
    "search=certify",
    "workload=serving",
    "~workload.lengths",
    "~workload.batch",
    "workload.requests=null",
    "~constraints.ttft",
    "report.lines=[]",
)
AT_RATE = (
    *LOAD, "fidelity=steady_state", "+constraints.slo_attainment='>= 0.9'", "+objectives.ttft=min",
    "+objectives.goodput=max", "chip.die.dies=1", "+objectives.capital_per_mtoken=min",
)  # fmt: skip
AT_MAX_RATE = (
    *LOAD, "fidelity=steady_state", "model=llama3_8b", "workload.rate=max", "workload.ttft='2 s'", "workload.tpot='40 ms'",
    "~objectives.throughput_per_system_mm2", "~objectives.tpot", "+objectives.capacity_per_mm2=max",
    "+objectives.max_rate=max", "+objectives.system_mm2=min",
)  # fmt: skip
TILES = (
    "mesh_llm", "search=certify", "chips=[tile_gh200]", "~objectives.energy_per_token", "~objectives.price_per_mtoken",
    "+objectives.system_mm2=min", "+objectives.max_rate=max",
)  # fmt: skip
DIES = ("mesh_llm", "search=certify", "chips=[npu_dse]", *TILES[3:])
QUESTIONS = {
    "dies at 2 Hz": (*AT_RATE, "model=llama3_8b", "workload.rate='2 Hz'"),
    "dies near overload": (*AT_RATE, "workload.rate='4 Hz'", "+objectives.tbt_p99=min"),
    "dies at the maximum rate": AT_MAX_RATE,
    "dies of mesh_llm": DIES,
    "tiles of mesh_llm": TILES,
}


def study_of(folder: Path, words: tuple[str, ...]) -> Study:
    return find_study(words[0], *words[1:], f"run_dir={folder}")


@slow_if(lambda count: count > 100)
@pytest.mark.parametrize(("question", "count"), [("dies near overload", 100), *((name, 2_000) for name in QUESTIONS)])
def test_no_design_of_a_random_box_beats_its_bound(question: str, count: int, tmp_path: Path) -> None:
    assert count_violations(study_of(tmp_path, QUESTIONS[question]), count, seed=count, draws=2, feasible_alone=True)[:2] == (
        0,
        0,
    )


def test_areas_of_the_fastest_corner_are_no_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Throughput over the area of the fastest corner is beaten by smaller chips, which random boxes find."""
    from dse.execution import serving_box_bounds

    monkeypatch.setattr(serving_box_bounds, "BASES", {})
    assert (
        count_violations(study_of(tmp_path, QUESTIONS["dies near overload"]), 60, seed=1, draws=1, feasible_alone=True)[0] > 0
    )


GRID = ("space.chip.cores=range(200, 601, 100)", "space.chip.l2.size='tag(MB, choice(16, 64, 128))'",
        "space.chip.network.bandwidth='tag(GB/s, choice(50, 200))'", "space.chip.hbm.bandwidth='tag(TB/s, choice(1, 2, 4))'",
        "space.mapping.both.prefetch=choice(none)", "space.mapping.both.tp=choice(4,8)")  # fmt: skip


def test_a_certified_front_of_a_grid_is_its_exact_front(tmp_path: Path) -> None:
    """A gap of 0 leaves no design of the grid better than the front, although bounds are loosened."""
    words = [word for word in AT_RATE if "capital" not in word and "goodput" not in word and "ttft=min" not in word]
    study = study_of(tmp_path, (*words, *GRID, "workload.rate='3 Hz'", "search.gap=0"))
    certificate = Certifier(study).run(lambda gap, boxes, open_boxes: None)
    space = study.question.space
    columns = space.grid(0, space.combinations or 0)
    found = evaluate(
        space.stack(columns), study.question.workload, fidelity="steady_state", metrics=[*study.objectives, "slo_attainment"]
    )
    good = (found.limit < 0) & (found.columns["slo_attainment"] >= 0.9)
    values = np.column_stack([found.columns[name] for name in study.objectives])[good]
    exact = values[front_mask(values, study.directions)]
    members = np.array([[row["metrics"][name] for name in study.objectives] for row in certificate.record["front"]])
    np.testing.assert_allclose(members[np.lexsort(members.T)], exact[np.lexsort(exact.T)], rtol=1e-12)
    assert certificate.record["margins"] == {"tpot": SERVED_MARGIN, "throughput_per_system_mm2": SERVED_MARGIN}
    first, rests, _ = describe_certificate(certificate.record)
    assert first.startswith("as far as sampled directions hold, no design among ")
    assert "bounds are loosened by 4 %" in rests


REFUSED = {
    "overload": ((*LOAD, "fidelity=steady_state", "workload.rate='2 Hz'"), "constraints.slo_attainment='>= 0.9'"),
    "energy": ((*AT_RATE, "workload.rate='2 Hz'", "+objectives.energy_per_token=min"), "has no lower bound over boxes"),
    "simulation": ((*LOAD, "fidelity=analytical", "workload.rate='2 Hz'"), "set fidelity=steady_state"),
    "small gap": ((*AT_MAX_RATE, "search.gap=1%"), "search.gap: bounds of serving loads are loosened by 4 %"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_bounds_is_refused_in_one_line(name: str, tmp_path: Path) -> None:
    words, text = REFUSED[name]
    with pytest.raises(DesignError, match=re.escape(text)) as refused:
        Certifier(study_of(tmp_path, words))
    assert "\n" not in str(refused.value)


def test_the_one_chip_of_a_study_of_several_is_certified(tmp_path: Path) -> None:
    """Members name their chip, as stored designs of such a study do."""
    study = study_of(tmp_path, (*DIES, "search.boxes=1"))
    certifier = Certifier(study)
    assert certifier.members()
    assert all(member["chip"] == "npu_dse" for member in certifier.members())

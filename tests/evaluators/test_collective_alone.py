"""A collective by itself: batch = one by one, readers agree, limits as values, the crossover at small sizes."""

from typing import Any

import numpy as np
import pytest

from dse.evaluators import evaluate, explain
from dse.evaluators.evaluation import explain_infeasibility
from dse.evaluators.kernels.collective import TEAMS
from dse.evaluators.machine.mesh_fabric import with_vector_reduction
from dse.space.chip import TOPOLOGIES
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from dse.space.workload import DIE_EXCHANGES as EXCHANGED
from dse.space.workload import TILE_PATTERNS
from tests.samples import asked

ALONE = ("chip=tile32", "workload=collective", "workload.pattern=[multicast,reduce,allreduce]", "workload.bytes=[1KiB,64KiB]")


def cycles(*overrides: str) -> float:
    asked_ = asked("chip=tile32", "workload=collective", *overrides)
    return float(evaluate(stack_designs([asked_.base]), asked_.workload, fidelity="events").columns["cycles"][0])


def test_a_root_at_a_place_is_one_in_meshes_that_differ() -> None:
    """Of which one has no such place: that is a limit, and the others do not notice."""
    asked_ = asked(*ALONE, "workload.group_axis=column", "workload.root=5")
    designs = [replace_leaves(asked_.base, {"chip.mesh.rows": rows}) for rows in (4, 8, 32)]
    together = evaluate(stack_designs(designs), asked_.workload)
    singles = [evaluate(stack_designs([design]), asked_.workload).columns["latency"][0] for design in designs]
    assert together.columns["latency"].tolist() == singles
    assert together.feasible.tolist() == [False, True, True]


@pytest.mark.parametrize("fidelity", ["analytical", "events"])
def test_a_batch_is_its_singles(fidelity: str) -> None:
    asked_ = asked(*ALONE, "workload.group=4x4")
    rng = np.random.default_rng(2)
    changes: list[dict[str, Any]] = [
        {
            "chip.mesh.rows": int(rng.choice([4, 6, 8, 32])),
            "chip.mesh.cols": int(rng.choice([4, 8, 12])),
            "chip.tile.collective_sync": float(rng.integers(0, 99)),
            "chip.noc.hop_cycles": float(rng.choice([1, 2])),
            "mapping.collective": str(rng.choice(sorted(TEAMS))),
        }
        for _ in range(10)
    ]
    designs = [replace_leaves(asked_.base, change) for change in changes]
    many = evaluate(stack_designs(designs), asked_.workload, fidelity=fidelity, cases=True)
    assert not many.feasible.all()  # groups do not divide a mesh of six rows
    for row, design in enumerate(designs):
        evaluation = evaluate(stack_designs([design]), asked_.workload, fidelity=fidelity, cases=True)
        for metric in ("latency", "cycles", "sram_used"):
            assert many.columns[metric][row] == pytest.approx(evaluation.columns[metric][0], rel=1e-12)
            assert many.cases[metric][:, row] == pytest.approx(evaluation.cases[metric][:, 0], rel=1e-12)
        assert many.limit[row] == evaluation.limit[0]


@pytest.mark.parametrize("along", ["row", "column", "rectangle"])
@pytest.mark.parametrize("name", TEAMS)
def test_readers_agree_and_the_breakdown_sums_to_the_total(name: str, along: str) -> None:
    asked_ = asked(
        *ALONE, f"workload.group_axis={along}", "workload.root=2", "workload.group=8x16", f"mapping.collective={name}"
    )
    closed, events = (
        evaluate(stack_designs([asked_.base]), asked_.workload, fidelity=fidelity, cases=True).cases["latency"][:, 0]
        for fidelity in ("analytical", "events")
    )
    assert closed == pytest.approx(events, rel=1e-9)
    for seconds, case in zip(closed, asked_.workload.cases, strict=True):
        parts = explain(asked_.base, case)
        assert parts.seconds == pytest.approx(seconds, rel=1e-12)
        assert sum(parts.by_bound().values()) == pytest.approx(seconds, rel=1e-9)


def test_a_sequence_beats_a_tree_at_small_sizes_only() -> None:
    """Where synchronising five times costs more than 31 starts."""
    small, large = (
        {name: cycles(f"workload.bytes=[{size}]", f"mapping.collective={name}") for name in TEAMS}
        for size in ("1KiB", "128KiB")
    )
    assert small["hardware"] < small["sequential"] < small["tree"]
    assert large["hardware"] < large["tree"] < large["sequential"]


@pytest.mark.parametrize("pattern", TILE_PATTERNS)
def test_the_gain_over_software_tends_to_its_steps(pattern: str) -> None:
    """A tree has five; a sequence 31; a sum takes as long as what is summed takes to come."""
    by = {name: cycles("workload.bytes=[64MiB]", f"workload.pattern={pattern}", f"mapping.collective={name}") for name in TEAMS}
    each = {"multicast": 1.0, "reduce": 2.0, "allreduce": 1.5}[pattern]
    assert by["tree"] / by["hardware"] == pytest.approx(5 * each, rel=0.001)
    assert by["sequential"] / by["hardware"] == pytest.approx(31 * each, rel=0.001)


def test_what_arrives_is_summed_at_the_rate_of_the_lanes_or_of_the_memory() -> None:
    chip = asked(*ALONE).base.chip
    assert with_vector_reduction(chip).combine * chip.clock == pytest.approx(1 / 64)
    assert with_vector_reduction(replace_leaves(chip, {"tile.sram_bandwidth": 192.0})).combine * chip.clock == pytest.approx(
        1 / 32
    )


@pytest.mark.parametrize(
    ("overrides", "limit", "message"),
    [
        (("workload.bytes=[385KiB]",), "chip.tile.sram", "move the data in 2 parts"),
        (
            ("workload.bytes=[200KiB]", "workload.pattern=reduce", "mapping.collective=tree"),
            "chip.tile.sram",
            "arriving 204.8 kB",
        ),
        (("workload.group=5x8",), "workload.group", "5 x 8 tiles do not divide 32 x 32"),
        (("workload.group=8x64",), "workload.group", "8 x 64 tiles do not divide 32 x 32"),
        (("workload.root=32",), "workload.root", "the last member of a group is 31"),
        (
            ("workload.group=4x8", "workload.group_axis=column", "workload.root=4"),
            "workload.root",
            "the last member of a group is 3",
        ),
    ],
)
def test_what_cannot_be_says_what_would_do(overrides: tuple[str, ...], limit: str, message: str) -> None:
    asked_ = asked("chip=tile32", "workload=collective", *overrides)
    verdict = explain_infeasibility(asked_.base, asked_.workload)
    assert verdict is not None
    assert verdict.limit == limit
    assert message in str(verdict)
    assert not evaluate(stack_designs([asked_.base]), asked_.workload, fidelity="events").feasible[0]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("workload.pattern=scatter", "workload.pattern: no option 'scatter'"),
        ("workload.group_axis=diagonal", "workload.group_axis: no option 'diagonal'"),
        ("workload.combine=mean", "workload.combine: no option 'mean'"),
        ("workload.bytes=[]", "workload.bytes: .* is not a list of sizes with units"),
        ("workload.bytes=[1024]", "workload.bytes: 1024 has no unit"),
        ("workload.bytes=[0 B]", "workload.bytes: 0 B is below the minimum, 1"),
        ("workload.bytes=[-1 KiB]", "workload.bytes: -1,024 B is below the minimum, 1"),
        ("workload.group=8", "workload.group: no option '8'; valid: mesh; or rows x columns of tiles, as in 8x8"),
        ("workload.group=0x8", "workload.group: no option '0x8'; valid: mesh; or rows x columns of tiles"),
        ("workload.root=corner", "workload.root: 'corner' is not a number; write a number, as in '8'; or set diagonal"),
        ("workload.root=-1", "workload.root: -1 is below the minimum, 0; or set diagonal"),
        ("workload.group_axis=rectangle", "workload.root: a rectangle has one root"),
        ("+workload.batch=1", "no field 'workload.batch'"),
        ("mapping=product", "choose mapping=collective"),
        ("chip=wse2", "nothing runs collectives on this chip"),
    ],
)
def test_what_makes_no_question_is_refused_by_name(override: str, message: str) -> None:
    chip = () if override.startswith("chip=") else ("chip=tile32",)
    with pytest.raises(DesignError, match=message):
        asked(*chip, "workload=collective", override)


def test_an_unknown_implementation_is_answered_with_the_address() -> None:
    asked_ = asked("chip=tile32", "workload=collective", "mapping.collective=trees")
    with pytest.raises(DesignError, match=r"mapping\.collective: no option 'trees'; did you mean 'tree'"):
        evaluate(stack_designs([asked_.base]), asked_.workload)


ALL = (
    "workload.group_axis=rectangle",
    "workload.root=0",
    "chip.mesh.rows=4",
    "chip.mesh.cols=6",
    "workload.bytes=[960B,48KiB]",
)


@pytest.mark.parametrize("topology", TOPOLOGIES)
@pytest.mark.parametrize("pattern", EXCHANGED)
def test_all_tiles_exchange_with_each_other(pattern: str, topology: str) -> None:
    asked_ = asked(*ALONE[:2], *ALL, f"workload.pattern={pattern}", f"chip.noc.topology={topology}", "mapping.collective=rings")
    closed, events = (
        evaluate(stack_designs([asked_.base]), asked_.workload, fidelity=fidelity, cases=True).cases["latency"][:, 0]
        for fidelity in ("analytical", "events")
    )
    assert closed == pytest.approx(events, rel=0.02)
    assert explain(asked_.base, asked_.workload.cases[1]).seconds == pytest.approx(closed[1], rel=1e-9)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("workload.pattern=allgather", "workload.root=0"), "workload.group_axis=rectangle"),
        ((*ALL, "workload.pattern=allgather"), "mapping.collective: hardware does not support allgather; choose one of rings"),
        ((*ALL, "mapping.collective=rings"), "does not support multicast"),
        (
            (*ALL, "workload.pattern=allreduce", "mapping.collective=rings", "workload.combine=max"),
            "workload.combine: rings supports sum only",
        ),
        (("chip.noc.topology=torus",), "chip.noc.topology: mapping.collective=hardware supports mesh only"),
        (("chip.noc.topology=ring",), "chip.noc.topology"),
    ],
)
def test_exchanges_that_nobody_carries_are_refused(overrides: tuple[str, ...], message: str) -> None:
    with pytest.raises(DesignError, match=message):
        cycles(*overrides)


def test_other_work_of_tiles_is_on_a_mesh() -> None:
    with pytest.raises(DesignError, match="only workload=collective runs on 'torus'; set mesh"):
        asked("chip=tile32", "workload=attention", "chip.noc.topology=torus")

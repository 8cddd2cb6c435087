"""Collectives between dies by themselves, as a user asks for them."""

import numpy as np
import pytest

from dse.evaluators import evaluate, explain, fidelities
from dse.evaluators.cost_models.die_allreduce_model import tree_root
from dse.evaluators.evaluation import explain_infeasibility
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from tests.samples import asked

ALL = ("workload=collective", "workload.group_axis=rectangle", "workload.root=0")
BOXES = "+chip.nodes={size: 4, bandwidth: 50 GB/s, latency: 3 us, exchange_start: 2 us}"
FOUR = ("chip=wafer64", "chip.dies.rows=4", "chip.dies.cols=4", *ALL)


def latency(*words: str, fidelity: str = "analytical") -> float:
    question = asked(*words)
    return float(evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity).columns["latency"][0])


def refused(*words: str) -> str:
    question = asked(*words)
    return str(explain_infeasibility(question.base, question.workload))


KINDS = [
    ("all_to_all", "direct"),
    ("allgather", "ring"),
    ("allreduce", "two_level"),
    ("allreduce", "direct"),
    ("reduce", "ktree"),
]


@pytest.mark.parametrize(("pattern", "carrier"), KINDS)
def test_three_readers_agree_on_sixteen_dies(pattern: str, carrier: str) -> None:
    """16 dies: events are within 15 % of the closed form, and within 3 % of routers flit by flit."""
    words = (*FOUR, f"workload.pattern={pattern}", f"mapping.collective={carrier}", "workload.bytes=[8 MiB]")
    closed, events, cycles = (latency(*words, fidelity=word) for word in ("analytical", "events", "cycles"))
    assert closed == pytest.approx(events, rel=0.15)
    assert events == pytest.approx(cycles, rel=0.03)


def test_every_reader_is_there_for_dies_of_both_kinds() -> None:
    for chip in ("wafer64", "h800_ep"):
        question = asked(f"chip={chip}", *ALL, "workload.pattern=allreduce")
        assert fidelities(question.base, question.workload) == ("analytical", "events", "cycles")


def test_legs_add_up_and_tiles_are_the_first_and_the_last() -> None:
    question = asked(*FOUR, "workload.pattern=allreduce", "mapping.within=tree", "workload.bytes=[64 KiB]")
    explanation = explain(question.base, question.workload.cases[0])
    assert [row.segment for row in explanation.rows] == ["within a die", "between dies", "back in a die"]
    assert explanation.seconds == pytest.approx(
        latency(*FOUR, "workload.pattern=allreduce", "mapping.within=tree", "workload.bytes=[64 KiB]")
    )
    assert explanation.rows[1].seconds == pytest.approx(latency(*FOUR, "workload.pattern=allreduce", "workload.bytes=[64 KiB]"))


@pytest.mark.parametrize("chip", ["chip=wafer64", "chip=h800_ep"])
@pytest.mark.parametrize(("pattern", "each"), [("all_to_all", 1.0), ("allgather", 1.0), ("allreduce", 2.0)])
def test_rows_say_what_leaves_dies_once_for_each_message(chip: str, pattern: str, each: float) -> None:
    """15 of 16 parts of what each of 16 dies has, however many links they cross; around a ring of an allreduce twice."""
    words = (chip, "chip.dies.rows=2", "chip.dies.cols=8", *ALL, "mapping.members=16", "workload.bytes=[16 MiB]")
    question = asked(
        *words, f"workload.pattern={pattern}", f"mapping.collective={'direct' if pattern == 'all_to_all' else 'ring'}"
    )
    (row,) = explain(question.base, question.workload.cases[0]).rows
    assert row.sent == pytest.approx(16 * each * 15 / 16 * 16 * 2**20, rel=1e-9)


def test_a_reduction_and_a_multicast_are_an_allreduce() -> None:
    tree = (*FOUR, "mapping.collective=ktree", "workload.bytes=[1 MiB]")
    root = f"workload.root={tree_root(16, 2)}"
    parts = [latency(*tree, f"workload.pattern={word}", root) for word in ("reduce", "multicast")]
    parts.append(latency(*tree, "workload.pattern=allreduce"))
    assert parts[0] + parts[1] == pytest.approx(parts[2] + 2e-6)  # one barrier instead of two


def test_a_far_root_takes_longer() -> None:
    words = (*FOUR, "mapping.collective=ktree", "mapping.ktree_k=1", "workload.pattern=multicast", "workload.bytes=[1 KiB]")
    middle, corner = (latency(*words, f"workload.root={root}") for root in (5, 0))
    assert middle < corner


def test_one_group_after_the_other_is_a_stack() -> None:
    question = asked(
        *FOUR, "workload.pattern=allreduce", "workload.bytes=[1 MiB]", "+space.chip.d2d.bandwidth=choice(1 TB/s,160 GB/s)"
    )
    many = question.space.stack({"chip.d2d.bandwidth": np.array([1e12, 160e9])})
    found_latency = evaluate(many, question.workload).columns["latency"]
    alone = [
        latency(*FOUR, "workload.pattern=allreduce", "workload.bytes=[1 MiB]", f"chip.d2d.bandwidth='{size} GB/s'")
        for size in (1000, 160)
    ]
    assert found_latency.tolist() == pytest.approx(alone)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("workload.pattern=allreduce", "mapping.members=6"), "the nearest sizes are 4 and 8"),
        (("workload.pattern=all_to_all", "mapping.collective=hierarchical"), "the chip has none"),
        (("workload.pattern=all_to_all", "mapping.collective=hierarchical", BOXES, "mapping.members=4"), "of several nodes"),
        (("workload.pattern=multicast", "mapping.collective=ktree", "workload.root=16"), "the last member of a group is 15"),
        (("workload.pattern=allreduce", "chip.d2d.topology=full"), "needs 15 links per die"),
        (("workload.pattern=allreduce", "workload.bytes=[1 TB]"), "move the data in"),
    ],
)
def test_what_cannot_be_laid_out_says_what_would_do(words: tuple[str, ...], message: str) -> None:
    assert message in refused(*FOUR, *words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("workload.pattern=all_to_all",), "choose direct or hierarchical"),
        (("workload.pattern=all_to_all", "mapping.collective=direct", "mapping.within=tree"), "do not support all_to_all"),
        (("workload.pattern=allreduce", "workload.group_axis=row"), "workload.group_axis"),
        (("workload.pattern=allreduce", "workload.root=3"), "has no root; set 0"),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_line(words: tuple[str, ...], message: str) -> None:
    with pytest.raises(DesignError, match=message):
        latency(*FOUR, *words)


def test_routers_play_any_topology_and_boxes() -> None:
    for more in (("chip.d2d.topology=switch",), ("chip.d2d.topology=full", "chip.die.chip_link_reach=board"), (BOXES,)):
        words = (*FOUR, "workload.pattern=allreduce", *more)
        if "full" in more[0]:
            words = (*words, "chip.d2d.ports=15")
        assert latency(*words, fidelity="cycles") == pytest.approx(latency(*words, fidelity="events"), rel=0.05)

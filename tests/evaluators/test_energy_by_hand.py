"""Energy of models by hand: each constant alone says how much is done, which is what shapes of a model multiply out to."""

from functools import cache

import numpy as np
import pytest

from dse.evaluators import evaluate
from dse.evaluators.kernels.collective import ALLREDUCE, allreduce_bytes, find_allreduce
from dse.evaluators.kernels.collective import hierarchical as two_level
from dse.evaluators.program.activity_counts import iterate_instructions
from dse.evaluators.program.kernel_ir import SendInstruction
from dse.evaluators.silicon import area, energy
from dse.evaluators.silicon import supply_voltage as supply
from dse.space.design import Design, stack_designs
from dse.space.fields import replace_leaves
from dse.space.workload import Workload
from tests.samples import asked

pytestmark = pytest.mark.usefixtures("flat_stack")

BY_CLOCK = ("mac", "element", "access", "shared", "hop")
"""Energies of what is on a die, at the supply that its clock needs; those of links and memory are what they are."""

LINKS = ("package_energy_per_byte", "module_energy_per_byte", "board_energy_per_byte")


LITTLE = 1e-18
"""With which no chip gets hot. [J], [W]"""


def counted(design: Design, workload: Workload) -> dict[str, float]:
    """What is done, by constant: energy over that constant where all others are nothing."""
    ones = [f"chip.technology.{name}" for name in (*BY_CLOCK, *LINKS, "static_power_density")]
    ones += [] if design.chip.dram is None else ["chip.dram.energy_per_byte", "chip.dram.idle_power"]
    none = dict.fromkeys(ones, 0.0)
    found_energy = evaluate(
        stack_designs([replace_leaves(design, none | {address: LITTLE}) for address in ones]), workload
    ).columns["energy"]
    counts = {address.rpartition(".")[2]: float(value) / LITTLE for address, value in zip(ones, found_energy, strict=True)}
    scale = float(supply.relative_energy(design.chip))
    counts |= {name: counts[name] / scale for name in (*BY_CLOCK, "static_power_density")}
    if design.chip.mesh is not None:  # wires of a hop by the size of its cores
        counts["hop"] *= float(design.chip.technology.hop / energy.hop(design.chip))
    return counts


@cache
def done(*words: str) -> dict[str, float]:
    """Of what some overrides ask."""
    question = asked(*words)
    return counted(question.base, question.workload)


def formats(word: str) -> tuple[str, ...]:
    tables = tuple(f"++mapping.precision.{tensor}=as_weights" for tensor in ("embedding", "head"))
    return (*(f"mapping.precision.{tensor}={word}" for tensor in ("weights", "activations", "kv")), *tables)


SMALL = ("workload.batch=[1]", "workload.sequence=[256]")


@pytest.mark.parametrize(
    "words",
    [
        ("chip=h100", "model=qwen3_1b7", *SMALL),
        ("chip=npu64", "model=qwen3_1b7", *SMALL),
        ("chip=tile_gh200", "model=qwen3_1b7", *SMALL),
        (
            "chip=npu64",
            "model=qwen3_1b7",
            "workload=serving",
            "workload.requests=20",
            "workload.prompt=256",
            "workload.output=16",
        ),
    ],
    ids=lambda words: f"{words[0].removeprefix('chip=')}-{len(words)}",
)
def test_a_multiply_add_of_half_the_bits_takes_half_the_energy(words: tuple[str, ...]) -> None:
    wide, narrow = (done(*words, *formats(word))["mac"] for word in ("bf16", "int8"))
    # slices and so padding may be others where values are smaller
    assert narrow == pytest.approx(wide / 2, rel=0.02)


DENSE = ("model=qwen3_1b7", "workload.batch=[3]", "workload.prompt=700", "workload.output=20")


def multiply_adds() -> dict[str, float]:
    """Of `DENSE`: 28 layers of 2048 with 16 heads of 128 and 8 of keys, FFNs of 6144, and 151,936 tokens; by what they are."""
    layer = 2048 * 128 * (16 + 8 + 8 + 16) + 3 * 2048 * 6144
    head, positions = 2048 * 151936, sum(range(701, 720))  # 19 tokens after the one of prefill
    return {
        "products": 3 * (700 + 19) * 28 * layer + 3 * (1 + 19) * head,
        "attention": 3 * 28 * 2 * 16 * 128 * (700 * 701 / 2 + positions),
        "weights": 28 * layer + head,
        "cached": 3 * 28 * 2 * 8 * 128 * positions,
        "residual": 3 * (700 + 19) * 2048,
    }


@pytest.mark.parametrize(("chip", "padding"), [("h100", 0.0), ("npu64", 0.0), ("tile_gh200", 0.07)])
def test_multiply_adds_of_a_dense_model_are_those_of_its_shapes(chip: str, padding: float) -> None:
    """As if all positions of a prompt saw half of it; tiles multiply some that a mask hides, and edges of their blocks."""
    by_hand = multiply_adds()
    ratio = done(f"chip={chip}", *DENSE, *formats("bf16"))["mac"] / (by_hand["products"] + by_hand["attention"])
    assert 1 - 1e-9 <= ratio <= 1 + padding + 1e-9


@pytest.mark.parametrize("chip", ["h100", "tile_gh200"])
def test_memory_brings_weights_once_a_step_and_the_cache(chip: str) -> None:
    """Beside what of activations a cache has no room for, and blocks of weights and keys that groups of tiles read again."""
    by_hand = multiply_adds()
    once = 2 * (20 * by_hand["weights"] + by_hand["cached"])
    assert once * (1 - 1e-9) <= done(f"chip={chip}", *DENSE, *formats("bf16"))["energy_per_byte"] <= 1.3 * once


def test_what_stands_is_area_and_devices_over_the_time() -> None:
    words = ("chip=h100", *DENSE, "mapping.both.tp=4")
    question = asked(*words)
    joules, seconds = done(*words), float(evaluate(stack_designs([question.base]), question.workload).columns["latency"][0])
    assert joules["static_power_density"] == pytest.approx(4 * float(area.total_area(question.base.chip)) * seconds)
    assert joules["idle_power"] == pytest.approx(4 * 5 * seconds)  # five stacks


@pytest.mark.parametrize(
    ("chip", "words", "links"),
    [
        ("h100", ("mapping.both.tp=4",), 2.0),
        ("h100", ("mapping.both.tp=4", "mapping.both.allreduce=tree", "chip.network.ports=4"), 2.0),
        ("gh200", ("mapping.both.tp=4",), 1.0),
        ("ascend910b", ("mapping.both.tp=8", "mapping.both.allreduce=full_mesh"), 1.0),
    ],
)
def test_sums_cross_a_link_from_die_to_die_and_two_by_way_of_a_switch(chip: str, words: tuple[str, ...], links: float) -> None:
    """Two sums a layer, of which each part leaves all dies but one, to be summed and as a sum."""
    dies = int(words[0][-1])
    each = 2 * multiply_adds()["residual"] * 28 * 2  # of 16 bits
    assert done(f"chip={chip}", *DENSE, *words, *formats("bf16"))["board_energy_per_byte"] == pytest.approx(
        links * 2 * (dies - 1) * each
    )


def test_sums_of_several_nodes_cross_two_links_between_them() -> None:
    """Of two nodes of four dies with links to each other, each sums a quarter of what it has with one of the other node."""
    words = ("chip=gh200", *DENSE, "mapping.both.tp=8", *formats("bf16"))
    each = 2 * multiply_adds()["residual"] * 28 * 2
    inside, between = 2 * 2 * 3 * each, 4 * 2 * (2 - 1) * each / 4
    assert done(*words)["board_energy_per_byte"] == pytest.approx(inside + 2 * between)


def test_a_box_takes_the_same_energy_whoever_lays_a_sum_out() -> None:
    """Eight dies on one switch, as devices that share a layer and as dies with a port each."""
    overrides = ("workload=collective", "workload.pattern=allreduce", "workload.bytes=[8MB]", "workload.group_axis=rectangle")
    words = ("workload.root=0", "workload.group=mesh", "workload.combine=sum")
    devices = done("chip=h200", *overrides, *words, "mapping.decode.tp=8")["board_energy_per_byte"]
    assert devices == done("chip=h200_ep", *overrides, *words)["board_energy_per_byte"] == pytest.approx(2 * 2 * 7 * 8e6)


@pytest.mark.parametrize("name", ALLREDUCE.names())
@pytest.mark.parametrize(("nodes", "members"), [(1, 8), (2, 4), (4, 2), (3, 1)])
def test_what_nodes_send_is_what_the_program_of_a_sum_sends(name: str, nodes: int, members: int) -> None:
    rows = 24
    inside = between = 0.0
    for step, times in iterate_instructions(two_level.build_program(find_allreduce(name), rows, nodes, members)):
        assert isinstance(step, SendInstruction)
        is_inside = np.asarray(step.source.row) == np.asarray(step.target.row)
        nbytes = times * (np.asarray(step.stop) - np.asarray(step.start))
        inside, between = inside + float(nbytes[is_inside].sum()), between + float(nbytes[~is_inside].sum())
    assert allreduce_bytes(name, float(rows), float(members), float(nodes)) == pytest.approx((inside, between))


@pytest.mark.parametrize(
    ("collective", "pattern", "read", "written"),
    [
        ("hardware", "multicast", 1, 31),
        ("hardware", "reduce", 31, 1),
        ("hardware", "allreduce", 32, 32),
        ("tree", "multicast", 31, 31),
        ("sequential", "multicast", 31, 31),
    ],
)
def test_what_is_sent_is_read_where_it_leaves_and_written_where_it_comes(
    collective: str, pattern: str, read: int, written: int
) -> None:
    """Rows of 32 tiles of 64 KiB each: routers copy what goes to all, and add up what comes from all."""
    words = ("chip=tile32", "workload=collective", f"workload.pattern={pattern}", "workload.bytes=['64 KiB']")
    access = done(*words, f"mapping.collective={collective}")["access"]
    byte = (asked(*words).base.chip.tile.sram / 32768) ** 0.144
    assert access == pytest.approx(32 * 65536 * (read + written) * byte)


def test_what_a_product_of_tiles_does_to_their_memories() -> None:
    """One tile multiplies 2048 x 2048 x 2048 by itself: blocks of both operands are written, and read again by its engine."""
    words = ("chip=tile32", "workload=gemm", "workload.shapes=[2048x2048x2048]", "chip.mesh.rows=1", "chip.mesh.cols=1")
    counts, chip = done(*words, "chip.hbm.channels=1"), asked(*words, "chip.hbm.channels=1").base.chip
    byte, engine = (chip.tile.sram / 32768) ** 0.144, chip.tile.matrix
    operands = 2 * counts["mac"] * (1 / engine.rows + 1 / engine.cols)
    assert counts["hop"] == counts["element"] == 0
    assert counts["access"] == pytest.approx((operands + counts["energy_per_byte"]) * byte)


def test_weights_from_the_edge_of_a_wafer_are_written_where_they_are_multiplied() -> None:
    """Of one layout for both phases, more of them come where cores have less memory: over half the height of the mesh, and
    nothing of a core is read on their way."""
    words = ("chip=wse2_hbm", "model=llama3_8b", "workload.batch=[1]", "workload.prompt=512", "workload.output=16")
    overrides = (*words, "mapping.both.rows=480", "mapping.both.cols=480", "mapping.both.regions=1")
    first_counts, more = (done(*overrides, f"chip.core.sram='{size} KiB'") for size in (16, 8))
    came = more["energy_per_byte"] - first_counts["energy_per_byte"]
    assert came > 1e9
    assert more["access"] - first_counts["access"] == pytest.approx(came, rel=1e-6)
    assert more["hop"] - first_counts["hop"] == pytest.approx(came * 750 / 2, rel=1e-6)

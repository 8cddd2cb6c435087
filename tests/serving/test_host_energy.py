"""Energy of caches that leave their chip: swapped to a host and back, prefixes kept there, and sent on to who decodes."""

import pytest

from dse.evaluators import evaluate
from dse.evaluators.accounting.serving_instances import tensor_parallel as devices
from dse.evaluators.workloads.serving import deploy_load
from dse.space.design import stack_designs
from tests.evaluators.test_energy_by_hand import counted
from tests.marks import slow_if
from tests.samples import asked, load_of

pytestmark = pytest.mark.usefixtures("flat_stack")

POSITION = 2 * 2 * 8 * 128 * 32
"""Keys and values of 16 bits of a position, of eight heads of 128 in 32 layers. [B]"""

SESSIONS = (
    "workload.requests=200", "workload.prompt=400", "workload.output=30", "workload.sessions={turns: 8, think: 30 s}",
    "workload.rate='6 Hz'", "model.max_position=131072", "mapping.serving.prefix_cache=shared",
    "mapping.serving.kv_blocks=1200",
    "mapping.serving.host_kv_capacity='20 GB'",
)  # fmt: skip
"""Users who come back for prefixes that had to leave the pool meanwhile."""

GROWN = (
    "workload.requests=40", "workload.prompt=400", "workload.output=200", "workload.rate='400 Hz'",
    "mapping.serving.preemption=swap", "mapping.serving.kv_blocks=1000",
)  # fmt: skip
"""Requests that come nearly at once and all grow, so that some have to leave."""


@pytest.mark.parametrize(
    "chip",
    [
        ("chip=h200", "mapping.both.tp=1"),
        ("chip=tile_gh200",),
        ("chip=h200_ep", "chip.nodes.size=1", "chip.dies.cols=1", "mapping.both.ep=1"),
    ],
    ids=lambda chip: chip[0],
)
@slow_if(lambda chip, words: chip == ("chip=tile_gh200",) and words is SESSIONS)
@pytest.mark.parametrize("words", [SESSIONS, GROWN], ids=["prefixes", "swapped"])
def test_what_goes_to_a_host_and_comes_back_crosses_a_link_each_time(chip: tuple[str, ...], words: tuple[str, ...]) -> None:
    """One die, so that nothing else crosses any."""
    overrides = (
        *chip,
        "model=llama3_8b",
        "workload=serving",
        *words,
        *(f"mapping.precision.{tensor}=fp16" for tensor in FORMATS),
    )
    design, load = load_of(*overrides)
    total = deploy_load(design, load, "analytical")[0].serve(load.requests).total
    there_and_back = total["fetched"] or total["swapped"] / 2
    assert there_and_back > 1000
    counts = counted(design, asked(*overrides).workload)
    links = sum(counts[name] for name in ("package_energy_per_byte", "module_energy_per_byte", "board_energy_per_byte"))
    assert links == pytest.approx(total["carried"] * POSITION)
    assert total["carried"] >= 2 * there_and_back
    if words is GROWN:  # all come back
        assert total["carried"] == total["swapped"] == 2 * there_and_back


FORMATS = ("weights", "activations", "kv")


@pytest.mark.parametrize(
    "chip",
    [("chip=h200", "mapping.both.tp=1"), ("chip=tile_gh200",), ("chip=h200_ep", "mapping.both.ep=1", "chip.dies.rows=2")],
    ids=lambda chip: chip[0],
)
def test_caches_that_are_sent_on_leave_one_memory_for_another(chip: tuple[str, ...]) -> None:
    """Beside the bytes of iterations; utilisation of memory is of both."""
    few = ("workload.requests=24", "workload.rate='30 Hz'", "workload.prompt=256", "workload.output=16")
    words = (*chip, "model=llama3_8b", "workload=serving", *few, "mapping.serving.prefill_instances=1")
    question = asked(*words, *(f"mapping.precision.{name}=fp16" for name in FORMATS))
    made, columns = question.base.chip, evaluate(stack_designs([question.base]), question.workload).columns
    brings = made.hbm.bandwidth if made.mesh is None else made.hbm.channels * made.hbm.channel_bandwidth
    seconds = columns["energy"][0] / columns["power"][0]
    moved = columns["hbm_utilisation"][0] * columns["devices"][0] * brings * seconds
    assert moved == pytest.approx(columns["hbm_bytes"][0], rel=1e-9)
    assert counted(question.base, question.workload)["energy_per_byte"] == pytest.approx(moved, rel=1e-9)
    assert moved > 2 * 24 * 256 * POSITION


def test_dies_that_share_a_cache_send_their_parts() -> None:
    words = ("chip=h200", "model=llama3_8b", "workload=serving", *GROWN, "mapping.both.tp=4")
    design, load = load_of(*words)
    total = deploy_load(design, load, "analytical")[0].serve(load.requests).total
    assert devices.TensorParallelServing().devices_per_cache(design, load) == (4,)
    sums = 2 * 32 * 2 * 2 * (4 - 1) * 4096 * 2 * (40 * 400 + 40 * 199)  # two a layer, of 16 bits, over two links
    assert counted(design, asked(*words).workload)["board_energy_per_byte"] == pytest.approx(sums + total["carried"] * POSITION)

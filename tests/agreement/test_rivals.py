"""Products of wafers on tiles: engines multiply, DMA engines send; closed forms hold there, or are refused."""

import numpy as np
import pytest

from dse.evaluators import evaluate, explain
from dse.evaluators.accounting.kernel_workloads.mesh_product import LOCKED_ALGORITHMS, TILE_ALGORITHMS
from dse.evaluators.evaluation import limits
from dse.evaluators.kernels.gemm import GEMM
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from tests.marks import slow_if
from tests.samples import asked

TILES = ("chip=tile32", "workload=gemm", "mapping=product")


def latency(fidelity: str, *words: str) -> float:
    question = asked(*words)
    return float(evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity).columns["latency"][0])


def drawn(seed: int) -> tuple[str, ...]:
    """A product and a part of the mesh."""
    rng = np.random.default_rng(seed)
    m, k, n = (int(2**size) for size in rng.uniform(4, 11, 3))
    rows, width = int(rng.integers(3, 10)), int(rng.choice([16, 64, 128]))
    cols = int(rng.choice([0, rows, *range(3, 10)]))
    return (
        f"workload.shapes=[{m}x{k}x{n}]", f"mapping.rows={rows}", f"mapping.cols={cols}", f"chip.noc.word_bytes='{width} B'"
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", TILE_ALGORITHMS)
def test_closed_forms_of_wafers_hold_on_tiles(name: str) -> None:
    latencies = [
        [latency(fidelity, *TILES, *drawn(seed), f"mapping.gemm={name}") for fidelity in ("analytical", "events")]
        for seed in range(12)
    ]
    gaps = np.array([closed / events - 1 for closed, events in latencies])
    assert (abs(gaps) < 0.1).mean() >= 0.8
    assert abs(np.median(gaps)) < 0.06


@slow_if(lambda name: name == "summa")
@pytest.mark.parametrize("name", LOCKED_ALGORITHMS)
def test_messages_that_do_not_meet_are_priced_on_locked_routes(name: str) -> None:
    words = [("chip=npu64", *TILES[1:], *drawn(seed)[:1], "mapping.rows=5", f"mapping.gemm={name}") for seed in range(6)]
    near = 0.1 if name == "t10" else 0.05  # relays of a few words get out of step, and meet less often than is counted
    assert [latency("analytical", *word) for word in words] == pytest.approx(
        [latency("events", *word) for word in words], rel=near
    )


@pytest.mark.sampled
@pytest.mark.parametrize("name", sorted(set(GEMM)))
@pytest.mark.parametrize("chip", ["tile32", "npu64"])
def test_a_closed_form_that_does_not_hold_is_refused_and_events_play(chip: str, name: str) -> None:
    words = (f"chip={chip}", *TILES[1:], "workload.shapes=[64x96x80]", "mapping.rows=4", f"mapping.gemm={name}")
    if name in (TILE_ALGORITHMS if chip == "tile32" else LOCKED_ALGORITHMS):
        assert latency("analytical", *words) > 0
    else:
        with pytest.raises(DesignError, match="use fidelity=events"):
            latency("analytical", *words)
    assert latency("events", *words) > 0


def test_limits_of_a_product_need_no_closed_form() -> None:
    question = asked("chip=npu64", *TILES[1:], "workload.shapes=[64x96x80]", "mapping.rows=4", "mapping.gemm=meshgemm")
    assert {limit.address for limit in limits(question.base, question.workload)} >= {"chip.tile.sram", "mapping.rows"}
    assert explain(question.base, question.workload.cases[0], fidelity="events").rows


def test_vectors_are_for_another_mapping() -> None:
    with pytest.raises(DesignError, match="mapping=summa"):
        latency("analytical", "chip=tile32", "workload=gemv", "mapping=product", "mapping.rows=8")


@pytest.mark.parametrize("fidelity", ["analytical", "events"])
@pytest.mark.parametrize("name", ["meshgemm", "cannon", "summa"])
def test_a_breakdown_adds_up_and_more_of_the_engine_does_no_harm(name: str, fidelity: str) -> None:
    question = asked(*TILES, "workload.shapes=[512x640x384]", "mapping.rows=8", f"mapping.gemm={name}")
    shown = explain(question.base, question.workload.cases[0], fidelity=fidelity)
    assert sum(row.seconds for row in shown.rows) == pytest.approx(
        latency(fidelity, *TILES, "workload.shapes=[512x640x384]", "mapping.rows=8", f"mapping.gemm={name}")
    )
    assert {row.operator for row in shown.rows} == {"local products", "communication"}
    sizes = [
        replace_leaves(question.base, {"chip.tile.matrix.rows": rows, "chip.tile.matrix.cols": rows}) for rows in (8, 16, 32)
    ]
    seconds = [evaluate(stack_designs([size]), question.workload, fidelity=fidelity).columns["latency"][0] for size in sizes]
    assert seconds == sorted(seconds, reverse=True)
    together = evaluate(stack_designs(sizes), question.workload, fidelity=fidelity).columns["latency"]
    assert together == pytest.approx(seconds, rel=1e-12)

"""Jobs of recurrent layers, of an index and of selected rows: many designs at once are each as if alone, and parts add up."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dse.evaluators.cost_models import jobs
from dse.evaluators.cost_models.analytical_attention import make_job, resolve_tiling
from dse.evaluators.cost_models.analytical_indexer import build_indexer_jobs, score_job
from dse.evaluators.cost_models.analytical_recurrent import decode_state_job, prefill_state_job
from dse.evaluators.kernels.attention import find_dataflow
from dse.evaluators.kernels.attention.attention_shape import AttentionShape
from dse.evaluators.kernels.vector.recurrent_decode import RecurrenceShape
from dse.evaluators.kernels.vector.sparse_indexer import IndexerShape
from dse.space.chip import Chip
from dse.space.fields import replace_leaves
from dse.space.mapping import AttentionPlan
from tests.samples import asked

GDN = RecurrenceShape("delta", 32, 16, 128, 128, 8, 8)
PROMPTS = RecurrenceShape("ssd", 32, 4, 128, 64, 8, 8 * 512, 128)


def gathered(chip: Chip) -> Any:
    dataflow, shape = find_dataflow("flash2"), AttentionShape(8, 16, 1, 1, 512, 576, 512, latent=True, piece=1152)
    return make_job(
        dataflow,
        shape,
        resolve_tiling(dataflow, shape, chip, AttentionPlan(dataflow="flash2", rows=0, cols=0, queries=0, keys=0)),
        chip,
    )


JOBS: dict[str, Callable[[Chip], Any]] = {
    "decode": lambda chip: decode_state_job(GDN, chip),
    "partly resident": lambda chip: decode_state_job(GDN, chip, resident=0.5),
    "prompts": lambda chip: prefill_state_job(PROMPTS, chip),
    "index": lambda chip: build_indexer_jobs(IndexerShape(32, 128, 4, 1, 9000), 512, chip),
    "index of prompts": lambda chip: score_job(IndexerShape(32, 128, 2, 2000, 2000, causal=True), chip),
    "index of blocks": lambda chip: build_indexer_jobs(IndexerShape(4, 128, 8, 1, 20000, block=128), 2048, chip),
    "selected rows": gathered,
}
LEAVES = {
    "hbm.channel_bandwidth": np.array([2e10, 6e10, 6e10]),
    "tile.sram": np.array([2e5, 4e5, 8e5]),
    "mesh.rows": np.array([8, 16, 8]),
    "mesh.cols": np.array([8, 8, 16]),
    "tile.vector.lanes": np.array([64.0, 128.0, 32.0]),
}


def chip() -> Chip:
    chip: Chip = asked("chip=tile32", "workload=attention", "chip.hbm.channels=8").base.chip
    return chip


@pytest.mark.parametrize("name", JOBS)
def test_many_designs_are_each_as_if_alone(name: str) -> None:
    together = jobs.job_cost("analytical", JOBS[name](replace_leaves(chip(), LEAVES)))
    for place in range(3):
        changes = {address: values[place].item() for address, values in LEAVES.items()}
        alone = jobs.job_cost("analytical", JOBS[name](replace_leaves(chip(), changes)))
        assert np.broadcast_to(together.seconds, 3)[place] == pytest.approx(float(alone.seconds), rel=0.02), place
        moved = np.broadcast_to(together.activity.memory_bytes, 3)[place]
        assert moved == pytest.approx(float(alone.activity.memory_bytes), rel=0.02), place


@pytest.mark.parametrize("fidelity", ["analytical", "events"])
@pytest.mark.parametrize("name", JOBS)
def test_parts_add_up(name: str, fidelity: str) -> None:
    given_jobs = JOBS[name](chip())
    parts = jobs.time_by_resource(fidelity, given_jobs)
    assert sum(parts.values()) == pytest.approx(jobs.job_cost(fidelity, given_jobs).seconds)
    assert min(parts.values()) >= -1e-12
    assert set(parts) <= {"synchronisation", "reduction", "multicast", "hbm", "vector", "matrix"}


@pytest.mark.sampled
@pytest.mark.parametrize("name", JOBS)
def test_routers_play_what_events_do(name: str) -> None:
    small = replace_leaves(chip(), {"mesh.rows": 4, "mesh.cols": 4, "hbm.channels": 4})
    given_jobs = JOBS[name](small)
    events, cycles = (jobs.job_cost(fidelity, given_jobs) for fidelity in ("events", "cycles"))
    # row numbers are small packets between large ones, which routers send in turn
    assert cycles.seconds == pytest.approx(events.seconds, rel=0.15 if name == "selected rows" else 0.1)
    assert cycles.activity.memory_bytes == events.activity.memory_bytes

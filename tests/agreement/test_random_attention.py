"""Attention on random chips of tiles, sizes and dataflows: the closed form, events and routers say the same."""

import numpy as np
import pytest

from dse.evaluators import evaluate
from dse.evaluators.kernels.attention import ATTENTION
from dse.space.design import stack_designs
from tests.samples import asked


def latency(fidelity: str, *words: str) -> float:
    question = asked("chip=tile32", "workload=attention", *words)
    return float(evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity).columns["latency"][0])


def drawn(rng: np.random.Generator) -> list[str]:
    """Words of a chip and attention; channels may be fewer than columns, and memory fast or slow."""
    heads, keys = int(rng.choice([4, 8, 16, 32])), int(2 ** rng.uniform(6, 11))
    shared, queries = (
        int(rng.choice([count for count in (1, 2, 4, 8) if count <= heads])),
        int(rng.choice([1, keys, min(64, keys)])),
    )
    sizes = {"batch": rng.choice([1, 2, 4, 16]), "heads": heads, "kv_heads": heads // shared, "queries": queries, "qk": 64}
    words = [f"workload.{name}={value}" for name, value in sizes.items()] + [f"workload.keys=[{keys}]"]
    rows, cols = rng.choice([4, 8, 16], 2)
    words += [f"chip.mesh.rows={rows}", f"chip.mesh.cols={cols}", f"chip.hbm.channels={rng.choice([2, 4])}"]
    name = str(rng.choice(list(ATTENTION)))
    groups = [f"mapping.rows={rng.choice([2, 4])}", f"mapping.cols={rng.choice([2, 4])}"]
    words += groups if ATTENTION[name].grouped and rng.random() < 0.4 else []
    return [*words, f"chip.hbm.channel_bandwidth={int(rng.uniform(20, 200))} GB/s", f"mapping.dataflow={name}"]


def test_random_attention_takes_what_is_played() -> None:
    rng, ratios = np.random.default_rng(3), []
    for _ in range(24):
        words = drawn(rng)
        ratios.append(latency("analytical", *words) / latency("events", *words))
    assert np.median(np.abs(np.array(ratios) - 1)) < 0.05
    assert np.percentile(ratios, [5, 95]) == pytest.approx([1, 1], abs=0.25)


@pytest.mark.sampled
@pytest.mark.parametrize("bandwidth", [10, 40])
@pytest.mark.parametrize("name", ["flat_hw", "flash2"])
def test_events_have_no_idle_channels_while_groups_ask(name: str, bandwidth: int) -> None:
    """Cores that wait for blocks: those of a round are not all before those of the next one, which routers know anyway."""
    words = ["chip.mesh.rows=8", "chip.mesh.cols=8", "chip.hbm.channels=8", f"chip.hbm.channel_bandwidth={bandwidth} GB/s"]
    words += ["workload.batch=8", "workload.heads=16", "workload.kv_heads=1", "workload.queries=1", "workload.keys=[512]"]
    words += ["workload.latent=true", "workload.qk=576", "workload.v=512", "mapping.queries=8", "mapping.keys=16"]
    words += ["chip.hbm.banks=null"]  # by bursts, eight tiles in step lose 4 to 12 % to one another's rows
    words += [f"mapping.dataflow={name}", *(["mapping.rows=2", "mapping.cols=8"] if name == "flat_hw" else [])]
    routers = latency("cycles", *words)
    assert latency("events", *words) == pytest.approx(routers, rel=0.03)
    assert latency("analytical", *words) == pytest.approx(routers, rel=0.08)

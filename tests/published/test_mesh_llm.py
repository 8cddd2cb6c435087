"""What the README of mesh_llm says of the best tiles beside FlatAttention's chip, at the load that each carries."""

import re
from pathlib import Path

import pytest

import dse

FOLDER = Path(__file__).parents[2] / "studies" / "mesh_llm"

BEST = (
    "chip.mesh.rows=16",
    "chip.mesh.cols=16",
    "chip.clock='1.4 GHz'",
    "chip.tile.sram='384 KiB'",
    "chip.tile.matrix.rows=128",
    "chip.noc.word_bytes='128 B'",
    "chip.hbm.channel_bandwidth='62.5 GB/s'",
    "mapping.both.attention.dataflow=flat_async",
    "mapping.both.attention.rows=0",
    "mapping.serving.max_batch_size=128",
    "mapping.serving.policy=chunked_prefill",
)


@pytest.mark.slow
def test_the_best_tiles_gain_on_the_papers_chip_what_the_finding_says() -> None:
    text = " ".join((FOLDER / "README.md").read_text().split())
    search = re.search(
        r"serve ([\d.]+) tokens/s/mm2: ([\d.]+) times the published chip at the same node \(([\d.]+)\), with (\d+) % less "
        r"energy and (\d+) % less money a token",
        text,
    )
    assert search
    paper, best = (dse.evaluate("study=mesh_llm", "chips=[tile_gh200]", *more).metrics for more in ((), BEST))
    most, times, published, energy, money = map(float, search.groups())
    assert best["capacity_per_mm2"] == pytest.approx(most, abs=0.01)
    assert paper["capacity_per_mm2"] == pytest.approx(published, abs=0.02)
    assert best["capacity_per_mm2"] / paper["capacity_per_mm2"] == pytest.approx(times, abs=0.06)
    assert 100 * (1 - best["energy_per_token"] / paper["energy_per_token"]) == pytest.approx(energy, abs=1.5)
    assert 100 * (1 - best["price_per_mtoken"] / paper["price_per_mtoken"]) == pytest.approx(money, abs=1.5)

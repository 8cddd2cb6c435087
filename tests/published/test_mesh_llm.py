"""What the README of mesh_llm says of the best tiles beside FlatAttention's chip, in the steady state as both were searched."""

import re
from pathlib import Path

import pytest

import dse

FOLDER = Path(__file__).parents[2] / "studies" / "mesh_llm"

BEST = (
    "chip.mesh.rows=8",
    "chip.mesh.cols=8",
    "chip.clock='1.4 GHz'",
    "chip.tile.sram='1 MB'",
    "chip.tile.matrix.rows=128",
    "chip.noc.word_bytes='128 B'",
    "chip.hbm.channel_bandwidth='62.5 GB/s'",
    "mapping.both.attention.dataflow=flat_tree",
    "mapping.both.attention.rows=0",
    "mapping.serving.max_batch_size=16",
    "mapping.serving.policy=chunked_prefill",
)


def test_the_best_tiles_gain_on_the_papers_chip_what_the_finding_says() -> None:
    text = " ".join((FOLDER / "README.md").read_text().split())
    search = re.search(
        r"serve the load at ([\d.]+) times the tokens per mm2 of the paper's chip, with (\d+) % less energy and (\d+) % less "
        r"money a token, and ([\d.]+) times its p99",
        text,
    )
    assert search
    paper, best = (dse.evaluate("study=mesh_llm", "chips=[tile_gh200]", *more).metrics for more in ((), BEST))
    ratio = {name: best[name] / paper[name] for name in best if paper.get(name)}
    rate, energy, money, wait = map(float, search.groups())
    assert ratio["throughput_per_system_mm2"] == pytest.approx(rate, abs=0.05)
    assert ratio["tbt_p99"] == pytest.approx(wait, abs=0.05)
    assert 100 * (1 - ratio["energy_per_token"]) == pytest.approx(energy, abs=0.5)
    assert 100 * (1 - ratio["price_per_mtoken"]) == pytest.approx(money, abs=0.5)

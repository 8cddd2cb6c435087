"""How fast a screen of several chips in one study is, with its blocks on disk."""

import tempfile
import time
from pathlib import Path

from dse.config.compose import compose
from dse.execution.screen import run_screen
from dse.execution.study import build_study

ASKED = (
    "model=llama3_8b",
    "precision={weights: fp16, activations: fp16, kv: fp16}",
    "workload.batch=[4]",
    "workload.prompt=[1024]",
    "workload.output=[256]",
    "+objectives.throughput_per_system_mm2=max",
    "+objectives.tpot=min",
    "+space.mapping.both.tp=choice(1,2,4,8,16,32)",
    "+space.mapping.both.pp=choice(1,2,4,8)",
    "+space.mapping.both.partition=choice(k,mn)",
    "+space.mapping.prefill.rows=range(300,751,30)",
    "+space.mapping.decode.rows=range(240,751,30)",
    "+space.mapping.decode.ktree_k=choice(1,2,3)",
    "+space.chip.hbm.bandwidth=tag(GB/s,range(200,3000,50))",
    "+space.chip.hbm.capacity=tag(GB,range(2,100,2))",
    "+space.chip.clock=tag(MHz,range(500,1500,20))",
    "+space.chip.core.sram=tag(KiB,range(32,129,4))",
)
"""A space of more than 10^7 designs, of which a screen takes a quasi-random sample."""

TILES = (
    "+space.mapping.both.attention.dataflow=choice(flat_async,flash3)",
    "+space.mapping.both.attention.rows=choice(0,4,8,16)",
    "+space.mapping.both.attention.cols=choice(0,4,8,16)",
    "+space.chip.tile.matrix.rows=choice(16,32,64)",
)
"""Knobs of a layout over the whole chip."""


def screened() -> list[tuple[str, str, str]]:
    """Six chips without layouts over the whole chip, and six with one."""
    dies = "a100,ascend910b,npu_dse,npu64"
    six = _timed(1 << 20, f"chips=[{dies},npu256,wse2]")
    whole = _timed(1 << 17, f"chips=[{dies},wse2,tile_gh200]", *TILES)
    return [(f"screen of six chips, {what}", *times) for what, times in (("stored", six), ("one of them flat", whole))]


def _timed(designs: int, *words: str) -> tuple[str, str]:
    with tempfile.TemporaryDirectory() as folder:
        study = build_study(compose([*ASKED, *words, f"screen.limit={designs}", f"run_dir={folder}"]), Path())
        start, cpu = time.perf_counter(), time.process_time()
        screen = run_screen(study, lambda done, total, size: None)
    wall, cpu = time.perf_counter() - start, time.process_time() - cpu
    return f"{wall:.1f} s wall, {cpu:.1f} s CPU", f"{screen.rows:,} designs"

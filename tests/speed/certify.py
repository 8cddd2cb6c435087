"""What it takes to prove a front: python -m tests.speed.certify [QUESTION] [GAP]

For each question the gap over time, CPU seconds of the branch and bound alone, boxes and peak memory. `grid` and `gpu_grid`
also evaluate all their designs, and compare the exact front with the one that boxes give with a gap of 0.
"""

import resource
import sys
import tempfile
import time

import numpy as np

from dse.commands.notebook_api import find_study
from dse.execution.certify import Certifier, describe_certificate
from dse.execution.screen import run_screen
from dse.execution.study import Study

ANY_CORES = ("space.chip.cores=range(100,601,1)", "space.chip.hbm.bandwidth='tag(GB/s, log, interval(460, 2760))'")
STEPS = (
    "space.chip.l2.size='tag(MB, range(8, 257, 8))'",
    "space.chip.network.bandwidth='tag(GB/s, range(10, 201, 6))'",
)
ARRAYS = ("+space.chip.tile.matrix.rows='choice(32, 64, 128)'", "+space.chip.tile.matrix.cols='choice(32, 64, 128)'")

TILES = (
    "flat_models", "~constraints.peak_flops", "report.lines=[]", "report.bars=[]", "space.chip.mesh.rows='choice(16, 32)'",
    "space.chip.mesh.cols='choice(16, 32)'", "space.chip.tile.sram='tag(KiB, range(128, 1537, 32))'",
    "space.chip.tile.matrix.rows=range(16, 129, 4)", "space.chip.tile.matrix.cols=range(8, 65, 4)",
    "+space.chip.hbm.channel_bandwidth='tag(GB/s, range(30, 121, 5))'",
    "+space.mapping.both.attention.dataflow='choice(flat_async, flat_hw)'",
)  # fmt: skip

QUESTIONS: dict[str, tuple[str, ...]] = {
    "quickstart": ("quickstart",),
    "continuous": ("quickstart", *ANY_CORES),
    "ttft": ("quickstart", "+objectives.ttft=min"),
    "price": ("quickstart", "chip.die.dies=2", "~objectives.throughput_per_system_mm2", "+objectives.price_per_mtoken=min"),
    "energy": ("quickstart", "+objectives.energy_per_token=min"),
    "grid": ("quickstart", *STEPS, "screen.limit=3000000"),
    "l2": (
        "preserve_l2", "space=npu_cluster", "space.chip.cores=range(100,601,1)", "space.chip.l2.size='tag(MB, range(8,257,1))'",
        "space.chip.hbm.bandwidth='tag(GB/s, range(920, 3681, 10))'",
        "space.chip.network.bandwidth='tag(Gbit/s, range(100, 1001, 10))'",
    ),
    "gpu": (
        "quickstart", "chip=a100", "stack=ideal", "chip.published=null", "model=llama3_8b", "workload.batch=[16]",
        "report.lines=[]", "~space.mapping.both.prefetch", "space.mapping.both.tp=choice(1,2,4,8)",
        "space.chip.cores=range(32,257,4)",
        "space.chip.hbm.bandwidth='tag(GB/s, log, interval(400, 4000))'",
        "space.chip.network.bandwidth='tag(GB/s, log, interval(50, 900))'",
    ),
    "gpu_grid": (
        "quickstart", "chip=a100", "stack=ideal", "chip.published=null", "model=llama3_8b", "workload.batch=[16]",
        "report.lines=[]", "~space.mapping.both.prefetch", "space.mapping.both.tp=choice(1,2,4,8)",
        "space.chip.cores=choice(16,32,48,64,80,96,108,128,144,160,192,256)",
        "+space.chip.core.matrix='tag(Tflop/s, choice(0.722, 1.444, 2.889, 5.778, 11.556))'",
        "+space.chip.core.vector='tag(Gop/s, choice(90, 180, 361, 722, 1444))'",
        "space.chip.l2.size='tag(MB, range(8, 105, 8))'",
        "+space.chip.l2.bandwidth='tag(TB/s, choice(1.8, 3.6, 7.2, 10.8, 14.4))'",
        "space.chip.hbm.bandwidth='tag(GB/s, range(408, 4897, 408))'",
        "space.chip.network.bandwidth='tag(GB/s, choice(25, 50, 100, 150, 300))'", "screen.limit=5000000",
    ),
    "capacity": (
        "mesh_llm", "chips=[npu_dse]", "~objectives.energy_per_token", "~objectives.price_per_mtoken",
        "+objectives.system_mm2=min",
    ),
    "pipelines": (
        "quickstart", "chip=npu64", "model=qwen3_8b", "mapping=npu_prefetch", "space=npu_prefetch", "workload.batch=[16]",
        "+space.chip.tile.sram='tag(MB, log, interval(8, 128))'", *ARRAYS, "report.lines=[]",
        "+space.chip.tile.vector.lanes='tag(op/cycle, log, interval(512, 8192))'",
        "+space.chip.hbm.channel_bandwidth='tag(GB/s, log, interval(30, 480))'",
        "space.chip.noc.word_bytes='tag(B, range(32, 481, 8))'",
    ),
    "wafer": (
        "waferllm_autotune", "+space.chip.core.sram='tag(KiB, log, interval(24, 1024))'", "~objectives.prefill_throughput",
        "~objectives.tokens_per_s_per_user", "+objectives.throughput_per_system_mm2=max", "+objectives.tpot=min",
        "+space.chip.core.mac='tag(cycle, log, interval(0.1, 2))'", "report.lines=[]",
    ),
    "tiles": TILES,
    "tile_areas": (*TILES, "~objectives.throughput_per_system_mm2", "+objectives.system_mm2=min"),
}  # fmt: skip
"""A study and overrides by name."""

GRIDS = ("grid", "gpu_grid")
"""Questions whose designs are all evaluated as well. The second has as many as the GPU space of arXiv 2603.05904, 4.7 million;
its values are this project's, since those of the paper are not known here."""


def certify(name: str, gap: str) -> None:
    """Print how the gap of a question closes, and what is proved in the end."""
    study, *words = QUESTIONS[name]
    with tempfile.TemporaryDirectory() as folder:
        question = find_study(study, *words, "search=certify", f"search.gap={gap}", f"run_dir={folder}", "workers=serial")
        certifier = Certifier(question)
        start, shown = time.process_time(), [1.0]

        def show(share: float, boxes: int, open_boxes: int) -> None:
            spent = time.process_time() - start
            if spent > shown[0]:
                print(f"  {spent:5.1f} s: gap {100 * share:.3g} %, {boxes:,} boxes, {open_boxes:,} open")
                shown[0] *= 1.5

        certificate = certifier.run(show)
        spent = time.process_time() - start
        for line in describe_certificate(certificate.record):
            print(f"  {line}")
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        boxes = certificate.record["boxes"]
        pace = f"{boxes:,} boxes, {boxes / spent:,.0f} boxes/s"
        print(f"{name}: {spent:.1f} s CPU, {pace}, front of {len(certificate.members):,}, {peak:.0f} MB peak")
        if name in GRIDS:
            _compare_with_grid(question, certifier)


def _compare_with_grid(study: Study, certifier: Certifier) -> None:
    """Evaluate all designs of a grid, and print by how much any of them beats the certified front."""
    start = time.process_time()
    screened = run_screen(study, lambda done, total, size: None)
    values = screened.front[list(study.objectives)].to_numpy(dtype=float)
    signs = np.array([-1.0 if way == "max" else 1.0 for way in study.directions])
    gaps = np.expm1(certifier.search.front.gaps(np.log(values) * signs))
    print(f"  all {screened.rows:,} designs evaluated in {time.process_time() - start:.1f} s CPU: front of {len(values):,}")
    members = len(certifier.members())
    print(f"  the certified front is beaten by {100 * gaps.max():.2g} % at most; sizes {len(values)} and {members}")


if __name__ == "__main__":
    chosen = sys.argv[1:2] if sys.argv[1:2] and sys.argv[1] in QUESTIONS else list(QUESTIONS)
    for chosen_name in chosen:
        print(chosen_name)
        certify(chosen_name, sys.argv[2] if len(sys.argv) > 2 else "1%")

"""A study of an NPU whose products choose their partitions: python -m tests.speed.partitions [STEP ...]

Eight knobs, 14,580 designs of one model, mapping.*.partition=auto. Steps: `screen`, `rerun`, `explain` and `asks`, 40 asks of
NSGA-II without a screen; CPU seconds of the whole command, beside those of `dse show`. A step that was not run before on
this machine compiles loops: run it twice. `rerun` and `explain` screen first.
"""

import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

STUDY = """
defaults:
  - override /chip: npu64
  - override /model: qwen3_4b
  - override /search: none
  - override /workers: serial
question: "Which cores, and how many of them, serve a batch soonest for their price?"
workload: {batch: [8], prompt: 1024, output: 128}
mapping: {prefill: {partition: auto}}
space:
  chip:
    mesh: {rows: "choice(4,8,16)"}
    tile:
      sram: "tag(MB, choice(8,16,32,64))"
      matrix: {rows: "choice(32,64,128)", cols: "choice(32,64,128)"}
    hbm: {channel_bandwidth: "tag(GB/s, choice(30,60,120,240,480))"}
  mapping:
    both: {tp: "choice(2,4,8)", pp: "choice(2,4,8)", placement: "choice(linear_seq,ring,mesh)"}
objectives: {throughput: max, tpot: min, system_price: min}
"""

STEPS = {
    "screen": ("run", "npu"),
    "rerun": ("run", "npu"),
    "explain": ("explain", "npu"),
    "asks": ("run", "npu", "name=asks", "run_dir=asks", "screen.run=false", "search=nsga2", "search.budget=40"),
}
"""Commands, in the order in which they run."""

WANTED = {"screen": "10 s asked for", "rerun": "2 s asked for", "explain": "5 s asked for", "asks": ""}


def spent(folder: Path, *command: str) -> float:
    """CPU time of one `dse` command in a folder, its start included. [s]"""
    before = os.times()
    subprocess.run([sys.executable, "-m", "dse", *command], cwd=folder, check=True, capture_output=True)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def main(steps: list[str]) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "studies" / "npu").mkdir(parents=True)
        (folder / "studies" / "npu" / "study.yaml").write_text(STUDY)
        start = spent(folder, "show", "npu")
        for step, command in STEPS.items():
            if step in steps or (step == "screen" and steps != ["asks"]):
                seconds = spent(folder, *command)
                print(f"{step} | {seconds:.1f} s CPU | {start:.1f} s to start; {WANTED[step]}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(STEPS))

"""How far times in closed form are from events, and events from routers, over random kernels of every kind on random machines.

    python -m tests.agreement.survey [COUNT] [--against cycles] [--kind WORD ...] [--seed N] [--dies] [--all]

draws so many kernels of each kind, and prints by kind and for all: which share is within 5 %, how far the farthest is, the mean
distance, the median and what 90 % are within; then the largest gaps with what to type for each. `MEET` and `AHEAD` of
`kernels/attention/served.py` were chosen by it.
"""

import argparse
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from dse.evaluators import evaluate
from dse.evaluators.kernels.attention import ATTENTION
from dse.evaluators.kernels.collective import EXCHANGES, TEAMS
from dse.evaluators.kernels.gemm import GEMM
from dse.evaluators.kernels.gemv import GEMV
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.workload import DIE_EXCHANGES as EXCHANGED
from dse.space.workload import GROUP_AXES, TILE_PATTERNS
from tests.samples import asked

Random = np.random.Generator
Words = list[str]

NEAR, SHOWN = 0.05, 10
"""How near is near, and how many of the largest gaps are printed."""

LARGEST = 3_000_000
"""Multiply-adds of a tile product's blocks times chunks, beyond which a draw takes long: another is drawn."""


class Found(NamedTuple):
    """A kernel that was drawn, and its times. [s]"""

    kind: str
    words: str
    nearer: float
    farther: float

    @property
    def gap(self) -> float:
        """How much longer the nearer reader says it takes. [1]"""
        return self.nearer / self.farther - 1


def wafer_product(rng: Random, large: bool) -> Words:
    """A product on a part of a mesh of cores, some of few rows."""
    chip = str(rng.choice(["wse2", "wse3", "dojo"]))
    rows, cols = (int(side) for side in rng.integers(3, 25 if large else 9, 2))
    m, k, n = (int(size) for size in np.exp(rng.uniform(np.log(3), np.log(800), 3)))
    how = str(rng.choice(list(GEMM)))
    return [*_wafer(chip, rows, cols, rng), "workload=gemm", f"mapping.gemm={how}", f"workload.shapes=[{m}x{k}x{n}]"]


def wafer_vector(rng: Random, large: bool) -> Words:
    """Vectors times a matrix there."""
    chip = str(rng.choice(["wse2", "wse3", "dojo"]))
    rows, cols = (int(side) for side in rng.integers(3, 25 if large else 9, 2))
    m, how = int(rng.choice([1, 1, 2, 4])), str(rng.choice(list(GEMV)))
    k, n = (int(size) for size in np.exp(rng.uniform(np.log(16), np.log(4000), 2)))
    words = [*_wafer(chip, rows, cols, rng), "workload=gemv", f"mapping.gemv={how}", f"workload.shapes=[{m}x{k}x{n}]"]
    return [*words, f"mapping.ktree_k={rng.choice([1, 2, 3])}"] if how == "ktree" else words


def _wafer(chip: str, rows: int, cols: int, rng: Random) -> Words:
    cols = rows if rng.random() < 0.5 else cols
    return [f"chip={chip}", f"chip.mesh.rows={rows}", f"chip.mesh.cols={cols}", f"mapping.rows={rows}", f"mapping.cols={cols}"]


def tile_product(rng: Random, large: bool) -> Words:
    """A product of operands that tiles hold."""
    side = int(rng.integers(3, 17 if large else 9))
    m, k, n = (int(size) for size in np.exp(rng.uniform(np.log(8), np.log(1500), 3)))
    words = [f"chip={rng.choice(['tile32', 'npu64', 'tile_gh200'])}", f"chip.mesh.rows={side}", f"chip.mesh.cols={side}"]
    how = str(rng.choice(list(GEMM)))
    return [
        *words,
        "workload=gemm",
        "mapping=product",
        f"mapping.rows={side}",
        f"mapping.gemm={how}",
        f"workload.shapes=[{m}x{k}x{n}]",
    ]


def memory_product(rng: Random, large: bool) -> Words:
    """A product from memory, of which a third have chosen slices, a third all of K, a third random ones."""
    words = _tiles(rng, large)
    m, k, n = (int(2**power) for power in rng.uniform((4, 7, 7), (11, 12, 12) if large else (9, 11, 11)))
    words += ["workload=gemm", "mapping=summa", f"workload.shapes=[{m}x{k}x{n}]"]
    return words + _slices(rng, k, (16, 32, 64))


def memory_vector(rng: Random, large: bool) -> Words:
    """A product of one to a few tokens from memory."""
    words = _tiles(rng, large)
    m = int(rng.choice([1, 1, 2, 8]))
    k, n = (int(2**power) for power in rng.uniform((7, 7), (13, 13) if large else (11, 11)))
    words += ["workload=gemv", "mapping=summa", f"workload.shapes=[{m}x{k}x{n}]"]
    return words + _slices(rng, k, (16, 32, 64))


def _slices(rng: Random, k: int, sides: tuple[int, ...]) -> Words:
    return (
        [],
        [f"mapping.k={k}"],
        [f"mapping.m={rng.choice(sides)}", f"mapping.k={rng.choice([128, 512, 4096])}", f"mapping.n={rng.choice(sides)}"],
    )[int(rng.integers(3))]


def _tiles(rng: Random, large: bool) -> Words:
    """Tiles with channels, as many as columns or fewer, and memory that is fast or slow."""
    chip = str(rng.choice(["tile32", "tile32", "tile_gh200"]))
    rows, cols = (int(side) for side in rng.choice([4, 8, 16] if large else [4, 8], 2))
    channels = int(rng.choice([count for count in (2, 4, 8, 16) if count <= cols]))
    words = [f"chip={chip}", f"chip.mesh.rows={rows}", f"chip.mesh.cols={cols}", f"chip.hbm.channels={channels}"]
    words += ["chip.hbm.banks=null"]  # bursts that meet in banks are another question (studies/hbm_in_models)
    return [*words, f"chip.hbm.channel_bandwidth={int(rng.uniform(20, 200))} GB/s"]


def attention(rng: Random, large: bool) -> Words:
    """Attention by any dataflow, in prefill and in decode, in groups that are chosen or drawn."""
    heads, keys = int(rng.choice([4, 8, 16, 32] if large else [2, 4, 8])), int(2 ** rng.uniform(6, 11 if large else 9.5))
    shared = int(rng.choice([count for count in (1, 2, 4, 8) if count <= heads]))
    queries = int(rng.choice([1, keys, min(64, keys)]))
    sizes = {
        "batch": rng.choice([1, 2, 4, 16] if large else [1, 2, 4]),
        "heads": heads,
        "kv_heads": heads // shared,
        "queries": queries,
    }
    sizes["qk"] = int(rng.choice([64, 128]))
    rows, cols = (int(side) for side in rng.choice([4, 8, 16] if large else [4, 8], 2))
    words = ["chip=tile32", f"chip.mesh.rows={rows}", f"chip.mesh.cols={cols}", f"chip.hbm.channels={rng.choice([2, 4])}"]
    words += [f"chip.hbm.channel_bandwidth={int(rng.uniform(20, 200))} GB/s", "chip.hbm.banks=null", "workload=attention"]
    words += [f"workload.{name}={value}" for name, value in sizes.items()] + [f"workload.keys=[{keys}]"]
    words += ["workload.causal=true"] if queries > 1 and rng.random() < 0.3 else []
    name = str(rng.choice(list(ATTENTION)))
    words += [f"mapping.dataflow={name}"]
    if ATTENTION[name].grouped and rng.random() < 0.6:
        sides = [[side for side in (1, 2, 4, 8, 16) if whole % side == 0] for whole in (rows, cols)]
        words += [f"mapping.{axis}={rng.choice(side)}" for axis, side in zip(("rows", "cols"), sides, strict=True)]
    if rng.random() < 0.3:
        words += [
            f"mapping.queries={min(queries, int(rng.choice([16, 64, 128])))}",
            f"mapping.keys={rng.choice([32, 64, 128])}",
        ]
    return words


def team(rng: Random, large: bool) -> Words:
    """Multicasts and sums along rows, columns and rectangles of tiles."""
    rows, cols = (int(side) for side in rng.choice([4, 6, 8, 12, 16] if large else [4, 6, 8], 2))
    sides = [int(rng.choice([index for index in range(2, whole + 1) if whole % index == 0])) for whole in (rows, cols)]
    words = _collective(rng, rows, cols)
    words += [
        f"workload.pattern={rng.choice(list(TILE_PATTERNS))}",
        f"workload.group_axis={rng.choice(list(GROUP_AXES))}",
        "workload.root=0",
    ]
    return [*words, f"workload.group={sides[0]}x{sides[1]}", f"mapping.collective={rng.choice(list(TEAMS))}"]


def exchange(rng: Random, large: bool) -> Words:
    """Exchanges of all tiles."""
    rows, cols = (int(side) for side in rng.integers(2, 13 if large else 7, 2))
    words = [*_collective(rng, rows, cols), f"workload.pattern={rng.choice(list(EXCHANGED))}", "workload.group_axis=rectangle"]
    return [*words, "workload.root=0", f"mapping.collective={rng.choice(list(EXCHANGES))}"]


def _collective(rng: Random, rows: int, cols: int) -> Words:
    chip = str(rng.choice(["tile32", "npu64", "tile_gh200"]))
    size = int(2 ** rng.uniform(6, 16))
    words = [f"chip={chip}", f"chip.mesh.rows={rows}", f"chip.mesh.cols={cols}", "workload=collective", "mapping=collective"]
    return [*words, f"workload.bytes=['{2 * size} B']"]


def between_dies(rng: Random, large: bool) -> Words:
    """A collective of groups of dies."""
    chip = str(rng.choice(["wafer64", "wafer64_nvlink", "h800_ep", "h100_ep", "cm384"]))
    rows, cols = (int(side) for side in rng.choice([2, 4, 8] if large else [2, 4], 2))
    patterns = {
        "direct": ("all_to_all", "allgather", "reduce_scatter", "allreduce"),
        "hierarchical": ("all_to_all",),
        "ring": ("allgather", "reduce_scatter", "allreduce"),
        "two_level": ("allgather", "reduce_scatter", "allreduce"),
        "ktree": ("allgather", "reduce_scatter", "allreduce", "multicast", "reduce"),
    }
    how = str(rng.choice(list(patterns)))
    members = int(rng.choice([count for count in (2, 4, 8, 16, 0) if count <= rows * cols]))
    words = [
        f"chip={chip}",
        f"chip.dies.rows={rows}",
        f"chip.dies.cols={cols}",
        "workload=collective",
        "workload.group_axis=rectangle",
    ]
    words += ["workload.root=0", f"workload.pattern={rng.choice(patterns[how])}", f"mapping.collective={how}"]
    words += [f"workload.bytes=['{int(2 ** rng.uniform(8, 22))} B']", f"mapping.members={members}"]
    words += [f"mapping.ktree_k={rng.choice([1, 2, 3])}"] if how == "ktree" else []
    return [*words, f"mapping.placement={rng.choice(['linear', 'snake', 'blocks', 'interleave'])}"]


def die_product(rng: Random, large: bool) -> Words:
    """A product on a die with a cache whose cores meet in banks."""
    chip, banks, stacks = [("h100", "hbm3", 5), ("a100", "hbm2", 5), ("ascend910b", "hbm2", 4)][int(rng.integers(3))]
    m, k, n = (int(2**power) for power in rng.uniform((0, 9, 9), (11, 14, 14) if large else (8, 12, 12)))
    words = [f"chip={chip}", f"+memory@chip.hbm.banks={banks}", f"chip.hbm.banks.stacks={stacks}", "stack=ideal"]
    return [*words, "workload=gemm", "mapping=tensor_parallel", f"workload.shapes=[{m}x{k}x{n}]"]


Kind = Callable[[Random, bool], Words]

KINDS: dict[str, tuple[Kind, float]] = {
    "wafer product": (wafer_product, 1.5),
    "wafer vector": (wafer_vector, 1.0),
    "tile product": (tile_product, 1.0),
    "memory product": (memory_product, 1.0),
    "memory vector": (memory_vector, 1.0),
    "attention": (attention, 2.0),
    "team": (team, 0.75),
    "exchange": (exchange, 0.75),
    "between dies": (between_dies, 1.0),
    "die product": (die_product, 0.5),
}
"""By what they are called: what draws one, and how many of them for each of COUNT."""


DIVIDED = ("memory product", "memory vector", "attention", "team")
"""Kinds whose messages cross the dies of a mesh."""

LINKS = ("nv_hbi", "optical", "sow", "ucie_advanced", "ucie_standard")


def divided(rng: Random) -> Words:
    """Dies of a mesh, and the links between them."""
    return [f"chip.die.dies={rng.choice([2, 4, 8])}", f"+die_link@chip.die_link={rng.choice(LINKS)}"]


def seconds(fidelity: str, words: Words) -> float:
    """Time that a reader says. [s]"""
    question = asked(*words)
    return float(evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity).columns["latency"][0])


def surveyed(kinds: list[str], count: int, seed: int, readers: tuple[str, str], dies: bool = False) -> Iterator[Found]:
    """Kernels of some kinds, each with its own draws, on several dies or on one; those that are refused are drawn again."""
    for kind in kinds:
        make_words, share = KINDS[kind]
        rng, count_so_far = np.random.default_rng([seed, *kind.encode()]), 0
        while count_so_far < round(count * share):
            words = [*make_words(rng, readers[1] == "events"), *(divided(rng) if dies else [])]
            try:
                times = [seconds(fidelity, words) for fidelity in readers]
            except DesignError:
                continue
            if np.isfinite(times).all():
                count_so_far += 1
                yield Found(kind, " ".join(words), *times)


def line(name: str, gaps: np.ndarray) -> str:
    """What there is to say of some gaps."""
    low, middle, high = np.percentile(gaps, [5, 50, 95])
    near = (np.abs(gaps) <= NEAR + 1e-12).mean()
    return (
        f"{name}: {len(gaps)} draws, {near:.0%} within {NEAR:.0%}, worst {gaps.min():+.1%} and {gaps.max():+.1%}, mean "
        f"{np.abs(gaps).mean():.1%} apart, median {middle:+.1%}, 90 % within {low:+.1%} to {high:+.1%}"
    )


def main() -> None:
    """Prints a line for each kind, one for all, and the largest gaps."""
    parser = argparse.ArgumentParser(prog="python -m tests.agreement.survey", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("count", nargs="?", type=int, default=40, help="draws of a kind, more of some (%(default)s)")
    parser.add_argument(
        "--against", choices=["events", "cycles"], default="events", help="closed against events, or events against cycles"
    )
    parser.add_argument("--kind", nargs="*", choices=list(KINDS), default=list(KINDS), help="kinds of kernels; all")
    parser.add_argument("--seed", type=int, default=0, help="of the draws (%(default)s)")
    parser.add_argument("--dies", action="store_true", help=f"meshes on several dies: {', '.join(DIVIDED)}")
    parser.add_argument("--all", action="store_true", help="print every draw, too")
    given = parser.parse_args()
    readers = ("analytical", "events") if given.against == "events" else ("events", "cycles")
    samples = []
    given.kind = [kind for kind in given.kind if kind in DIVIDED or not given.dies]
    for sample in surveyed(given.kind, given.count, given.seed, readers, given.dies):
        samples.append(sample)
        if given.all:
            print(f"{sample.gap:+.1%} {sample.nearer * 1e6:,.2f} / {sample.farther * 1e6:,.2f} us: {sample.words}", flush=True)
    for kind in given.kind:
        gaps = np.array([sample.gap for sample in samples if sample.kind == kind])
        if len(gaps):
            print(line(kind, gaps))
    print(line("all", np.array([sample.gap for sample in samples])))
    for sample in sorted(samples, key=lambda sample: -abs(sample.gap))[:SHOWN]:
        print(f"{sample.gap:+.1%} {sample.nearer * 1e6:,.2f} / {sample.farther * 1e6:,.2f} us: dse evaluate {sample.words}")


if __name__ == "__main__":
    main()

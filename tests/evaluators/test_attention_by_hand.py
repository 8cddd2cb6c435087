"""What attention on groups of tiles multiplies, loads and sends, by hand: slices of [zhang2026] algorithms 1 and 2 counted."""

from typing import NamedTuple

import pytest

from tests.evaluators.test_energy_by_hand import done

SIDE = 32
"""Tiles of a row and of a column, and channels along the lower edge."""

VALUE, STATISTIC = 2, 4
"""Bytes of an operand, and of a maximum or a sum."""


class Case(NamedTuple):
    """Sizes; groups of rows x cols tiles, of which each has so many queries and keys at a time."""

    dataflow: str
    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    width: int
    rows: int
    cols: int
    here: tuple[int, int]
    causal: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        names = ("batch", "heads", "kv_heads", "queries")
        texts = [f"workload.{name}={getattr(self, name)}" for name in names] + [f"workload.keys=[{self.keys}]"]
        texts += [f"workload.qk={self.width}", f"workload.causal={str(self.causal).lower()}"]
        texts += [f"mapping.dataflow={self.dataflow}", f"mapping.queries={self.here[0]}", f"mapping.keys={self.here[1]}"]
        sides = () if self.dataflow.startswith("flash") else (f"mapping.rows={self.rows}", f"mapping.cols={self.cols}")
        return ("chip=tile32", "workload=attention", *texts, *sides)


CASES = [
    Case("flash2", 3, 32, 8, 4096, 4096, 64, 1, 1, (64, 128)),
    Case("flash3", 1, 16, 4, 256, 1500, 64, 1, 1, (16, 128)),
    Case("flat_hw", 1, 32, 8, 1024, 1024, 64, 16, 8, (32, 32)),
    Case("flat_hw", 3, 20, 5, 1, 512, 128, 1, 8, (16, 32)),
    Case("flat_hw", 2, 8, 8, 1500, 1500, 128, 2, 4, (16, 64), causal=True),
    Case("flat_async", 2, 32, 32, 1, 512, 128, 8, 16, (16, 64)),
    Case("flat_async", 1, 16, 16, 256, 512, 128, 32, 8, (32, 16)),
    Case("flat_rows", 3, 8, 8, 2048, 2048, 128, 16, 16, (64, 64)),
    Case("flat_rows", 2, 32, 8, 1500, 1500, 64, 2, 2, (32, 16), causal=True),
    Case("flat_rows", 3, 8, 8, 256, 1024, 64, 4, 1, (64, 64)),
    Case("flat_seq", 1, 20, 5, 4096, 4096, 128, 16, 8, (64, 32)),
    Case("flat_seq", 3, 16, 4, 2048, 2048, 128, 4, 8, (64, 64), causal=True),
]


def by_hand(case: Case) -> tuple[float, float, float]:
    """Multiply-adds, bytes of memory, and bytes times the links that they cross."""
    in_line = SIDE // case.cols  # groups beside each other
    groups = SIDE // case.rows * in_line
    stacked = case.queries * case.heads // case.kv_heads  # queries of heads that share keys are rows of one problem
    blocks = -(-stacked // (case.rows * case.here[0]))
    paired = 2 if case.dataflow == "flat_rows" and blocks % 2 == 0 else 1  # two blocks of queries meet the same keys
    queries, keys, problems = case.here[0] * paired, case.here[1], case.batch * case.kv_heads
    blocks //= paired
    items = problems * blocks

    def needed(block: int) -> int:
        """Blocks of keys that a block of queries meets, up to its last query's own place where later ones are hidden."""
        last = min((block + 1) * case.rows * queries, stacked) - 1
        seen = last * case.kv_heads // case.heads + 1 if case.causal else case.keys
        return -(-seen // (case.cols * keys))

    # all groups have an item at a time, first blocks first, and go on as long as the one that meets most
    turns = [
        [needed(item // problems) for item in range(first, min(first + groups, items))] for first in range(0, items, groups)
    ]
    passed, loaded = sum(max(turn) for turn in turns), sum(max(turn) * len(turn) for turn in turns)
    # tiles run the program where their line of groups has an item in the first turn, next to memory first; others are idle
    lines = -(-min(items, groups) // in_line)
    height, at_work = lines * case.rows, lines * in_line
    macs = height * SIDE * passed * queries * keys * 2 * case.width
    slices = queries * case.width * VALUE, keys * 2 * case.width * VALUE  # of queries or outputs; of keys and values
    moved = items * case.rows * 2 * slices[0], loaded * case.cols * slices[1]

    def links(members: int, root: int) -> int:
        """Of what goes from one member to all: a tree along the line, or a message after another."""
        return sum(abs(place - root) for place in range(members)) if case.dataflow == "flat_seq" else members - 1

    along = sum(links(case.cols, row % case.cols) for row in range(case.rows))
    down = sum(links(case.rows, col % case.rows) for col in range(case.cols))
    # queries go out and outputs come in along rows; maxima and sums come in and go out; keys and values go down
    sent = at_work * (along * (2 * slices[0] * len(turns) + 2 * 2 * queries * STATISTIC * passed) + down * slices[1] * passed)
    high = [line * case.rows + col % case.rows for line in range(lines) for col in range(case.cols)]
    up = height - 1 - sum(high) / len(high)  # from the edge to the diagonals, which load keys; queries are loaded in all rows
    return macs, sum(moved), sent + moved[0] * (height - 1) / 2 + moved[1] * up


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.dataflow}-{case.rows}x{case.cols}")
def test_attention_does_what_its_algorithm_says(case: Case) -> None:
    counts = done(*case.words)
    assert (counts["mac"], counts["energy_per_byte"], counts["hop"]) == pytest.approx(by_hand(case))

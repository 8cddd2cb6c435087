"""Tables of this study, from the files that its command writes.

Gaps by family, causes of the largest, operators that overlap, broken links, and models on parts.
"""

import csv
from collections import Counter
from itertools import groupby

import numpy as np

from dse.space.units import format_quantity
from dse.studies.markdown_table import table
from dse.studies.what_closed_misses.families import FAMILIES
from dse.studies.what_closed_misses.stored_gaps import HERE, read_gaps


def finding() -> str:
    """All tables, from the files that ``python -m dse.studies.what_closed_misses`` writes."""
    parts = (_families(), _refusals(), _causes(), _overlaps(), _faults(), _parts())
    return "\n\n".join(parts)


def _families() -> str:
    """Gaps by family: how many designs, the median and the largest either way."""
    gaps, rows = read_gaps(), []
    for family in FAMILIES:
        own = [gap for gap in gaps if gap.family == family.name]
        both = np.array([gap.gap for gap in own if not gap.refusal])
        if not len(both):
            continue
        designs = str(
            max(Counter(gap.phase for gap in own if not gap.refusal).values()) + sum(bool(gap.refusal) for gap in own)
        )
        rows.append([
            family.name, family.fidelity, designs, f"{np.median(np.abs(both)):.1%}", f"{both.min():+.1%}", f"{both.max():+.1%}",
        ])  # fmt: skip
    return table(["family", "fidelity", "designs", "median", "lowest", "highest"], rows)


def _refusals() -> str:
    """Designs that only a simulation refuses, by reason."""
    counts = Counter((gap.family, gap.refusal) for gap in read_gaps() if gap.refusal)
    texts = [f"{count} of {family}: {reason}" for (family, reason), count in sorted(counts.items())]
    return f"Designs whose simulation does not end: {'; '.join(texts)}." if texts else "All simulations end."


def _causes() -> str:
    """The largest gaps with their causes."""
    head = ["family", "phase", "load", "analytical", "simulated", "gap", "cause", "gap without", "where", "also closed by"]
    rows = [
        [
            *(row["family"], row["phase"], f"{row['batch']} x {row['prompt']}"),
            *(_seconds(row[name]) for name in ("analytical", "simulated")),
            f"{float(row['simulated']) / float(row['analytical']) - 1:+.1%}",
            f"{row['category']}: {row['what']}",
            *(f"{float(row['left']):+.1%}", row["where"], row["others"]),
        ]
        for row in _rows("causes")
    ]
    return table(head, rows)


def _overlaps() -> str:
    """Operators that overlap: by how much both together take longer than the longer one."""
    head = [
        "machine",
        "operators",
        "pieces",
        "longer one",
        "events",
        "cycles",
        "cycles with free links",
        "cycles without banks",
    ]
    rows = []
    for key, several in groupby(_rows("overlaps"), key=lambda row: (row["machine"], row["what"], row["pieces"])):
        by = {row["fidelity"]: row for row in several}
        longer = {word: max(float(row["first"]), float(row["second"])) for word, row in by.items()}
        excess = {word: f"{float(row['together']) / longer[word] - 1:+.0%}" for word, row in by.items()}
        free = (f"{float(by['cycles'][name]) - 1:+.0%}" for name in ("without_links", "without_banks"))
        rows.append([*key, _seconds(longer["cycles"]), excess["events"], excess["cycles"], *free])
    return table(head, rows)


def _faults() -> str:
    """Kernels of tiles with broken links, cycle by cycle, over the same mesh when it is whole."""
    rows = []
    for kernel, several in groupby(_rows("faults"), key=lambda row: row["machine"].partition("; ")[0]):
        own = [(row["machine"].partition("; ")[2], row["fidelity"], float(row["ttft"])) for row in several]
        analytical, whole = own[0][2], own[1][2]
        gaps = (f"{seconds / whole - 1:+.1%}" for _, _, seconds in own[2:])
        rows.append([kernel, _seconds(analytical), f"{whole / analytical - 1:+.1%}", *gaps])
    names = [row["machine"].partition("; ")[2] for row in _rows("faults")]
    faults = [f"{name} broken" for name in dict.fromkeys(names) if name != "none"]
    return table(["kernel", "analytical", "cycles, whole mesh", *faults], rows)


def _parts() -> str:
    """Whole models on parts of 8 x 8 cores, by each fidelity."""
    rows = []
    for machine, several in groupby(_rows("parts"), key=lambda row: row["machine"]):
        own = list(several)
        for row in own:
            gaps = (f"{float(row[name]) / float(own[0][name]) - 1:+.1%}" for name in ("ttft", "tpot"))
            times = (_seconds(row[name]) for name in ("ttft", "tpot"))
            rows.append([machine, row["fidelity"], *times, *gaps, f"{float(row['cpu']):.1f}"])
    head = ["machine and model", "fidelity", "TTFT", "TPOT", "TTFT over analytical", "TPOT over analytical", "CPU s"]
    return table(head, rows)


def _rows(name: str) -> list[dict[str, str]]:
    with (HERE / f"{name}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def _seconds(value: float | str) -> str:
    return format_quantity(float(value), "s", 3)

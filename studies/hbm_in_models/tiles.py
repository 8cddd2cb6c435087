"""Findings on memory fidelity in calls of tiles: one rate, tables of blocks, and bursts.

FlatAttention's rows are compared with these.
"""

import numpy as np

from dse.commands.python_questions import evaluate

LAYOUTS = (
    ("neighbours in other bank groups", ()),
    ("the same, banks hashed", ("chip.hbm.banks.hashed=bank",)),
    ("all banks before a row again", ("chip.hbm.banks.order=row_column_bank_group",)),
    ("rows filled one after the other", ("chip.hbm.banks.order=row_group_bank_column",)),
)
"""What interleaving does, and overrides; the first one is the chip's."""

CALLS = 4
"""Random calls of a kind."""

SIDES = ("chip=tile32", "chip.mesh.rows=8", "chip.mesh.cols=4", "chip.hbm.channels=4")
"""Eight tiles to a channel."""

LAYERS = tuple((keys, dim) for dim in (64, 128) for keys in (1024, 2048, 4096))
"""Keys and head dimensions of [zhang2026]'s figure 8."""

COLUMN = (
    "chip=tile32", "chip.mesh.cols=1", "chip.hbm.channels=1", "workload=attention", "workload.batch=2", "workload.heads=1",
    "mapping.queries=128", "mapping.keys=128",
)  # fmt: skip
"""A column of the paper's 32: its tiles by themselves load from their own channel, and have two of the 64 heads."""

Row = list[str]


def calls() -> dict[str, list[tuple[str, ...]]]:
    """Overrides of random calls, by kind of call."""
    rng = np.random.default_rng(0)

    def list_text(*values: object) -> str:
        return str(rng.choice(np.array(values, object)))

    attention: list[tuple[str, ...]] = [
        (
            "workload=attention", "workload.batch=1", f"workload.heads={list_text(4, 8, 16)}",
            f"workload.keys=[{list_text(512, 768, 1024)}]", f"workload.qk={list_text(64, 96, 128)}",
            f"mapping.dataflow={list_text('flash2', 'flash3', 'flat_hw', 'flat_async')}",
        )
        for _ in range(CALLS)
    ]  # fmt: skip
    products: list[tuple[str, ...]] = [
        (
            "workload=gemm",
            f"workload.shapes=[{list_text(256, 512, 1024)}x{list_text(512, 1024, 1536)}x{list_text(512, 768, 2048)}]",
        )
        for _ in range(CALLS)
    ]
    return {"attention": attention, "products": products}


def by_calls() -> list[Row]:
    """Table by kind of call and interleaving: time by a rate and by tables over that by bursts."""
    rows: list[Row] = []
    first: dict[str, np.ndarray] = {}
    for kind, questions in calls().items():
        for what, layout in LAYOUTS:
            by_pace, by_tables, by_bursts = (
                np.array([_seconds(*SIDES, *call, *words, fidelity=fidelity) for call in questions])
                for fidelity, words in (("cycles", ("chip.hbm.banks=null",)), ("events", layout), ("cycles", layout))
            )
            first.setdefault(kind, by_bursts)
            gaps = (by_pace / by_bursts - 1, by_tables / by_bursts - 1)
            rows.append([kind, what, *(_spread(gap) for gap in gaps), _spread(by_bursts / first[kind] - 1)])
    return rows


def by_layers() -> list[Row]:
    """Share of HBM's peak in FlashAttention-2 per layer: by the fitted rate, one stream, and bursts."""
    metrics = np.array([
        [_metric("hbm_utilisation", *COLUMN, f"workload.keys=[{keys}]", f"workload.qk={dim}", *more) for _, *more in PACES]
        for keys, dim in LAYERS
    ])  # fmt: skip
    rows = [[f"S = {keys}, D = {dim}", *map(_share, line)] for (keys, dim), line in zip(LAYERS, metrics, strict=True)]
    return [
        *rows,
        ["mean (f-fa-hbm, 80 %)", *map(_share, metrics.mean(axis=0))],
        ["FlashAttention-3 over FlatAsync (4.1)", *_faster()],
    ]


PACES = (
    ("the fitted pace", "mapping.dataflow=flash2", "fidelity=events"),
    ("one stream's pace", "mapping.dataflow=flash2", "chip.hbm.contended_efficiency=1", "fidelity=events"),
    ("bursts", "mapping.dataflow=flash2", "fidelity=cycles"),
)
"""What blocks cost a channel, and overrides."""


def _faster() -> list[str]:
    """f-fa3-speedup: FlatAsync is bound by products, and by events in all of them."""
    flat = (
        "chip=tile32", "workload=attention", "workload.batch=2", "workload.keys=[4096]", "workload.qk=128", "mapping.rows=32",
        "mapping.cols=32", "mapping.dataflow=flat_async", "fidelity=events",
    )  # fmt: skip
    whole = _metric("latency", *flat)
    each = (
        _metric("latency", *COLUMN, "workload.keys=[4096]", "workload.qk=128", "mapping.dataflow=flash3", *more)
        for _, _, *more in PACES
    )
    return [f"{seconds / whole:.2f}" for seconds in each]


def _seconds(*words: str, fidelity: str) -> float:
    return _metric("latency", *words, f"fidelity={fidelity}")


def _metric(name: str, *words: str) -> float:
    return float(evaluate(*words).metrics[name])


def _share(value: float) -> str:
    return f"{value:.1%}"


def _spread(gaps: np.ndarray) -> str:
    return f"{np.median(gaps):+.1%} ({gaps.min():+.1%} to {gaps.max():+.1%})"

"""Findings on six dataflows: cycles by sequence and head size, and their breakdown."""

from functools import lru_cache
from itertools import product
from pathlib import Path

from dse.config.compose import compose
from dse.config.question import Question, build_question
from dse.evaluators import evaluate, explain
from dse.evaluators.kernels.attention import ATTENTION
from dse.evaluators.kernels.attention.attention_cost import TIME_PARTS
from dse.space.design import stack_designs
from dse.space.fields import iterate_leaves, replace_leaves
from dse.studies.markdown_table import table

TOKENS, COLUMNS = (1024, 2048, 4096), (64, 128)


def finding() -> str:
    """Tables of cycles and bandwidth shares by layer, and the breakdown for S = 4096, D = 128."""
    names = list(ATTENTION)
    cycles, bandwidth = [], []
    for tokens, columns in product(TOKENS, COLUMNS):
        found_metrics = [metrics(name, tokens, columns) for name in names]
        cycles.append([f"{tokens}", f"{columns}", *(f"{metric['cycles']:,.0f}" for metric in found_metrics)])
        bandwidth.append([f"{tokens}", f"{columns}", *(f"{metric['hbm_utilisation']:.0%}" for metric in found_metrics)])
    sizes = list(product(TOKENS, COLUMNS))
    exchanged = [
        [name, *(f"{metrics(name, *size)['communication_share']:.0%}" for size in sizes)]
        for name in names
        if ATTENTION[name].grouped
    ]
    parts = []
    for name in names:
        layer = layer_question(name, 4096, 128)
        spent = explain(layer.base, layer.workload.cases[0], fidelity="events")
        shares = {row.operator: row.seconds / spent.seconds for row in spent.rows}
        use = metrics(name, 4096, 128)["mfu"]
        parts.append([name, f"{use:.1%}", *(f"{shares.get(part, 0.0):.0%}" for part in reversed(TIME_PARTS))])
    control = [[f"{times}", *(f"{cycles:,.0f}" for cycles in schedule_cycles(times))] for times in (1, 8)]
    head = ["S", "D", *names]
    return "\n\n".join(
        [
            "Cycles:",
            table(head, cycles),
            "HBM bandwidth, of its peak:",
            table(head, bandwidth),
            "S = 4096, D = 128, share of the time:",
            table(["dataflow", "mfu", *reversed(TIME_PARTS)], parts),
            "Share of the time in communication between tiles:",
            table(["dataflow", *(f"S = {tokens}, D = {columns}" for tokens, columns in sizes)], exchanged),
            "What 65 % in communication would take of FlatTC at S = 4096, D = 128, cycles a head, by events:",
            table(
                ["products", "exchanges", "of these sums", "exchanges for 65 %", "multicasts by 5.1", "left for sums", "times"],
                [exchange_table()],
            ),
            "What the schedule of two row blocks costs, S = 4096, D = 128, cycles, on HBM and links so many times as wide:",
            table(["as wide", "flash2", "flash3", "flash3, control for nothing"], control),
        ]
    )


def exchange_table() -> list[str]:
    """Exchange time needed for a 65 % share without memory and vectors, and its split by multicasts."""
    layer = layer_question("flat_tree", 4096, 128)
    rows = explain(layer.base, layer.workload.cases[0], fidelity="events").rows
    cycles = {row.operator: row.seconds * float(layer.base.chip.clock) / HEADS for row in rows}  # type: ignore[union-attr]
    sent = build_question(
        compose(["chip=tile32", "workload=collective", "mapping=collective", "workload.bytes=[32KiB]"]), Path(__file__).parent
    )
    exchanges = sum(cycles.get(name, 0.0) for name in ("multicast", "reduction", "synchronisation"))
    spread = {
        way: float(
            evaluate(
                stack_designs([replace_leaves(sent.base, {"mapping.collective": way})]), sent.workload, fidelity="events"
            ).columns["cycles"][0]
        )
        for way in ("hardware", "tree")
    }
    multicasts, wanted = 3 * 5.1 * spread["hardware"], 0.65 / 0.35 * cycles["matrix"]
    sums = exchanges - 3 * spread["tree"]
    numbers = (cycles["matrix"], exchanges, sums, wanted, multicasts, wanted - multicasts)
    return [*(f"{number:,.0f}" for number in numbers), f"{(wanted - multicasts) / sums:.1f}"]


HEADS = 64
"""Of the figure's layers, sequences of the batch included."""


def schedule_cycles(times: int) -> list[float]:
    """Cycles of FlashAttention-2 and -3, and of -3 without multi-head overhead, on wider HBM and links."""
    cycles = []
    for name, control in (("flash2", 1.0), ("flash3", 1.0), ("flash3", 0.0)):
        layer = layer_question(name, 4096, 128)
        factors = {"chip.hbm.channel_bandwidth": times, "chip.noc.word_bytes": times, "chip.tile.multi_head_overhead": control}
        was = {address: value for address, value, _ in iterate_leaves(layer.base)}
        design = replace_leaves(layer.base, {address: was[address] * factor for address, factor in factors.items()})
        cycles.append(float(evaluate(stack_designs([design]), layer.workload, fidelity="events").columns["cycles"][0]))
    return cycles


def layer_question(name: str, tokens: int, columns: int) -> Question:
    """Question of one layer of the figure; single tiles use tilings of 128 x 128.

    Groups have that tiling for the longest sequence.
    """
    slices = [] if ATTENTION[name].grouped else ["mapping.queries=128", "mapping.keys=128"]
    layer = [f"mapping.dataflow={name}", f"workload.keys=[{tokens}]", f"workload.qk={columns}"]
    return build_question(compose(["study=flat_fig8", *layer, *slices]), Path(__file__).parent)


@lru_cache(maxsize=64)
def metrics(name: str, tokens: int, columns: int) -> dict[str, float]:
    """Metrics of one layer of the figure."""
    layer = layer_question(name, tokens, columns)
    evaluation = evaluate(stack_designs([layer.base]), layer.workload, fidelity="events")
    return {metric: float(values[0]) for metric, values in evaluation.columns.items()}

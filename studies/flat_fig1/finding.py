"""Findings on attention: share of operations by length, rooflines of layers, published GPU figures."""

from dse.commands.notebook_api import find_study
from dse.config.compose import compose
from dse.config.workloads import read_models
from dse.evaluators.graph.operators import AttentionOp, ElementwiseOp, Segment
from dse.evaluators.graph.step_counts import StepCounts
from dse.evaluators.graph.transformer import transformer_segments
from dse.studies.flat_fig12.finding import roof, simulate_layer
from dse.studies.markdown_table import table

MODELS = ("qwen_7b", "deepseek_v2_lite", "deepseek_v3")
TOKENS = (1024, 4096, 8192, 16384, 32768)

GH200 = 988e12, 4e12
"""Peak of [zhang2026] section V-B: operations on 16 bits, and bytes, a second."""

GPU = (
    ("FlashAttention-3, prefill, H100", "compute", 740e12, "[shah2024], the abstract: up to"),
    ("FlashMLA, decode, H800", "compute", 660e12, "[deepseek2025]: up to"),
    ("FlashMLA, decode, H800", "memory", 3e12, "[deepseek2025]: up to"),
)
"""What kernels on GPUs reach as published: operations or bytes a second."""


def finding() -> str:
    """Three tables: shares of attention, layers under the roofline, and GPUs."""
    config = compose([f"model=[{','.join(MODELS)}]"])
    named = read_models(config["model"])
    shares = [
        [model.name, phase, *(f"{share(transformer_segments(model, step(phase, tokens))):.0%}" for tokens in TOKENS)]
        for model in named.values()
        for phase in ("prefill", "decode")
    ]
    question = find_study("flat_fig1").question
    rows = []
    for case in question.workload.cases:
        simulated_runs = {name: simulate_layer(question.base, name, case, "events") for name in ("flash3", "flat_async")}
        bound = roof(case, simulated_runs["flat_async"][0].chip)  # type: ignore[arg-type]
        reached = [f"{bound.seconds / metrics['latency']:.0%}" for _, metrics in simulated_runs.values()]
        which = "compute" if bound.compute else "memory"
        rows.append([case.label, f"{bound.intensity:.0f}", which, f"{bound.seconds * 1e6:.0f}", *reached])
    gpus = [
        [name, what, f"{rate / 1e12:.0f} {'TFLOP/s' if what == 'compute' else 'TB/s'}", f"{rate / chip_facts:.0%}", where]
        for name, what, rate, where in GPU
        for chip_facts in [GH200[what == "memory"]]
    ]
    return "\n\n".join(
        [
            "Attention's share of all operations (scores and weighted sums; projections apart), by tokens:",
            table(["model", "phase", *(f"{tokens:,}" for tokens in TOKENS)], shares),
            "Layers on chip=tile_gh200, share of the roofline reached by FlashAttention-3 and by FlatAsync there:",
            table(["layer", "op/B", "bound", "roof, us", "flash3", "flat_async"], rows),
            "GPUs as published, over a GH200's peak of 988 TFLOP/s and 4 TB/s:",
            table(["kernel", "bound", "published", "of the peak", "where"], gpus),
        ]
    )


def step(phase: str, tokens: int) -> StepCounts:
    """Counts of one sequence's step: a causal prompt, or one token after a context."""
    if phase == "prefill":
        return StepCounts(phase, float(tokens), 1.0, tokens * (tokens + 1) / 2, 0.0)
    return StepCounts(phase, 1.0, 1.0, float(tokens), float(tokens))


def share(parts: tuple[Segment, ...]) -> float:
    """Share of attention in the operations of all products."""
    attention = rest = 0.0
    for part in parts:
        for operator in part.operators:
            if isinstance(operator, AttentionOp):
                heads = operator.heads.units
                attention += part.times * 2.0 * operator.pairs * heads * (operator.qk_dim + operator.v_dim)
            elif not isinstance(operator, ElementwiseOp):
                rest += (
                    part.times * 2.0 * operator.m * operator.k.units * operator.k.width * operator.n.units * operator.n.width
                )
    return attention / (attention + rest)

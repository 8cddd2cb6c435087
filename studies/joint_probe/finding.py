"""Findings on ideas of one paper applied to the machine of another."""

from collections import Counter

from dse.analysis.evaluation import Evaluation
from dse.analysis.withheld_metrics import computed_metrics
from dse.commands.python_questions import evaluate
from dse.space.parameter_counts import active_parameter_count
from dse.space.workload import BatchCase
from dse.studies.markdown_table import table

LOAD = ("model=qwen3_8b", "workload.batch=[16]", "workload.prompt=[1024]", "workload.output=[256]")
PREFETCH = ("chip=npu64", "mapping=npu_prefetch", *LOAD)
GROUPS = ((4, 16), (8, 8), (16, 4), (32, 2))
SUMS = (
    ("ring", ("mapping.decode.allreduce.algorithm=ring", "mapping.decode.allreduce.ktree_k=null")),
    ("ktree, K = 2", ()),
    ("two_level", ("mapping.decode.allreduce.algorithm=two_level", "mapping.decode.allreduce.ktree_k=null")),
)
PRODUCTS = ("meshgemm", "cannon", "summa", "t10", "ladder")
SHAPES = ("4096x4096x4096", "1024x4096x14336", "128x4096x4096")
RIVALS = {
    "gemm": ("meshgemm", "cannon", "summa", "allgather", "auto"),
    "gemv": ("ktree", "pipeline", "ring", "auto"),
    "sums": ("ktree", "two_level", "ring", "auto"),
    "partition": ("k", "mn", "mn_k", "input_only", "auto"),
    "mesh": ("k", "mn_k", "input_only", "meshgemm", "cannon", "summa", "auto"),
}
ON_WAFER = ("chip=wse3", "model=qwen3_1b7", "workload.prompt=[128]", "workload.output=[64]", "mapping.decode.regions=1")
ON_GROUP = (
    "chip=npu64", "mapping=npu_ktree", "model=qwen3_4b", "workload.prompt=[1024]", "workload.output=[256]",
    "mapping.both.tp=64", "mapping.both.pp=1", "mapping.both.placement=mesh", "chip.noc.word_bytes='960 B'",
)  # fmt: skip
DIVIDED = (
    "chip=npu64", "model=qwen3_4b", "workload.prompt=[512]", "workload.output=[64]", "mapping.both.tp=16", "mapping.both.pp=4",
)  # fmt: skip
ON_MESH = (
    "chip=npu64", "model=qwen3_4b", "workload.prompt=[512]", "workload.output=[64]", "mapping.both.tp=64", "mapping.both.pp=1",
    "mapping.both.placement=mesh",
)  # fmt: skip
OPEN = (
    "chip=npu64", "model=qwen3_1b7", "workload=serving", "workload.requests=60", "workload.prompt=512", "workload.output=64",
    "workload.rate='0.2 Hz'", "mapping.both.tp=8", "mapping.both.pp=4", "mapping.both.placement=mesh",
    "mapping.serving.prefill_cores=32",
)  # fmt: skip
SERVED = ("model=llama3_8b", "workload=serving", "workload.requests=60", "workload.prompt=512", "workload.output=64")


def finding() -> str:
    """One table for each transferred idea."""
    parts = (
        ("PRESERVE's prefetching on npu64: time of a token, Qwen3-8B, batch 16, by TP x PP.", prefetch_text()),
        (
            "Partial sums of a group on npu64 (TP 64, batch 1, Qwen3-4B, as if its 32 heads divided): "
            "time of a token, by width of links.",
            sums(),
        ),
        ("Products of wafers on FlatAttention's tiles (tile32): time, beside SUMMA whose operands come from HBM.", products()),
        ("Rivals on one mesh: by one word, and by auto, where each operator has its own.", rivals()),
        (
            "Partitions where requests are served: Qwen3-1.7B on npu64, 32 cores to prefill, one request at a time.",
            open_words(),
        ),
        ("Requests served: Llama3-8B, 512 and 64 tokens, one at a time (0.2 a second).", serving_text()),
        ("One prompt of Llama3-8B on wse2: first token, and twice its active parameters and tokens over that.", fill_text()),
    )
    return "\n\n".join(f"{what}\n\n{rows}" for what, rows in parts)


def prefetch_text() -> str:
    """Table of no prefetch, whole operators and partial ones; designs that do not fit are marked."""
    rows = []
    for tp, pp in GROUPS:
        evaluations = {
            policy: evaluate(
                *PREFETCH, f"mapping.both.tp={tp}", f"mapping.both.pp={pp}", f"mapping.both.prefetch.policy={policy}"
            )
            for policy in ("none", "whole", "partial")
        }
        by = {policy: computed_metrics(evaluation.metrics)["tpot"] for policy, evaluation in evaluations.items()}
        gains = [f"{by[policy] * 1e3:.3f} ms ({by[policy] / by['none'] - 1:+.1%})" for policy in ("whole", "partial")]
        mark = "" if evaluations["none"].infeasible is None else ", does not fit"
        rows.append([f"{tp} x {pp}{mark}", f"{by['none'] * 1e3:.3f} ms", *gains])
    return table(["TP x PP", "none", "whole", "partial"], rows)


def sums() -> str:
    """Table of ring against K-tree reductions of partial sums."""
    rows = []
    for width in (32, 960):
        tpots = [
            computed_metrics(evaluate(
                "chip=npu64", "mapping=npu_ktree", "model=qwen3_4b", "workload.batch=[1]", "workload.prompt=[1024]",
                "workload.output=[256]", "mapping.both.tp=64", "mapping.both.pp=1",
                f"chip.noc.word_bytes='{width} B'", *words,
            ).metrics)["tpot"]
            for _, words in SUMS
        ]  # fmt: skip
        rows.append([f"{width} B", *(f"{value * 1e3:.3f} ms" for value in tpots)])
    return table(["link", *(name for name, _ in SUMS)], rows)


def products() -> str:
    """Table of products with operands in local memory, or from HBM."""
    rows = []
    for shape in SHAPES:
        overrides = ("chip=tile32", "workload=gemm", f"workload.shapes=[{shape}]")
        evaluations = [evaluate(*overrides, "mapping=product", "mapping.rows=32", f"mapping.gemm={name}") for name in PRODUCTS]
        beside = evaluate(*overrides, "mapping=summa")
        cells = [
            f"{evaluation.metrics['latency'] * 1e6:.1f} us" if evaluation.infeasible is None else "does not fit"
            for evaluation in (*evaluations, beside)
        ]
        rows.append([shape, *cells])
    return table(["product", *PRODUCTS, "SUMMA from HBM"], rows)


def rivals() -> str:
    """Table of one algorithm for a whole phase against auto-tuning per operator."""
    rows = []
    for kind, what, metric, batches in (
        ("gemm", "a prompt on wse3, products of 200 x 200 cores", "ttft", (1,)),
        ("gemv", "a token on wse3, sums of 360 cores", "tpot", (1, 64)),
        ("sums", "a token on npu64, sums of 64 cores", "tpot", (1, 16)),
        ("partition", "512 and 64 tokens on npu64, products of 16 cores", "latency", (1, 16)),
        ("mesh", "512 and 64 tokens on npu64, products of 8 x 8 cores", "latency", (1, 16)),
    ):
        for batch in batches:
            each = {word: evaluate(*_rival(kind, word), f"workload.batch=[{batch}]") for word in RIVALS[kind]}
            auto = each["auto"].metrics[metric]
            alone = [
                evaluation.metrics[metric]
                for word, evaluation in each.items()
                if word != "auto" and evaluation.infeasible is None
            ]
            words = ", ".join(f"{word} {_said(evaluation, metric)}" for word, evaluation in each.items() if word != "auto")
            rows.append(
                [what, str(batch), words, f"{auto * 1e3:.4g} ms ({auto / min(alone) - 1:+.1%})", _chosen(each["auto"], metric)]
            )
    return table(["what", "batch", "one word", "auto, over the best", "chosen, by number of operators"], rows)


def _said(evaluation: Evaluation, metric: str) -> str:
    return f"{evaluation.metrics[metric] * 1e3:.4g} ms" if evaluation.infeasible is None else "does not fit"


def _rival(kind: str, word: str) -> tuple[str, ...]:
    if kind == "partition":
        return (*DIVIDED, f"mapping.both.partition={word}")
    if kind == "mesh":
        return (*ON_MESH, f"mapping.both.partition={word}")
    if kind == "sums":
        phases = "2" if word in ("ktree", "auto") else "null"
        return (*ON_GROUP, f"mapping.both.allreduce.algorithm={word}", f"mapping.both.allreduce.ktree_k={phases}")
    where = ("mapping.prefill.rows=200",) if kind == "gemm" else ()
    return (*ON_WAFER, *where, f"mapping.{'prefill' if kind == 'gemm' else 'decode'}.{kind}={word}")


def _chosen(evaluation: Evaluation, metric: str) -> str:
    texts = []
    for phase in {"ttft": ("prefill",), "tpot": ("decode",), "latency": ("prefill", "decode")}[metric]:
        rows = (
            row.shape.rpartition(" by ")[2] for row in evaluation.breakdown.rows if row.phase == phase and " by " in row.shape
        )
        words = ", ".join(f"{word} {count}" for word, count in Counter(rows).most_common())
        texts.append(f"{phase} {words}" if metric == "latency" else words)
    return "; ".join(texts)


def open_words() -> str:
    """Table of one partition for all operators of serving pipelines against auto-tuning per pool."""
    rows = []
    for word in ("k", "mn_k", "input_only", "summa", "auto"):
        evaluation = evaluate(*OPEN, f"mapping.both.partition={word}")
        rows.append([word, *(f"{evaluation.metrics[name] * 1e3:.3g} ms" for name in ("ttft", "tpot"))])
    return table(["partition", "first token", "a token"], rows)


def serving_text() -> str:
    """Table of one serving load on each kind of machine."""
    rows = []
    for chip in ("a100", "npu64", "wse2", "tile_gh200"):
        evaluation = evaluate(f"chip={chip}", *SERVED, "workload.rate='0.2 Hz'")
        rows.append([chip, *(f"{evaluation.metrics[name] * 1e3:.3g} ms" for name in ("ttft", "tpot"))])
    return table(["chip", "first token", "a token"], rows)


def fill_text() -> str:
    """Table of the utilisation of a wafer by prompts."""
    rows = []
    for tokens in (512, 4096):
        evaluation = evaluate(
            "chip=wse2", "model=llama3_8b", "workload.batch=[1]", f"workload.prompt=[{tokens}]", "workload.output=[64]"
        )
        case = evaluation.workload.cases[0]
        assert isinstance(case, BatchCase)
        seconds = evaluation.metrics["ttft"]
        rate = 2 * active_parameter_count(case.model) * tokens / seconds
        rows.append([f"{tokens:,}", f"{seconds * 1e3:.1f} ms", f"{rate / 1e12:.0f} Top/s"])
    return table(["tokens", "first token", "rate"], rows)

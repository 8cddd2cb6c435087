"""Measured attention of prompts and decode steps, and the stack parts fitted on it."""

import csv
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from dse.evaluators.kernels.library import decode_attention as generation
from dse.evaluators.kernels.library import prefill_attention as context
from dse.evaluators.kernels.library.prefill_attention import PrefillAttention
from dse.evaluators.machine.library_die import LibraryDie
from dse.space.errors import DesignError
from dse.space.libraries.decode_attention import DecodeAttentionConstants
from dse.space.libraries.prefill_attention import PrefillAttentionConstants
from dse.studies.gpu_measured.measured import FittedPart, PartRow, Vector, table

PROMPTS = ("start", "achieved", "hbm", "unit", "tail", "sharpness")
STEPS = {
    "start": (1e-5, 0.0, 3e-5),
    "hbm": (0.9, 0.3, 1.0),
    "ramp": (1.2e-5, 0.0, 6e-5),
    "kept": (0.6, 0.05, 20.0),
    "length": (0.3, 0.0, 0.9),
    "merge": (1e-7, 0.0, 3e-6),
    "unit": (3e-6, 0.0, 1e-5),
    "walk": (1e-8, 0.0, 1e-7),
    "join": (8e-6, 0.0, 3e-5),
    "cached": (0.7, 0.05, 1.0),
    "sharpness": (2.0, 1.0, 8.0),
    "single": (1e-6, 0.0, 1e-5),
    "lead": (5e-9, 0.0, 1e-7),
    "cut": (5e-6, 0.0, 2e-5),
    "wide_start": (2e-6, 0.0, 1e-5),
    "wide_hbm": (0.85, 0.3, 1.0),
}
"""Numbers of decode steps: where a fit begins, and the ends of its range."""

UNHEARD = "no row has a decode beside a prompt: nothing is skipped"
NO_CONVERSION = "no row has values of 8 bits: read and written at the rate of the latent kernels of trtllm_h100"
ROWS = "queries of a tile of its kernels for heads of 128 columns: of 64 and 128, that which rows on other lengths say"


LAUNCHES = {
    "one": "FlashAttention takes prompts and decodes in one launch, as vLLM asks it to",
    "two": "TensorRT-LLM has kernels for either, launched one after the other",
}


ANY_KNEE = (4.0, "rows are as near with 2 as with 8: below what the cache keeps little is missed, above it nearly all")
ALL_KEPT = (1.0, "fitted with the rest it ends 3 % beside: the die's cache keeps as much as it has")
NO_LENGTH = (0.0, "fitted with the rest it ends here: what the cache keeps is bytes, however long a request is")
ONE_SHAPE: dict[str, tuple[Any, str]] = dict.fromkeys(
    ("single", "lead", "cut", "wide_start", "wide_hbm"), (None, "no row has a short cache, or heads of other columns than 128")
)
"""What rows of caches from 256 keys on, of heads of 128 columns, say nothing of."""

NONE_ALONE: dict[str, tuple[Any, str]] = ONE_SHAPE | {
    "walk": (1e-8, "no row has a query by itself: as of trtllm_h100"),
    "join": (0.0, "no row has a query by itself"),
    "cached": (0.7, "no row reads keys again: a part of what the die's cache can"),
}
"""What rows of KV heads with several queries say nothing of, besides."""


def launches(stack: str) -> str:
    """Number of attention launches of an iteration with prompts and decodes in a stack: one or two."""
    return "two" if stack.startswith("trtllm") else "one"


def parts(folder: Path) -> list[FittedPart]:
    """Attention parts of each stack that has measurements with separate keys and values."""
    prompts = [_prompts(*stack, _asked(folder, "context", stack[2])) for stack in PROMPT_STACKS]
    prompts += [_steps(*stack, _asked(folder, "generation", begins)) for begins, *stack in STEP_STACKS]
    prompts += [_flash(folder, *stack) for stack in FLASH_STACKS]
    few = _steps("vllm_rtx4090", "rtx4090", FEW, _alone(folder))
    return [prompts[0], prompts[1], prompts[2], _mixed(folder), *prompts[3:], few]


PROMPT_STACKS = (
    ("trtllm_h100", "h100", "h100_sxm/attention/trtllm", 128),
    ("trtllm_a100", "a100", "a100_sxm/attention/trtllm", 64),
    ("vllm_a100", "a100", "a100_sxm/attention/vllm", 64),
)
"""Stack, chip, where a row's source begins, and rows of a tile."""

XQA = "[tensorrtllm2025] computeMultiBlockCount: "
SPLITS = "[flashattention2] num_splits_heuristic: "
RULES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "trtllm": (
        {
            "shared": 32,
            "wider": "alone",
            "fewest": 2,
            "part": 128,
            "waves": 8.0,
            "full": 8.0,
            "most": 128,
            "block": 512,
            "few": 0.25,
        },
        {
            "shared": "[tensorrtllm2025] supportConfigHMMA: groups of up to 32 heads",
            "wider": "[tensorrtllm2025] supportConfigHMMA: more go to the kernel of single queries, as rows of 64 heads say",
            "fewest": "[tensorrtllm2025] supportConfigCommon: one query of a KV head goes to a kernel of its own",
            "part": XQA + "kMinHistoryTokensPerBlock",
            "waves": XQA + "kTargetWaveFactor",
            "full": XQA + "parts are no more than sqrt(8 parts)",
            "most": "beyond 262,144 keys only, where its workspace ends",
            "few": "[tensorrtllm2025] mayHavePerfGain: kEnableMinBlockFactor, of whole parts",
            "block": "[tensorrtllm2025] multi_block_grid_setup: 1,024 threads, 16 a key, take eight keys at a time",
        },
    ),
    "vllm": (
        {
            "shared": 64,
            "wider": "tiles",
            "fewest": 1,
            "part": 128,
            "waves": 2.0,
            "full": None,
            "most": 128,
            "block": 128,
            "few": None,
        },
        {
            "shared": "[flashattention2] set_params_splitkv: a block of 64 rows, as rows of 64 heads on one KV head say",
            "wider": "[flashattention2] set_params_splitkv: blocks of 64 rows, as many as it takes",
            "fewest": "one kernel for all: a tile of one query is one of 64 rows",
            "part": SPLITS + "blocks of 128 keys for heads of 128 columns",
            "waves": SPLITS + "twice the multiprocessors",
            "full": SPLITS + "as many as fill the waves",
            "most": SPLITS + "128 splits",
            "block": "no row has a query by itself: a block of keys",
            "few": "one kernel for all",
        },
    ),
}
"""How libraries cut caches, by what their stacks begin with: values, and where they are from."""

STEP_STACKS = (
    ("h100_sxm/attention/trtllm", "trtllm_h100", "h100", {"knee": ANY_KNEE, "length": NO_LENGTH, "kept": ALL_KEPT}),
    (
        "a100_sxm/attention/vllm", "vllm_a100", "a100",
        NONE_ALONE | {"knee": ANY_KNEE, "length": NO_LENGTH},
    ),
)  # fmt: skip
"""Start of a row's source, stack, chip, and unmeasured constants with value and reason."""

FEW = NONE_ALONE | {
    "knee": (1.0, "24 rows are few; fitted with the rest it ends here, at the lower end of its range"),
    "merge": (2.4e-7, "24 rows say nothing of it: as of vllm_a100, which has the same kernels"),
    "sharpness": (8.0, "24 rows are few: the longer one of engines and memory, nearly"),
}
"""What 24 rows of one shape are too few for."""


OTHER_HEADS = ("other_start", "other_unit", "wide_achieved")
"""Numbers of prompts for heads of other columns than 128, which rows of one stack have."""

USUAL, USUAL_COLUMNS = 256, "columns of rows whose heads have 128, for which the library has its best kernels"


def _prompts(stack: str, chip: str, _: str, rows: int, measured: tuple[PartRow, ...]) -> FittedPart:
    how, others = launches(stack), any(row.sizes["dim"] != COMMON_DIM for row in measured)
    reasons = {"idle": UNHEARD, "convert": NO_CONVERSION, "rows": ROWS, "launches": LAUNCHES[how]}
    reasons |= {"usual": USUAL_COLUMNS} if others else {}
    names = (*PROMPTS, *(OTHER_HEADS if others else ()))
    usual = USUAL if others else None

    def record(values: Vector) -> PrefillAttentionConstants:
        given = dict(zip(names, map(float, values), strict=True))
        return PrefillAttentionConstants(**given, idle=0.0, convert=1.1, rows=rows, launches=how, usual=usual)

    start, low, high = (
        ends[: len(names)]
        for ends in (
            (8e-6, 0.55, 0.6, 2e-6, 0.5, 1.3, 1e-5, 4e-6, 0.5),
            (0.0, 0.05, 0.1, 0.0, 0.0, 1.0, 0.0, 0.0, 0.05),
            (3e-5, 1.0, 1.0, 2e-5, 1.0, 20.0, 3e-5, 2e-5, 1.0),
        )
    )
    return FittedPart(
        "prefill_attention", stack, chip, measured, record, _attended, names, start, low, high, reasons, "aiconfigurator2025"
    )


FLASH_STACKS = (
    ("flash3_h100", "h100", "flashattention3", 128),
    ("flash2_h100", "h100", "flashattention2", 128),
)
"""Stack, chip, implementation, and rows of a tile."""

FLASH = ("achieved", "unit", "tail")

LONG = "rows are of 16,384 tokens, which hide it: a start as of trtllm_h100, and memory beside the engines"


def _flash(folder: Path, stack: str, chip: str, implementation: str, rows: int) -> FittedPart:
    """Rates of FlashAttention that its authors publish, forward; backward is no kernel of inference."""
    reasons = {"idle": UNHEARD, "convert": NO_CONVERSION, "rows": ROWS, "launches": LAUNCHES["one"]}
    reasons |= dict.fromkeys(("start", "hbm", "sharpness"), LONG)

    def record(values: Vector) -> PrefillAttentionConstants:
        given = dict(zip(FLASH, map(float, values), strict=True))
        return PrefillAttentionConstants(
            **given, start=1e-5, hbm=0.9, sharpness=8.0, idle=0.0, convert=1.1, rows=rows, launches="one"
        )

    return FittedPart(
        "prefill_attention", stack, chip, _published(folder, implementation, chip), record, _attended, FLASH, (0.7, 2e-6, 0.5),
        (0.1, 0.0, 0.0), (1.0, 2e-5, 1.0), reasons, "shah2024",
    )  # fmt: skip


def _published(folder: Path, implementation: str, chip: str) -> tuple[PartRow, ...]:
    """Seconds of rates; there is no column of seconds in this table."""
    rows = []
    path = folder / "flashattention_tflops.csv"
    if not path.exists():
        raise DesignError(f"gpu_measured: {folder} has no {path.name}")
    with path.open(newline="") as file:
        for number, entry in enumerate(csv.DictReader(file), start=2):
            identity = entry["implementation"], entry["pass"], entry["device"].split("-")[0].lower()
            if identity != (implementation, "forward", chip):
                continue
            dim, heads, causal, keys, batch = (
                int(entry[name]) for name in ("head_dim", "heads", "causal", "sequence", "batch")
            )
            words = f"workload=attention {SIXTEEN} workload.causal={str(bool(causal)).lower()} workload.batch={batch}"
            words += f" workload.heads={heads} workload.qk={dim} workload.keys=[{keys}]"
            sizes = {"requests": batch, "heads": heads, "kv_heads": heads, "dim": dim, "m": keys, "tokens": batch * keys}
            sizes |= dict.fromkeys(("past", "decodes", "cached", "before"), 0)
            seconds = 4.0 * keys**2 * dim * heads * batch / (1 + causal) / (float(entry["tflops"]) * 1e12)
            where = f"{path.name}, row {number}"
            rows.append(
                PartRow({name: float(value) for name, value in sizes.items()}, "" if causal else "all", words, seconds, where)
            )
    return tuple(rows)


def _mixed(folder: Path) -> FittedPart:
    reasons = {"convert": NO_CONVERSION, "rows": ROWS, "launches": LAUNCHES["one"]}

    def record(values: Vector) -> PrefillAttentionConstants:
        given = dict(zip((*PROMPTS, "idle"), map(float, values), strict=True))
        return PrefillAttentionConstants(**given, convert=1.1, rows=64, launches="one")

    return FittedPart(
        "prefill_attention", "vllm_rtx4090", "rtx4090", _launches(folder), record, _attended, (*PROMPTS, "idle"),
        (3e-6, 0.41, 0.9, 5e-6, 0.5, 8.0, 3e-7), (0.0, 0.05, 0.1, 0.0, 0.0, 1.0, 0.0), (3e-5, 1.0, 1.0, 2e-5, 1.0, 20.0, 2e-6),
        reasons, "llmservingsim2026",
    )  # fmt: skip


def _steps(stack: str, chip: str, less: dict[str, tuple[Any, str]], measured: tuple[PartRow, ...]) -> FittedPart:
    rule, of_rule = RULES[stack.partition("_")[0]]
    reasons = {name: why for name, (_, why) in less.items()} | of_rule
    names = tuple(name for name in STEPS if name not in less)
    known = {name: value for name, (value, _) in less.items()}

    def record(values: Vector) -> DecodeAttentionConstants:
        given = dict(zip(names, map(float, values), strict=True))
        return DecodeAttentionConstants(**known, **given, **rule)

    source = "aiconfigurator2025" if measured[0].source.startswith("aic") else "llmservingsim2026"
    begin, low, high = zip(*(STEPS[name] for name in names), strict=True)
    return FittedPart("decode_attention", stack, chip, measured, record, _stepped, names, begin, low, high, reasons, source)


def _attended(sizes: dict[str, Vector], sort: str, constants: PrefillAttentionConstants, silicon: LibraryDie) -> Vector:
    s, keys = sizes, sizes["past"] + sizes["m"]
    seen = keys if sort == "all" else s["past"] + (s["m"] + 1) / 2
    attention = PrefillAttention(
        s["m"], s["requests"], seen, keys, s["decodes"], s["cached"], s["heads"],
        2 * s["dim"], 4 * s["dim"] * (s["tokens"] * (s["heads"] + s["kv_heads"]) + s["before"] * s["kv_heads"]),
    )  # fmt: skip
    seconds: Vector = context.kernel_time(attention, constants, silicon).seconds()
    return seconds


def _stepped(sizes: dict[str, Vector], sort: str, constants: DecodeAttentionConstants, silicon: LibraryDie) -> Vector:
    s = sizes
    nbytes = 4 * s["dim"] * s["requests"] * s["keys"] * s["kv_heads"]
    near = 4 * s["dim"] * s["requests"] * s["heads"]
    attention = generation.DecodeAttention(s["requests"], s["keys"], s["heads"], s["kv_heads"], 1.0, 2 * s["dim"], nbytes, near)
    seconds: Vector = generation.kernel_time(attention, constants, silicon).seconds()
    return seconds


SIXTEEN = "mapping=sglang mapping.both.tp=1"


def _asked(folder: Path, kind: str, begins: str) -> tuple[PartRow, ...]:
    rows = []
    given = ((entry, where, False) for entry, where in table(folder, f"aic_{kind}_attention.csv"))
    added = ((entry, where, True) for entry, where in table(folder, "extra/attention.csv") if entry["kind"].startswith(kind))
    for entry, where, grouped in chain(given, added):
        if not entry["source"].startswith(begins):
            continue
        batch, heads, kv_heads, dim, new, past = (
            int(entry[name]) for name in ("batch", "heads", "kv_heads", "head_dim", "query", "past")
        )
        causal = str(kind == "context").lower()
        words = f"workload=attention {SIXTEEN} workload.causal={causal} workload.batch={batch} workload.heads={heads}"
        words += f" workload.kv_heads={kv_heads} workload.qk={dim} workload.queries={new} workload.keys=[{past + new}]"
        sizes = {"requests": batch, "heads": heads, "kv_heads": kv_heads, "dim": dim, "keys": past + new}
        if kind == "context":
            sizes |= {"m": new, "past": past, "decodes": 0, "cached": 0, "tokens": batch * new, "before": batch * past}
        numbers = {name: float(value) for name, value in sizes.items()}
        rows.append(PartRow(numbers, "", words, float(entry["seconds"]), where, _group(dim, past + new) if grouped else ""))
    return tuple(rows)


def _group(dim: int, keys: int) -> str:
    """Group of an added row: heads of other columns, short caches, or many queries of a KV head.

    >>> _group(64, 512), _group(128, 64), _group(128, 4096)
    ('heads of 64', 'short caches', 'shared KV heads')
    """
    if dim != COMMON_DIM:
        return f"heads of {dim}"
    return "short caches" if keys < SHORTEST_GIVEN else "shared KV heads"


COMMON_DIM, SHORTEST_GIVEN = 128, 256
"""Columns of a head, and keys of the shortest cache, among rows of decode steps that are not added."""


HEADS = {"heads": 32.0, "kv_heads": 8.0, "dim": 128.0}
"""Of Llama-3.1-8B, which the launches of vLLM were measured with."""


def _of_vllm(folder: Path, row: Callable[[dict[str, int]], tuple[dict[str, float], str] | None]) -> Iterator[PartRow]:
    names = ("prefill_chunk", "kv_prefill", "n_decode", "kv_decode")
    for entry, where in table(folder, "rtx4090_llama31_8b_attention.csv"):
        found_row = row({name: int(entry[name]) for name in names})
        if found_row is not None:
            words = f"workload=attention {SIXTEEN} workload.heads=32 workload.kv_heads=8 {found_row[1]}"
            yield PartRow(found_row[0] | HEADS, "", words, float(entry["seconds"]), where)


def _launches(folder: Path) -> tuple[PartRow, ...]:
    """Measured rows of prompts, or chunks of them, with and without decodes in the same launch."""

    def row(entry: dict[str, Any]) -> tuple[dict[str, float], str] | None:
        new, past, count, cached = (float(value) for value in entry.values())
        if not new:
            return None
        sizes = {"m": new, "requests": 1.0, "past": past, "decodes": count, "cached": cached * (count > 0)}
        words = f"workload.causal=true workload.batch=1 workload.queries={new:.0f} workload.keys=[{new + past:.0f}]"
        words += f" workload.decodes={count:.0f} workload.cached={cached:.0f}" if count else ""
        return sizes | {"tokens": new + count, "before": past + count * cached}, words

    return tuple(_of_vllm(folder, row))


def _alone(folder: Path) -> tuple[PartRow, ...]:
    """Decodes without a prompt."""

    def row(entry: dict[str, Any]) -> tuple[dict[str, float], str] | None:
        new, _, count, cached = (float(value) for value in entry.values())
        if new:
            return None
        words = f"workload.batch={count:.0f} workload.queries=1 workload.keys=[{cached:.0f}]"
        return {"requests": count, "keys": cached}, words

    return tuple(_of_vllm(folder, row))

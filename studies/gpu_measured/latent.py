"""Measured attention over latents (MLA), and the parts of the one stack fitted on it."""

from pathlib import Path

from dse.evaluators.kernels.library import mla_decode_attention as latent_generation
from dse.evaluators.kernels.library import prefill_attention as context
from dse.evaluators.kernels.library.prefill_attention import PrefillAttention
from dse.evaluators.machine.library_die import LibraryDie
from dse.space.libraries.mla_decode_attention import MlaDecodeConstants
from dse.space.libraries.prefill_attention import PrefillAttentionConstants
from dse.studies.gpu_measured.attention import LAUNCHES, PROMPTS, ROWS, UNHEARD
from dse.studies.gpu_measured.measured import FittedPart, PartRow, Vector, table

STEPS = ("start", "merge", "achieved", "hbm", "ramp", "cached", "sharpness")

BEGIN = 1.0
"""Of the memory's bandwidth at which values are converted: where the fit of the part for prompts begins."""

CONVERT = "as of the part for prompts, which is fitted on their conversion"

KEY, VALUE, RANK, ROTATED = 192.0, 128.0, 512.0, 64.0
"""Columns of an expanded key and value, of a latent, and of the part of a key beside it: of DeepSeek-V3 [deepseek2024]."""


def parts(folder: Path) -> list[FittedPart]:
    """Attention parts of prompts with expanded keys, and of decode steps over latents."""
    reasons = {"idle": UNHEARD, "rows": ROWS, "launches": LAUNCHES["two"]}

    def prompts(values: Vector) -> PrefillAttentionConstants:
        given = dict(zip((*PROMPTS, "convert"), map(float, values), strict=True))
        return PrefillAttentionConstants(**given, idle=0.0, rows=128, launches="two")

    def steps(values: Vector) -> MlaDecodeConstants:
        return MlaDecodeConstants(**dict(zip(STEPS, map(float, values), strict=True)), convert=BEGIN)

    return [
        FittedPart(
            "mla_prefill_attention", "trtllm_h100", "h100", _rows(folder, "context"), prompts, _attended, (*PROMPTS, "convert"),
            (9e-6, 0.7, 0.6, 5e-6, 0.5, 8.0, BEGIN), (0.0, 0.1, 0.1, 0.0, 0.0, 1.0, 0.1),
            (3e-5, 1.0, 1.0, 2e-5, 1.0, 20.0, 3.0), reasons, "aiconfigurator2025",
        ),
        FittedPart(
            "mla_decode_attention", "trtllm_h100", "h100", _rows(folder, "generation"), steps, _stepped, STEPS,
            (1.2e-5, 1e-7, 0.75, 0.9, 5e-6, 0.5, 3.0), (0.0, 0.0, 0.1, 0.3, 0.0, 0.05, 1.0),
            (3e-5, 5e-6, 1.0, 1.0, 3e-5, 1.0, 20.0), {"convert": CONVERT}, "aiconfigurator2025",
            {"convert": "mla_prefill_attention"},
        ),
    ]  # fmt: skip


def _attended(sizes: dict[str, Vector], sort: str, constants: PrefillAttentionConstants, silicon: LibraryDie) -> Vector:
    m, batch, heads = (sizes[name] for name in ("m", "batch", "heads"))
    values = batch * m * heads
    converted = values * (2 * KEY + VALUE) * 3 if sort == "fp8" else 0.0
    dims, nbytes = KEY + VALUE, values * (KEY + VALUE) * 4
    attention = PrefillAttention(m, batch, (m + 1) / 2, m, 0.0, 0.0, heads, dims, nbytes, converted, True)
    seconds: Vector = context.kernel_time(attention, constants, silicon).seconds()
    return seconds


def _stepped(sizes: dict[str, Vector], sort: str, constants: MlaDecodeConstants, silicon: LibraryDie) -> Vector:
    m, keys, heads = (sizes[name] for name in ("batch", "keys", "heads"))
    dims, each = 2 * RANK + ROTATED, 1.0 if sort == "fp8" else 2.0
    latents, near = m * keys * (RANK + ROTATED) * each, m * heads * dims * 2
    converted = m * heads * (RANK + ROTATED) * 3 if sort == "fp8" else 0.0
    attention = latent_generation.MlaDecodeAttention(m, keys, heads, 1.0, dims, RANK, latents, near, converted)
    seconds: Vector = latent_generation.kernel_time(attention, constants, silicon).seconds()
    return seconds


def _rows(folder: Path, kind: str) -> tuple[PartRow, ...]:
    rows = []
    for entry, where in table(folder, "aic_mla.csv"):
        if entry["kind"] != f"mla_{kind}":
            continue
        batch, heads, new, past = (int(entry[name]) for name in ("batch", "local_heads", "query", "past"))
        bits = "fp8" if entry["kv_dtype"] == "fp8" else "bf16"
        words = f"workload=attention mapping=sglang mapping.both.tp=1 mapping.precision.kv={bits} workload.batch={batch}"
        words += f" workload.heads={heads} workload.queries={new} workload.keys=[{past + new}]"
        if kind == "context":
            words += f" workload.kv_heads={heads} workload.qk={KEY:.0f} workload.v={VALUE:.0f} workload.causal=true"
        else:
            words += f" workload.kv_heads=1 workload.qk={RANK + ROTATED:.0f} workload.v={RANK:.0f} workload.latent=true"
        sizes = {"m": float(new), "batch": float(batch), "heads": float(heads), "keys": float(past + new)}
        rows.append(PartRow(sizes, bits, words, float(entry["seconds"]), where))
    return tuple(rows)

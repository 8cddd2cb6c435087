"""Tables of random rows in the form of the published ones, of which fits can be made where those are not at hand."""

import csv
from pathlib import Path
from typing import Any

import numpy as np

from dse.studies.gpu_measured.elementwise import LAYERS_8B
from dse.studies.gpu_measured.products import LLAMA_8B

random = np.random.default_rng(22)

Rows = list[dict[str, Any]]

SECONDS = {"seconds": 1e-5, "device": "A100", "source": "drawn"}


def whole(low: int, high: int) -> int:
    """A size between two, as often small as large."""
    return int(np.exp(random.uniform(np.log(low), np.log(high))))


def tables(folder: Path) -> Path:
    """Writes all of them, a file each."""
    for draw in (products, experts, elements, attention, collectives):
        for name, rows in draw().items():
            (folder / name).parent.mkdir(exist_ok=True)
            with (folder / f"{name}.csv").open("w", newline="") as file:
                table = csv.DictWriter(file, list(rows[0]))
                table.writeheader()
                table.writerows(rows)
    return folder


def products() -> dict[str, Rows]:
    gemms = [
        {"m": whole(1, 9000), "n": whole(64, 9000), "k": whole(64, 9000), "dtype": dtype, "device": device} | {"seconds": 1e-5}
        for device, dtypes in (("A100", ("bfloat16",)), ("H100", ("bfloat16", "fp8", "fp8_block")))
        for dtype in dtypes * 2
    ]
    deepgemm = [
        {"kind": kind, "groups": groups, "m_per_group": whole(1, 5000), "n": 512, "k": 640, "dtype": "fp8_block"} | SECONDS
        for kind, groups in (("dense", 1), ("grouped_contiguous", 6))
    ]
    return {
        "aic_gemm": gemms,
        "aic_gemm_m_sweep": gemms[:1],
        "extra/gemm": [gemm for gemm in gemms if gemm["device"] == "H100" and gemm["dtype"] != "fp8"],
        "deepgemm_h800": deepgemm,
    }


def experts() -> dict[str, Rows]:
    mixtures = [
        {
            "dtype": dtype, "tokens": whole(1, 5000), "hidden": 64 * whole(1, 60), "inter": 64 * whole(1, 60), "topk": 2,
            "experts": 16, "tp": tp, "ep": ep, "distribution": distribution, "seconds": 1e-5,
        }
        for dtype, tp, ep, distribution in (
            ("bfloat16", 2, 1, "balanced"), ("fp8", 1, 4, "power_law_1.2"), ("fp8_block", 1, 16, "power_law_1.05"),
        )
    ]  # fmt: skip
    dispatch = [
        {"kind": kind, "gpus": 8, "tokens": whole(1, 900), "hidden": 4096, "topk": 8, "experts": 64, "sms": sms}
        | {"dispatch_s": 1e-5, "combine_s": 1e-5}
        for kind, sms in (("deepep_low_latency", ""), ("deepep_normal", 16), ("deepep_normal", 80))
    ]
    return {
        "aic_moe": mixtures,
        "extra/moe": mixtures,
        "aic_deepep": dispatch,
    }


def elements() -> dict[str, Rows]:
    layers = [{"layer": name, "tokens": whole(1, 4000), "sequences": ""} | SECONDS for name in (*LAYERS_8B, *LLAMA_8B)]
    operators = [
        {"op": op, "tp": 2, "tokens": whole(1, 4000)} | SECONDS
        for op in ("emb", "add", "attn_rope", "mlp_act", "input_layernorm", "mlp_up_proj", "attn_post_proj")
    ]
    eager = [
        {"kind": kind, "m": 1024 * whole(1, 9), "n": n, "k": k} | SECONDS
        for kind, n, k in (("matmul", 300, 500), ("softmax", 700, ""), ("layernorm", 90, ""), ("gelu", "", ""))
    ]
    eager += [{"kind": "all_reduce", "m": whole(8, 10**9), "n": 4, "k": ""} | SECONDS]
    return {
        "rtx4090_llama31_8b_layers": layers,
        "vidur_a100_llama2_70b_ops": operators,
        "llmcompass_a100_ops": eager,
    }


def attention() -> dict[str, Rows]:
    alone = [
        {
            "device": device, "batch": whole(1, 64), "heads": 8 * group, "kv_heads": 8, "head_dim": 64, "query": new,
            "past": past, "seconds": 1e-5, "source": source,
        }
        for device, source in (
            ("H100", "h100_sxm/attention/trtllm"), ("A100", "a100_sxm/attention/trtllm"), ("A100", "a100_sxm/attention/vllm"),
        )
        for group in (1, 4)
        for new, past in ((whole(2, 3000), 0), (1, whole(2, 9000)))
    ]  # fmt: skip
    latent = [
        {"kind": kind, "kv_dtype": bits, "batch": whole(1, 64), "local_heads": 16, "query": new, "past": past, "seconds": 1e-5}
        for kind, new, past in (("mla_context", whole(2, 3000), 0), ("mla_generation", 1, whole(2, 9000)))
        for bits in ("bfloat16", "fp8")
    ]
    launches = [
        {"prefill_chunk": new, "kv_prefill": past * (new > 0), "n_decode": count, "kv_decode": whole(1, 9000) * (count > 0)}
        | SECONDS
        for new, past, count in ((0, 0, 7), (whole(1, 3000), 0, 0), (16, whole(1, 5000), 40), (whole(1, 3000), 0, 3))
    ]
    flash = [
        {
            "implementation": f"flashattention{version}", "device": "H100-SXM5-80GB", "pass": "forward", "head_dim": 128,
            "heads": 16, "causal": causal, "sequence": 2**version * 256, "batch": 4, "tflops": 300,
        }
        for version in (2, 3)
        for causal in (0, 1)
    ]  # fmt: skip
    other = [
        entry | {"kind": f"{'context' if entry['query'] > 1 else 'generation'}_attention", "head_dim": dim}
        for entry in alone
        for dim in (64, 128, 256)
        if entry["device"] == "H100"
    ]
    other += [entry | {"head_dim": 128, "past": 20 * i, "batch": 3} for i, entry in enumerate(other) if entry["query"] == 1]
    return {
        "extra/attention": other,
        "aic_context_attention": [entry for entry in alone if entry["query"] > 1],
        "aic_generation_attention": [entry for entry in alone if entry["query"] == 1],
        "aic_mla": latent,
        "rtx4090_llama31_8b_attention": launches,
        "flashattention_tflops": flash,
    }


def collectives() -> dict[str, Rows]:
    kinds = [
        {"kind": kind, "library": library, "device": f"{chip}-SXM{(chip == 'H100' and 5) or 4}-80GB", "gpus": 2}
        | {"bytes": whole(70000, 10**8), "seconds": 1e-5}
        for chip in ("H100", "A100")
        for kind, library in (
            ("all_reduce", "nccl"), ("all_gather", "nccl"), ("reduce_scatter", "nccl"), ("alltoall", "nccl"),
            ("all_reduce", "TRTLLM"), ("all_reduce", "vLLM_custom_graph"), ("all_reduce", "vLLM_custom_eager"),
        )
    ]  # fmt: skip
    gpus = [kind | {"gpus": random.choice([2, 4, 8])} for kind in kinds]
    vidur = [{"kind": "all_reduce", "gpus": 4, "gpus_per_node": size, "bytes": 3 * 10**6} | SECONDS for size in (4, 2)]
    return {
        "aic_collectives": gpus,
        "vidur_a100_collectives": vidur,
    }

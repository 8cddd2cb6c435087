"""Fits of library parts: what is fitted is what is evaluated, constants come back, and files that ship say what they do."""

import csv
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dse.measured.validate import asked_of, measured
from dse.space.errors import DesignError
from dse.space.numbers import BYTES
from dse.studies.gpu_measured import fit
from dse.studies.gpu_measured.elementwise import LAYERS_8B
from dse.studies.gpu_measured.measured import Part, die_of, spread
from dse.studies.gpu_measured.products import LLAMA_8B

TABLES = Path(__file__).resolve().parents[3] / "shared" / "validation" / "silicon"
random = np.random.default_rng(22)


def whole(low: int, high: int) -> int:
    return int(np.exp(random.uniform(np.log(low), np.log(high))))


def tables(folder: Path) -> Path:
    """Tables of random rows, in the form of the published ones."""
    seconds = {"seconds": 1e-5, "device": "A100", "source": "drawn"}
    gemms = [
        {"m": whole(1, 9000), "n": whole(64, 9000), "k": whole(64, 9000), "dtype": dtype, "device": device} | {"seconds": 1e-5}
        for device, dtypes in (("A100", ("bfloat16",)), ("H100", ("bfloat16", "fp8", "fp8_block")))
        for dtype in dtypes * 2
    ]
    mixtures = [
        {
            "dtype": dtype, "tokens": whole(1, 5000), "hidden": 64 * whole(1, 60), "inter": 64 * whole(1, 60), "topk": 2,
            "experts": 16, "tp": tp, "ep": ep, "distribution": said, "seconds": 1e-5,
        }
        for dtype, tp, ep, said in (
            ("bfloat16", 2, 1, "balanced"), ("fp8", 1, 4, "power_law_1.2"), ("fp8_block", 1, 16, "power_law_1.05"),
        )
    ]  # fmt: skip
    layers = [{"layer": name, "tokens": whole(1, 4000), "sequences": ""} | seconds for name in (*LAYERS_8B, *LLAMA_8B)]
    operators = [
        {"op": op, "tp": 2, "tokens": whole(1, 4000)} | seconds
        for op in ("emb", "add", "attn_rope", "mlp_act", "input_layernorm", "mlp_up_proj", "attn_post_proj")
    ]
    eager = [
        {"kind": kind, "m": 1024 * whole(1, 9), "n": n, "k": k} | seconds
        for kind, n, k in (("matmul", 300, 500), ("softmax", 700, ""), ("layernorm", 90, ""), ("gelu", "", ""))
    ]
    eager += [{"kind": "all_reduce", "m": whole(8, 10**9), "n": 4, "k": ""} | seconds]
    attention = [
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
        | seconds
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
    collectives = [
        {"kind": kind, "library": library, "device": f"{chip}-SXM{(chip == 'H100' and 5) or 4}-80GB", "gpus": 2}
        | {"bytes": whole(70000, 10**8), "seconds": 1e-5}
        for chip in ("H100", "A100")
        for kind, library in (
            ("all_reduce", "nccl"), ("all_gather", "nccl"), ("reduce_scatter", "nccl"), ("alltoall", "nccl"),
            ("all_reduce", "TRTLLM"), ("all_reduce", "vLLM_custom_graph"), ("all_reduce", "vLLM_custom_eager"),
        )
    ]  # fmt: skip
    collectives = [of | {"gpus": random.choice([2, 4, 8])} for of in collectives]
    experts = [
        {"kind": kind, "gpus": 8, "tokens": whole(1, 900), "hidden": 4096, "topk": 8, "experts": 64, "sms": sms}
        | {"dispatch_s": 1e-5, "combine_s": 1e-5}
        for kind, sms in (("deepep_low_latency", ""), ("deepep_normal", 16), ("deepep_normal", 80))
    ]
    vidur = [{"kind": "all_reduce", "gpus": 4, "gpus_per_node": size, "bytes": 3 * 10**6} | seconds for size in (4, 2)]
    deepgemm = [
        {"kind": kind, "groups": groups, "m_per_group": whole(1, 5000), "n": 512, "k": 640, "dtype": "fp8_block"} | seconds
        for kind, groups in (("dense", 1), ("grouped_contiguous", 6))
    ]
    for name, rows in {
        "aic_gemm": gemms,
        "aic_gemm_m_sweep": gemms[:1],
        "aic_moe": mixtures,
        "rtx4090_llama31_8b_layers": layers,
        "vidur_a100_llama2_70b_ops": operators,
        "llmcompass_a100_ops": eager,
        "deepgemm_h800": deepgemm,
        "aic_context_attention": [of for of in attention if of["query"] > 1],
        "aic_generation_attention": [of for of in attention if of["query"] == 1],
        "aic_mla": latent,
        "aic_deepep": experts,
        "rtx4090_llama31_8b_attention": launches,
        "flashattention_tflops": flash,
        "aic_collectives": collectives,
        "vidur_a100_collectives": vidur,
    }.items():
        with (folder / f"{name}.csv").open("w", newline="") as file:
            table = csv.DictWriter(file, list(rows[0]))  # type: ignore[call-overload]
            table.writeheader()
            table.writerows(rows)  # type: ignore[arg-type]
    return folder


def parts(kind: str, folder: Path) -> list[Part]:
    found: list[Part] = import_module(f"dse.studies.gpu_measured.{kind}").parts(folder)
    return found


def shipped(part: Part) -> Any:
    """The constants that conf has of a part."""
    question = asked_of((f"chip={part.chip}", f"stack={part.stack}")).question
    return getattr(question.base.mapping.stack, part.kind)


@pytest.mark.parametrize("kind", fit.KINDS)
def test_what_is_fitted_is_what_is_evaluated(kind: str, tmp_path: Path) -> None:
    for part in parts(kind, tables(tmp_path)):
        constants, silicon = shipped(part), die_of(part.chip)
        for row in part.rows:
            sizes = {name: np.array([value]) for name, value in row.sizes.items()}
            expected = float(part.seconds(sizes, row.sort, constants, silicon)[0])
            if not row.words:  # exchanges with experts are no workload by themselves
                assert part.kind == "dispatch"
                continue
            words = (f"chip={part.chip}", f"stack={part.stack}", *row.words.split())
            assert measured(words, "latency", strict=False) == pytest.approx(expected, rel=1e-9), row.words


def test_numbers_that_rows_were_made_with_come_back(tmp_path: Path) -> None:
    part = next(part for part in parts("products", tables(tmp_path)) if part.stack == "eager_a100")
    drawn = np.random.default_rng(5)
    true = np.array([drawn.uniform(low + 0.2 * (high - low), high) for low, high in zip(part.low, part.high, strict=True)])
    true = np.where(np.array(part.names) == "start", true / 10, true)
    sizes = [
        {"m": 2.0 ** drawn.integers(0, 14), "k": 1024.0 * drawn.integers(1, 9), "n": 1024.0 * drawn.integers(1, 9)}
        for _ in range(40)
    ]
    rows = [replace(part.rows[0], sizes=of | {"quantised": 0.0}, seconds=1.0) for of in sizes]
    seconds = replace(part, rows=tuple(rows)).simulated(true, np.arange(len(rows)))
    rows = [replace(row, seconds=float(value)) for row, value in zip(rows, seconds, strict=True)]
    found = fit.fitted(replace(part, rows=tuple(rows)))
    assert spread(found.errors)[2] < 0.02
    assert spread(found.held_out)[1] < 0.05


def test_no_part_has_more_than_ten_numbers(tmp_path: Path) -> None:
    for kind in fit.KINDS:
        for part in parts(kind, tables(tmp_path)):
            assert len(part.names) <= 10
            fitted = {name for name, _ in part.constants(np.array(part.start)).items()} - set(part.said)
            assert fitted == set(part.names)


def test_what_follows_another_part_has_its_number(tmp_path: Path) -> None:
    """Both kernels of attention over latents convert at one rate, which is fitted on prompts."""
    prompts, steps = parts("latent", tables(tmp_path))
    assert shipped(prompts).convert == shipped(steps).convert
    with pytest.raises(DesignError, match="fit that before"):
        fit.fitted(steps)
    with pytest.raises(DesignError, match="latent_context, which is not fitted yet"):
        steps.after({})
    values = np.array(prompts.start)
    values[prompts.names.index("convert")] = rate = random.uniform(0.5, 2.0)
    after = steps.after({(prompts.kind, prompts.stack): prompts.record(values)})
    assert after.record(np.array(steps.start)).convert == rate
    assert np.isfinite(fit.fitted(after).errors).all()


def test_without_tables_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit.main([str(tmp_path / "nowhere")]) == 1
    assert "skipped" in capsys.readouterr().err
    with pytest.raises(DesignError, match=r"has no aic_gemm\.csv"):
        fit.main([str(tmp_path), str(tmp_path / "out"), str(tmp_path / "pages")])


MOST = {
    "products": (0.08, 0.19),
    "experts": (0.06, 0.18),
    "elementwise": (0.075, 0.23),
    "attention": (0.06, 0.2),
    "latent": (0.06, 0.14),
    "collectives": (0.06, 0.15),
    "engines": (0.075, 0.25),
    "dispatch": (0.08, 0.2),
}
"""Median and 90 % of absolute errors over all given rows of any stack."""


@pytest.mark.skipif(not TABLES.exists(), reason="the measured tables are not beside this checkout")
@pytest.mark.parametrize("kind", fit.KINDS)
def test_files_that_ship_come_as_near_as_they_say(kind: str) -> None:
    for part in parts(kind, TABLES):
        constants, silicon = shipped(part), die_of(part.chip)
        errors = []
        for row in part.rows:
            sizes = {name: np.array([value]) for name, value in row.sizes.items()}
            errors.append(np.log(part.seconds(sizes, row.sort, constants, silicon)[0] / row.seconds))
        median, most, _ = spread(np.array(errors))
        assert median < MOST[kind][0], part.stack
        assert most < MOST[kind][1], part.stack


def test_formats_of_tables_are_formats() -> None:
    from dse.studies.gpu_measured.products import FORMATS

    assert {name for weights, act, _ in FORMATS.values() for name in (weights, act)} <= set(BYTES)

"""Command line with which an inference engine is assumed to be started, in the words of that engine."""

import shlex
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from dse.evaluators.serving.scheduling_policy import policies_with_batch
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.inference_engine import InferenceEngine
from dse.space.number_formats import FORMATS
from dse.space.workload import BatchCase, ServingLoad, WorkloadCase

UNBOUNDED = 1 << 30
"""Token budget from which on a policy has none."""


class LaunchSettings(NamedTuple):
    """Settings with which an inference engine is started for the instances of one pool.

    Attributes:
        model: its name.
        engine: record of the engine.
        tp, pp, ep, dp: degrees of parallelism; `dp` counts copies of attention that share experts. [1]
        instances: engines that are started alike. [1]
        requests, tokens: batch, and token budget of an iteration, of each copy of attention; 0 where there is no budget.
        longest: positions of the longest request. [token]
        block_size: tokens of a KV block; 0 where nothing says it. [token]
        chunked: whether prompts are cut over iterations.
        prefixes: whether KV blocks of prompts are kept for reuse.
        role: of a pool of several: prefill or decode; empty string for a pool that does both.
        weights, kv: number formats.
    """

    model: str
    engine: InferenceEngine
    tp: int
    pp: int
    ep: int
    dp: int
    instances: int
    requests: int
    tokens: int
    longest: int
    block_size: int
    chunked: bool
    prefixes: bool
    role: str
    weights: str
    kv: str

    @property
    def quantization(self) -> str:
        """Name of the format of weights for an engine; empty string for 16 bits."""
        return _quantized(self.weights)

    @property
    def kv_quantization(self) -> str:
        """Name of the KV cache's format for an engine; empty string for 16 bits."""
        return _quantized(self.kv)


def engine_command_lines(design: Design, case: WorkloadCase) -> list[str]:
    """Command line of the inference engine for each pool of instances.

    Raises:
        DesignError: the design has no inference engine, or its workload is of single kernels.
    """
    engine = design.mapping.inference_engine
    if engine is None:
        raise DesignError("--engine-args: this design has no inference engine; set one, as inference_engine=vllm_v1")
    if not isinstance(case, BatchCase | ServingLoad):
        raise DesignError("--engine-args: an inference engine serves models; choose workload=serving or workload=static")
    return [COMMANDS[engine.name](settings) for settings in _launch_settings(design, case)]


def _launch_settings(design: Design, case: BatchCase | ServingLoad) -> Iterator[LaunchSettings]:
    """Settings of the engines of each pool: those that prefill only, if any, and those that decode."""
    mapping = design.mapping
    serving, precision = mapping.serving, mapping.precision
    if isinstance(case, BatchCase) or serving is None:
        assert isinstance(case, BatchCase)
        batch = sum(count for count, _, _ in case.requests)
        prompt, longest = (max(sum(lengths[:n]) for _, *lengths in case.requests) for n in (1, 2))
        pools = [("decode", "", 1, batch, prompt, False)]
        block_size, prefixes = 0, False
    else:
        longest, block_size = int(case.longest), int(serving.block_size)
        prefixes = serving.prefix_cache == "shared" or float(serving.prefix_cache_share) > 0
        phases = ("prefill", "decode") if serving.prefill_instances else ("decode",)
        counts = (int(serving.prefill_instances), int(serving.instances))[-len(phases) :]
        pools = [
            (phase, phase if len(phases) > 1 else "", count, batch, rule.tokens, rule.chunked)
            for phase, count, (rule, batch) in zip(phases, counts, policies_with_batch(serving), strict=True)
        ]
    for phase, role, count, batch, tokens, chunked in pools:
        plan = getattr(mapping, phase)
        tp, pp, ep = (int(getattr(plan, name, 1) or 1) for name in ("tp", "pp", "ep"))
        copies = max(ep // tp, 1) if ep > 1 else 1
        budget = 0 if tokens >= UNBOUNDED else -(-tokens // copies)
        yield LaunchSettings(
            case.model.name,
            mapping.inference_engine,
            tp,
            pp,
            ep,
            copies,
            count,
            -(-batch // copies),
            budget,
            longest,
            block_size,
            chunked,
            prefixes,
            role,
            precision.weights,
            precision.kv,
        )


def _quantized(name: str) -> str:
    """First word of a format below 16 bits, as engines call it; empty string for others."""
    return name.partition("_")[0] if FORMATS[name].bits < 16 else ""


def _line(settings: LaunchSettings, program: str, *options: tuple[str, Any]) -> str:
    """Command line of a program with its options; options without a value, or with none to say, have no word after them."""
    words = [*program.split(), settings.model]
    for name, value in options:
        if value is True:
            words.append(name)
        elif value not in (None, False, "", 0):
            words += [name, f"{value:g}" if isinstance(value, float) else str(value)]
    notes = [f"{settings.instances} of these"] * (settings.instances > 1) + [f"for {settings.role}"] * bool(settings.role)
    return shlex.join(words) + (f"   # {', '.join(notes)}" if notes else "")


def _several(count: int) -> int | None:
    """A degree of parallelism that engines are told, since it is above one; else None."""
    return count if count > 1 else None


def _vllm_line(settings: LaunchSettings) -> str:
    """Command line that starts vLLM for one pool of instances."""
    return _line(
        settings,
        "vllm serve",
        ("--tensor-parallel-size", settings.tp),
        ("--pipeline-parallel-size", _several(settings.pp)),
        ("--data-parallel-size", _several(settings.dp)),
        ("--enable-expert-parallel", settings.ep > 1),
        ("--gpu-memory-utilization", float(settings.engine.memory_share)),
        ("--max-model-len", settings.longest),
        ("--max-num-seqs", settings.requests),
        ("--max-num-batched-tokens", settings.tokens if settings.chunked else max(settings.tokens, settings.longest)),
        ("--block-size", settings.block_size),
        ("--quantization", settings.quantization),
        ("--kv-cache-dtype", settings.kv_quantization),
        ("--enable-chunked-prefill" if settings.chunked else "--no-enable-chunked-prefill", True),
        ("--enable-prefix-caching" if settings.prefixes else "--no-enable-prefix-caching", True),
    )


def _tensorrt_llm_line(settings: LaunchSettings) -> str:
    """Command line that starts TensorRT-LLM for one pool of instances."""
    return _line(
        settings,
        "trtllm-serve",
        ("--tp_size", settings.tp * settings.dp),
        ("--pp_size", _several(settings.pp)),
        ("--ep_size", _several(settings.ep)),
        ("--enable_attention_dp", settings.dp > 1),
        ("--kv_cache_free_gpu_memory_fraction", float(settings.engine.memory_share)),
        ("--max_seq_len", settings.longest),
        ("--max_batch_size", settings.requests),
        ("--max_num_tokens", settings.tokens),
        ("--kv_cache_dtype", settings.kv_quantization),
        ("--enable_chunked_prefill", settings.chunked),
        ("--disable_kv_cache_reuse", not settings.prefixes),
    )


def _sglang_line(settings: LaunchSettings) -> str:
    """Command line that starts SGLang for one pool of instances."""
    return _line(
        settings,
        "python -m sglang.launch_server --model-path",
        ("--tp-size", settings.tp * settings.dp),
        ("--pp-size", _several(settings.pp)),
        ("--ep-size", _several(settings.ep)),
        ("--dp-size", _several(settings.dp)),
        ("--enable-dp-attention", settings.dp > 1),
        ("--mem-fraction-static", float(settings.engine.memory_share)),
        ("--context-length", settings.longest),
        ("--max-running-requests", settings.requests),
        ("--chunked-prefill-size", settings.tokens),
        ("--quantization", settings.quantization),
        ("--kv-cache-dtype", settings.kv_quantization),
        ("--disable-radix-cache", not settings.prefixes),
    )


COMMANDS: dict[str, Callable[[LaunchSettings], str]] = {
    "vllm": _vllm_line,
    "tensorrt_llm": _tensorrt_llm_line,
    "sglang": _sglang_line,
}
"""Function that gives the command line of an inference engine, by its name in `space.inference_engine`."""

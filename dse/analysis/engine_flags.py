"""Flags of inference engines: one table that command lines are written by and read by.

A row says how a setting is written and how it is read back, on the command line or in an options file (TensorRT-LLM). Settings
without a row, or with a value that an engine has no word for, are named by `unmatched_settings`.
"""

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from dse.space.errors import DesignError, suggest_nearest
from dse.space.inference_engine import InferenceEngine
from dse.space.number_formats import FORMATS


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
        weights, activations, kv: number formats.
        drafted: tokens that are guessed a step; 0 without speculative decoding. [token]
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
    activations: str = "bf16"
    drafted: int = 0

    @property
    def devices(self) -> int:
        """Number of devices of one instance. [1]"""
        return max(self.tp * self.dp, self.ep) * self.pp

    @property
    def memory_share(self) -> float:
        """Share of a device's memory that the engine may use."""
        return float(self.engine.memory_share)


Found = dict[str, Any]
"""Settings that are read so far, by the names of `LaunchSettings`."""


class FlagRow(NamedTuple):
    """How one setting is written for an engine, and read back.

    Attributes:
        flag: as it is typed; in an options file, keys with dots between them.
        write: value of settings: True for a flag alone, None where it is not written.
        read: settings of a value, beside those that are read already.
        in_file: whether it stands in the options file.
    """

    flag: str
    write: Callable[[LaunchSettings], Any]
    read: Callable[[Any, Found], Found]
    in_file: bool = False


@dataclass(frozen=True)
class EngineTable:
    """The flags of one inference engine.

    Attributes:
        title: its name for people, with the versions whose flags these are.
        program: words before the model.
        rows: its flags; a row may read what rows before it known.
        weights: its words for formats of weights that are quantised; others it takes from the checkpoint.
        kv: its words for formats of the KV cache below 16 bits.
        file_flag: the flag that names the options file; empty string without one.
    """

    title: str
    program: str
    rows: tuple[FlagRow, ...]
    weights: Mapping[str, str]
    kv: Mapping[str, str]
    file_flag: str = ""


DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
"""Words of all engines for formats that need no quantisation."""


def _number(flag: str, name: str, *, above: int = 0, in_file: bool = False) -> FlagRow:
    """A row of a whole number that is written where it is above a bound."""
    return FlagRow(
        flag,
        lambda settings: value if (value := getattr(settings, name)) > above else None,
        lambda value, known: {name: int(value)},
        in_file,
    )


def _share(flag: str, *, in_file: bool = False) -> FlagRow:
    return FlagRow(flag, lambda settings: settings.memory_share, lambda value, known: {"memory_share": float(value)}, in_file)


def _switch(flag: str, name: str, state: bool = True, *, in_file: bool = False, value: Any = True) -> FlagRow:
    """A row of a flag that stands alone where a setting is on, or off."""
    return FlagRow(
        flag, lambda settings: value if getattr(settings, name) is state else None, lambda typed, known: {name: state}, in_file
    )


def _format(flag: str, name: str, words: Mapping[str, str], *, in_file: bool = False) -> FlagRow:
    """A row of a number format, by an engine's word for it."""
    formats = {word: name for name, word in words.items()}
    return FlagRow(
        flag, lambda settings: words.get(getattr(settings, name)), lambda value, known: {name: formats[value]}, in_file
    )


def _times_dp(flag: str, name: str) -> FlagRow:
    """A row of a number of the whole engine, of which each copy of attention has its part."""
    return FlagRow(
        flag,
        lambda settings: getattr(settings, name) * settings.dp or None,
        lambda value, known: {name: int(value) // known.get("dp", 1)},
    )


VLLM_WEIGHTS = {"fp8": "fp8", "mxfp4": "mxfp4", "nvfp4": "modelopt_fp4"}
VLLM_KV = {"fp8": "fp8"}
SGLANG_WEIGHTS = {"fp8": "fp8", "mxfp4": "mxfp4", "mxfp8": "mxfp8", "nvfp4": "modelopt_fp4", "int8": "w8a8_int8"}
SGLANG_KV = {"fp8": "fp8_e4m3", "mxfp4": "fp4_e2m1"}
TRTLLM_KV = {"fp8": "fp8", "nvfp4": "nvfp4"}

KV_ROLES = {"prefill": "kv_producer", "decode": "kv_both"}
"""Roles of the pools for vLLM's connector."""


def _vllm_budget(settings: LaunchSettings) -> int:
    return settings.tokens if settings.chunked else max(settings.tokens, settings.longest)


VLLM = EngineTable(
    "vLLM 0.8 (4-bit words of 0.10, method mtp of 0.11)",
    "vllm serve",
    (
        _number("--tensor-parallel-size", "tp"),
        _number("--pipeline-parallel-size", "pp", above=1),
        _number("--data-parallel-size", "dp", above=1),
        FlagRow(
            "--enable-expert-parallel",
            lambda settings: True if settings.ep > 1 else None,
            lambda value, known: {"ep": known.get("tp", 1) * known.get("dp", 1)},
        ),
        _share("--gpu-memory-utilization"),
        _number("--max-model-len", "longest"),
        _number("--max-num-seqs", "requests"),
        FlagRow(
            "--max-num-batched-tokens",
            lambda settings: _vllm_budget(settings) or None,
            lambda value, known: {"tokens": int(value)},
        ),
        _number("--block-size", "block_size"),
        _format("--dtype", "activations", DTYPES),
        _format("--quantization", "weights", VLLM_WEIGHTS),
        _format("--kv-cache-dtype", "kv", VLLM_KV),
        _switch("--enable-chunked-prefill", "chunked"),
        _switch("--no-enable-chunked-prefill", "chunked", False),
        _switch("--enable-prefix-caching", "prefixes"),
        _switch("--no-enable-prefix-caching", "prefixes", False),
        FlagRow(
            "--speculative-config",
            lambda settings: (
                json.dumps({"method": "mtp", "num_speculative_tokens": settings.drafted}) if settings.drafted else None
            ),
            lambda value, known: {"drafted": int(json.loads(value)["num_speculative_tokens"])},
        ),
        FlagRow(
            "--kv-transfer-config",
            lambda settings: (
                json.dumps({"kv_connector": "NixlConnector", "kv_role": KV_ROLES[settings.role]}) if settings.role else None
            ),
            lambda value, known: {"role": {word: role for role, word in KV_ROLES.items()}[json.loads(value)["kv_role"]]},
        ),
    ),
    VLLM_WEIGHTS,
    VLLM_KV,
)

SGLANG = EngineTable(
    "SGLang 0.5",
    "python -m sglang.launch_server --model-path",
    (
        FlagRow(
            "--dp-size",
            lambda settings: settings.dp if settings.dp > 1 else None,
            lambda value, known: {"dp": int(value)},
        ),
        FlagRow("--enable-dp-attention", lambda settings: True if settings.dp > 1 else None, lambda value, known: {}),
        FlagRow(
            "--tp-size",
            lambda settings: settings.tp * settings.dp,
            lambda value, known: {"tp": int(value) // known.get("dp", 1)},
        ),
        _number("--pp-size", "pp", above=1),
        _number("--ep-size", "ep", above=1),
        _share("--mem-fraction-static"),
        _number("--context-length", "longest"),
        _times_dp("--max-running-requests", "requests"),
        FlagRow(
            "--chunked-prefill-size",
            lambda settings: (settings.tokens * settings.dp or None) if settings.chunked else -1,
            lambda value, known: (
                {"chunked": False} if int(value) < 0 else {"chunked": True, "tokens": int(value) // known.get("dp", 1)}
            ),
        ),
        FlagRow(
            "--max-prefill-tokens",
            lambda settings: None if settings.chunked else settings.tokens or None,
            lambda value, known: {"tokens": int(value)},
        ),
        _number("--page-size", "block_size"),
        _format("--dtype", "activations", DTYPES),
        _format("--quantization", "weights", SGLANG_WEIGHTS),
        _format("--kv-cache-dtype", "kv", SGLANG_KV),
        _switch("--disable-radix-cache", "prefixes", False),
        FlagRow("--speculative-algorithm", lambda settings: "EAGLE" if settings.drafted else None, lambda value, known: {}),
        FlagRow(
            "--speculative-num-steps", lambda settings: settings.drafted or None, lambda value, known: {"drafted": int(value)}
        ),
        FlagRow("--speculative-eagle-topk", lambda settings: 1 if settings.drafted else None, lambda value, known: {}),
        FlagRow(
            "--speculative-num-draft-tokens",
            lambda settings: settings.drafted + 1 if settings.drafted else None,
            lambda value, known: {},
        ),
        FlagRow("--disaggregation-mode", lambda settings: settings.role or None, lambda value, known: {"role": str(value)}),
        FlagRow(
            "--disaggregation-transfer-backend", lambda settings: "nixl" if settings.role else None, lambda value, known: {}
        ),
    ),
    SGLANG_WEIGHTS,
    SGLANG_KV,
)

TRTLLM = EngineTable(
    "TensorRT-LLM 1.0 to 1.2",
    "trtllm-serve",
    (
        FlagRow(
            "enable_attention_dp",
            lambda settings: True if settings.dp > 1 else None,
            lambda value, known: {"attention_dp": True},
            in_file=True,
        ),
        _number("--ep_size", "ep", above=1),
        FlagRow(
            "--tp_size", lambda settings: settings.tp * settings.dp, lambda value, known: _trtllm_degrees(int(value), known)
        ),
        _number("--pp_size", "pp", above=1),
        _share("--kv_cache_free_gpu_memory_fraction"),
        _number("--max_seq_len", "longest"),
        _number("--max_batch_size", "requests"),
        _number("--max_num_tokens", "tokens"),
        _switch("--enable_chunked_prefill", "chunked"),
        FlagRow(
            "dtype",
            lambda settings: DTYPES.get(settings.activations),
            lambda value, known: {"activations": {word: name for name, word in DTYPES.items()}[value]},
            in_file=True,
        ),
        # the file's group replaces that of the line as a whole, so it repeats the share
        _share("kv_cache_config.free_gpu_memory_fraction", in_file=True),
        _number("kv_cache_config.tokens_per_block", "block_size", in_file=True),
        _format("kv_cache_config.dtype", "kv", TRTLLM_KV, in_file=True),
        FlagRow(
            "kv_cache_config.enable_block_reuse",
            lambda settings: settings.prefixes,
            lambda value, known: {"prefixes": bool(value)},
            in_file=True,
        ),
        FlagRow(
            "speculative_config.decoding_type",
            lambda settings: "MTP" if settings.drafted else None,
            lambda value, known: {},
            in_file=True,
        ),
        _number("speculative_config.num_nextn_predict_layers", "drafted", in_file=True),
        FlagRow(
            "cache_transceiver_config.backend",
            lambda settings: "DEFAULT" if settings.role else None,
            lambda value, known: {"role": "decode"},
            in_file=True,
        ),
        FlagRow(
            "disable_overlap_scheduler",
            lambda settings: True if settings.role == "prefill" else None,
            lambda value, known: {"role": "prefill"},
            in_file=True,
        ),
    ),
    {},
    TRTLLM_KV,
    "--extra_llm_api_options",
)

TABLES = {"vllm": VLLM, "sglang": SGLANG, "tensorrt_llm": TRTLLM}
"""Flags by the name of an engine in `space.inference_engine`."""

DEFAULTS: Found = {
    "tp": 1,
    "pp": 1,
    "ep": 1,
    "dp": 1,
    "chunked": False,
    "prefixes": True,
    "role": "",
    "drafted": 0,
    "tokens": 0,
}
"""Settings where an engine's line does not have their flag."""


def _trtllm_degrees(size: int, known: Found) -> Found:
    """Tensor parallelism of a copy of attention, and its copies: with attention DP each device has attention of its own."""
    return {"tp": 1, "dp": size} if known.get("attention_dp") else {"tp": size}


def write_line(settings: LaunchSettings, table: EngineTable, options_file: str = "") -> str:
    """Command line that starts an engine for one pool of instances.

    Args:
        settings: of the pool.
        table: flags of the engine.
        options_file: path of the options file, for engines that have one.
    """
    return shlex.join([*table.program.split(), settings.model, *write_arguments(settings, table, options_file)])


def write_arguments(settings: LaunchSettings, table: EngineTable, options_file: str = "") -> list[str]:
    """Arguments of an engine after its model: flags and values, word by word."""
    words: list[str] = []
    for row in table.rows:
        if row.in_file or (value := row.write(settings)) is None:
            continue
        words += [row.flag] if value is True else [row.flag, f"{value:g}" if isinstance(value, float) else str(value)]
    return [*words, table.file_flag, options_file] if table.file_flag and options_file else words


def write_options(settings: LaunchSettings, table: EngineTable) -> dict[str, Any]:
    """Content of the options file of an engine; empty for engines without one."""
    content: dict[str, Any] = {}
    for row in table.rows:
        if row.in_file and (value := row.write(settings)) is not None:
            *groups, key = row.flag.split(".")
            group = content
            for name in groups:
                group = group.setdefault(name, {})
            group[key] = value
    return content


def read_line(line: str, options: Mapping[str, Any] | None = None) -> tuple[str, Found]:
    """Engine of a command line, and the settings of it by the names of `LaunchSettings`.

    Args:
        line: as an engine is started; a comment after ``#`` is left out.
        options: content of its options file.

    Returns:
        Name of the engine, and settings; ``model`` among them.

    Raises:
        DesignError: the line starts no known engine, or has a flag that no row reads.
    """
    words = shlex.split(line, comments=True)
    engine, table = next(
        ((name, table) for name, table in TABLES.items() if words[: len(table.program.split())] == table.program.split()),
        ("", None),
    )
    if table is None:
        programs = ", ".join(table.program for table in TABLES.values())
        raise DesignError(f"--engine-args: {line[:60]!r} starts no known engine; expected one of {programs}")
    rest = words[len(table.program.split()) :]
    typed = _typed_values(rest[1:], table) | _flat_options(options or {})
    unknown = [flag for flag in typed if flag not in {row.flag for row in table.rows}]
    if unknown:
        flags = [row.flag for row in table.rows]
        raise DesignError(f"--engine-args: no flag {unknown[0]!r} of {table.title}; {suggest_nearest(unknown[0], flags)}")
    known: Found = {"model": rest[0]}
    for row in table.rows:
        if row.flag in typed:
            known |= row.read(typed[row.flag], known)
    known.pop("attention_dp", None)
    known = {**DEFAULTS, **known}
    activations = known.setdefault("activations", "bf16")
    return engine, {"weights": activations, "kv": activations, **known}


def _typed_values(words: list[str], table: EngineTable) -> dict[str, Any]:
    """Values by flag of the words after the model; True for a flag alone."""
    values: dict[str, Any] = {}
    rest = iter(words)
    alone = {row.flag for row in table.rows if row.flag.startswith(("--enable", "--no-", "--disable"))}
    for word in rest:
        flag, equals, value = word.partition("=")
        values[flag] = value if equals else True if flag in alone else next(rest, "")
    values.pop(table.file_flag, None)
    return values


def _flat_options(options: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Values of an options file by keys with dots between them."""
    flat: dict[str, Any] = {}
    for key, value in options.items():
        flat |= _flat_options(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def unmatched_settings(settings: LaunchSettings, table: EngineTable) -> list[str]:
    """Settings that an engine has no flag or no word for, each with what to do, as text."""
    notes = []
    if settings.weights not in DTYPES and settings.weights not in table.weights:
        notes.append(f"weights {settings.weights}: no flag; serve a checkpoint in this format, which names its method itself")
    if settings.weights in DTYPES and settings.activations != settings.weights:
        notes.append(f"weights {settings.weights} beside activations {settings.activations}: no flag for two formats")
    if settings.weights not in DTYPES and settings.activations not in DTYPES:
        notes.append(f"activations {settings.activations}: follow from the method of the weights")
    if FORMATS[settings.kv].bits < 16 and settings.kv not in table.kv:
        notes.append(f"KV cache {settings.kv}: no word for it; the cache has the format of the activations")
    if table is VLLM and settings.ep > 1 and settings.ep != settings.tp * settings.dp:
        notes.append(f"expert parallelism {settings.ep}: spreads experts over all {settings.tp * settings.dp} devices")
    if table is TRTLLM and settings.dp > 1 and settings.tp > 1:
        notes.append(f"tensor parallelism {settings.tp} of attention: attention DP has each device's attention by itself")
    if table is VLLM and not settings.chunked and settings.tokens < settings.longest:
        notes.append(f"token budget {settings.tokens}: whole prompts need one as long as the longest request")
    if settings.drafted:
        notes.append("drafted tokens: written as multi-token prediction of the model; another draft model is not supported")
    return notes

"""Reports of trtllm-bench, as text or JSON (``--report_json``), as measured runs.

Keys and lines are those of tensorrt_llm/bench/dataclasses/reporting.py at commit 0249976. A report states the version of
TensorRT-LLM.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dse.accuracy.measurements.measured_run import MILLI, FigureList, MeasuredLoad, MeasuredRun, name_metric, name_run
from dse.space.errors import DesignError

SECTIONS = ("engine", "world_info", "request_info", "performance")
MARK = "PERFORMANCE OVERVIEW"
"""Heading by which a text is known."""
LINES = {
    "Model": ("engine", "model"),
    "TensorRT LLM Version": ("engine", "version"),
    "TensorRT-LLM Version": ("engine", "version"),
    "Dtype": ("engine", "dtype"),
    "KV Cache Dtype": ("engine", "kv_cache_dtype"),
    "Quantization": ("engine", "quantization"),
    "TP Size": ("world_info", "tp_size"),
    "PP Size": ("world_info", "pp_size"),
    "Max Runtime Batch Size": ("world_info", "max_batch_size"),
    "Max Runtime Tokens": ("world_info", "max_num_tokens"),
    "Number of requests": ("request_info", "num_requests"),
    "Average Input Length (tokens)": ("request_info", "avg_input_length"),
    "Average Output Length (tokens)": ("request_info", "avg_output_length"),
    "Request Throughput (req/sec)": ("performance", "request_throughput_req_s"),
    "Total Output Throughput (tokens/sec)": ("performance", "system_output_throughput_tok_s"),
    "Average request latency (ms)": ("performance", "avg_request_latency_ms"),
    "Average time-to-first-token [TTFT] (ms)": ("streaming_metrics", "avg_ttft_ms"),
    "Average time-per-output-token [TPOT] (ms)": ("streaming_metrics", "avg_tpot_ms"),
}
"""Lines of a report as text, with the section and the key of the same in JSON."""
TABLES = {
    "TTFT": ("streaming_metrics", "ttft_percentiles"),
    "TPOT": ("streaming_metrics", "tpot_percentiles"),
    "Latency": ("performance", "request_latency_percentiles_ms"),
}
"""Percentiles, all in ms, by their marks in text."""
PERCENTILE = re.compile(r"\[(TTFT|TPOT|Latency)\] (\w+)\s*")
STATISTICS = ("p50", "p90", "p95", "p99")
MAX_SETTING = 2**31
FORMATS = {"bfloat16": "bf16", "float16": "fp16"}


def is_trtllm_report(values: Mapping[str, Any]) -> bool:
    """Whether a JSON object is a report of trtllm-bench."""
    return all(isinstance(values.get(key), Mapping) for key in SECTIONS)


def read_trtllm_text(path: Path, text: str) -> MeasuredRun:
    """Run from a report as text.

    Raises:
        DesignError: a line that it must have is missing, or what is no number.
    """
    report: dict[str, dict[str, Any]] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if (place := LINES.get(name.strip())) is not None:
            report.setdefault(place[0], {}).setdefault(place[1], _text_value(value.strip()))
        elif match := PERCENTILE.fullmatch(name):
            section, key = TABLES[match[1]]
            report.setdefault(section, {}).setdefault(key, {}).setdefault(match[2].lower(), _text_value(value.strip()))
    missing = [section for section in SECTIONS if section not in report]
    if missing:
        raise DesignError(f"{path}: a report of trtllm-bench without its {', '.join(missing)}: it is cut off")
    return read_trtllm_report(path, 1, report)


def read_trtllm_report(path: Path, number: int, values: Mapping[str, Any]) -> MeasuredRun:
    """Measured run from a report as a dictionary.

    Raises:
        DesignError: what is no number, negative or missing.
    """
    where = f"{path}, result {number}"
    figures = FigureList(where)
    engine, world, sent, speed = (values[key] for key in SECTIONS)
    streaming = values.get("streaming_metrics") or dict[str, Any]()
    if not isinstance(streaming, Mapping):
        raise DesignError(f"{where}: streaming_metrics: expected an object")
    figures.add("avg_ttft_ms", streaming.get("avg_ttft_ms"), "ttft", MILLI)
    figures.add("avg_tpot_ms", streaming.get("avg_tpot_ms"), "tpot", MILLI)
    figures.add("system_output_throughput_tok_s", speed.get("system_output_throughput_tok_s"), "throughput")
    figures.add("request_throughput_req_s", speed.get("request_throughput_req_s"), "request_throughput")
    figures.add("avg_request_latency_ms", speed.get("avg_request_latency_ms"), "latency", MILLI)
    for mark, (section, key) in TABLES.items():
        whole: Mapping[str, Any] = streaming if section == "streaming_metrics" else speed
        table = whole.get(key)
        if isinstance(table, Mapping):
            for statistic in STATISTICS:
                figures.add(f"{key} {statistic} (ms)", table.get(statistic), name_metric(mark.lower(), statistic), MILLI)
    requests = figures.count("num_requests", sent.get("num_requests"), low=1)
    prompt, output = (figures.number(key, sent.get(key)) for key in ("avg_input_length", "avg_output_length"))
    if not prompt or not output:
        raise DesignError(f"{where}: avg_input_length, avg_output_length: needed for the load, but not in the report")
    figures.notes.append("lengths of single requests are not in the report: all requests have the mean lengths")
    figures.notes.append(
        "the report states no concurrency: all requests are sent at once; concurrency=N is that of --concurrency N"
    )
    if values.get("decoding_stats"):
        figures.notes.append("tokens were guessed; set workload.speculation as the engine did")
    return MeasuredRun(
        f"trtllm-bench, TensorRT-LLM {str(engine.get('version') or 'of no stated version')[:20]}",
        name_run(path, number),
        figures.finish(),
        MeasuredLoad(requests, prompt, output, math.inf),
        _engine_settings(engine, world),
        str(engine.get("model") or "")[:80],
        tuple(figures.notes),
    )


def _engine_settings(engine: Mapping[str, Any], world: Mapping[str, Any]) -> dict[str, str]:
    """Settings that a report states: parallelism, batch, token budget and number formats."""
    counts = {
        "mapping.both.tp": "tp_size",
        "mapping.serving.max_batch_size": "max_batch_size",
        "mapping.serving.max_batched_tokens": "max_num_tokens",
    }
    settings = {
        address: str(int(value))
        for address, key in counts.items()
        if isinstance(value := world.get(key), int | float) and not isinstance(value, bool) and 1 <= value < MAX_SETTING
    }
    quantization, dtype = (str(engine.get(key) or "").lower() for key in ("quantization", "dtype"))
    products = "fp8" if quantization == "fp8" else FORMATS.get(dtype, "") if quantization in ("", "none") else ""
    cache = "fp8" if str(engine.get("kv_cache_dtype") or "").lower() == "fp8" else FORMATS.get(dtype, "")
    if products:
        settings |= {"mapping.precision.weights": products, "mapping.precision.activations": products}
    if str(engine.get("backend") or "pytorch").lower() == "pytorch":
        settings["inference_engine"] = "trtllm_v1"
    return settings | ({"mapping.precision.kv": cache} if cache else {})


def _text_value(text: str) -> Any:
    """A number of a line, or its text."""
    try:
        return float(text)
    except ValueError:
        return None if text in ("None", "N/A") else text

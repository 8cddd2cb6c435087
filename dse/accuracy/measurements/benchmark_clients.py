"""Results of ``vllm bench serve`` (JSON) and ``sglang.bench_serving`` (JSON lines) as measured runs.

Keys are those of vllm/benchmarks/serve.py at commit def9ce8 and of python/sglang/bench_serving.py at commit 0c69f5b.
Neither file states its version. Times are in milliseconds where a key ends in ``_ms``, else in seconds.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from dse.accuracy.measurements.measured_run import (
    MAX_FAILED_SHARE,
    MILLI,
    FigureList,
    MeasuredLoad,
    MeasuredRun,
    name_metric,
    name_run,
)
from dse.space.array_math import Array
from dse.space.errors import DesignError
from dse.space.requests import MAX_TOKENS

VLLM, SGLANG = "vllm bench serve", "sglang.bench_serving"
REQUIRED = ("completed", "total_input_tokens", "total_output_tokens", "request_throughput")
"""Keys that both write, by which such a result is known."""
SGLANG_KEYS = ("total_input_text_tokens", "accept_length", "input_throughput", "server_info", "sharegpt_output_len")
DETAILS = ("input_lens", "output_lens", "start_times")
"""Lists with an entry a request, which ``--save-detailed`` and ``--output-details`` add."""
KINDS = {"ttft": "ttft", "tpot": "tpot", "itl": "tbt", "e2el": "latency", "e2e_latency": "latency"}
"""Times of a client by the names of both programs, with ours."""
REPLAYED = "trace"
"""Rate of a client of SGLang that sent requests at the times of a trace."""
STATISTICS = ("mean", "median", "p90", "p95", "p99")


def is_client_result(values: Mapping[str, Any]) -> bool:
    """Whether a JSON object is a result of either program."""
    return all(key in values for key in REQUIRED)


def read_client_result(path: Path, number: int, values: Mapping[str, Any], details: Mapping[str, Array]) -> MeasuredRun:
    """Run from one result of either program.

    Args:
        path: of the file.
        number: place of the result in the file, from 1.
        values: of its keys.
        details: of its lists of `DETAILS`, those that are there.

    Raises:
        DesignError: what is no number, negative or missing; a run without completed requests, or with a ramp of rates.
    """
    where = f"{path}, result {number}"
    figures = FigureList(where)
    completed = figures.count("completed", values["completed"])
    if not completed:
        raise DesignError(f"{where}: completed: no request was completed; nothing was measured")
    if values.get("ramp_up_strategy"):
        raise DesignError(f"{where}: ramp_up_strategy: a rising rate is no load that is simulated; run at one rate")
    failed = _failed_requests(figures, values, completed)
    if figures.number("duration", values.get("duration")) == 0:
        raise DesignError(f"{where}: duration: expected a time above 0, got 0; nothing was measured")
    for key, kind in KINDS.items():
        for statistic in STATISTICS:
            field = f"{statistic}_{key}_ms"
            figures.add(field, values.get(field), name_metric(kind, statistic), MILLI)
    figures.add("output_throughput (token/s)", values.get("output_throughput"), "throughput")
    figures.add("request_throughput (1/s)", values["request_throughput"], "request_throughput")
    lengths = _mean_lengths(figures, values, completed)
    rate, cv, concurrency = _arrivals(figures, values)
    prompts, outputs, starts = _request_details(figures, details, completed + failed)
    source = SGLANG if any(key in values for key in SGLANG_KEYS) else VLLM
    if source == SGLANG and (accepted := figures.number("accept_length", values.get("accept_length"))) and accepted > 1:
        figures.notes.append(f"accept_length is {accepted:g}: tokens were guessed; set workload.speculation as the server did")
    server = values.get("server_info")
    if not isinstance(server, Mapping):
        figures.notes.append("the file does not state the server: inference_engine is the chip's usual one unless it is set")
    return MeasuredRun(
        source=source,
        name=name_run(path, number),
        figures=figures.finish(),
        load=MeasuredLoad(completed + failed, *lengths, rate, cv, concurrency, prompts, outputs, starts),
        settings=_server_settings(server) if isinstance(server, Mapping) else {},
        model=_model_name(values),
        notes=tuple(figures.notes),
    )


def _failed_requests(figures: FigureList, values: Mapping[str, Any], completed: int) -> int:
    """Requests that failed: as the file says, or those of ``num_prompts`` that were not completed.

    Raises:
        DesignError: many, more than were sent, or many of which the file says neither.
    """
    failed = None if values.get("failed") is None else figures.count("failed", values["failed"])
    sent = None if values.get("num_prompts") is None else figures.count("num_prompts", values["num_prompts"], low=1)
    figures.refuse_failures(failed or 0, completed + (failed or 0))
    if sent is None:
        return failed or 0
    lost = sent - completed - (failed or 0)
    counts = f"completed {completed:,}" + ("" if failed is None else f" and failed {failed:,}")
    if lost < 0:
        raise DesignError(f"{figures.where}: num_prompts: {counts} of {sent:,} requests; the file contradicts itself")
    if failed is None:
        figures.refuse_failures(lost, sent)
        return lost
    if lost > MAX_FAILED_SHARE * sent:
        raise DesignError(
            f"{figures.where}: num_prompts: {counts} of {sent:,} requests; {lost:,} are neither; run it again, or set "
            "num_prompts to what was sent"
        )
    if lost:
        figures.notes.append(f"{lost:,} of num_prompts {sent:,} are neither completed nor failed: not simulated")
    return failed


def _mean_lengths(figures: FigureList, values: Mapping[str, Any], completed: int) -> tuple[float, float]:
    """Mean tokens of a prompt and of an output."""
    prompt, output = (
        figures.count(key, values[key], low=1) / completed for key in ("total_input_tokens", "total_output_tokens")
    )
    for key, tokens in (("total_input_tokens", prompt), ("total_output_tokens", output)):
        if tokens > MAX_TOKENS:
            raise DesignError(f"{figures.where}: {key}: {tokens:g} tokens a request; expected at most {MAX_TOKENS:,}")
    return prompt, output


def _arrivals(figures: FigureList, values: Mapping[str, Any]) -> tuple[float | None, float, int | None]:
    """Rate [Hz], coefficient of variation and concurrency of a client's requests."""
    given, burstiness = values.get("request_rate"), figures.number("burstiness", values.get("burstiness"))
    if burstiness == 0:
        raise DesignError(f"{figures.where}: burstiness: expected a number above 0, got 0")
    endless = given == "inf" or (isinstance(given, float) and math.isinf(given) and given > 0)
    if given == REPLAYED:
        figures.notes.append("request_rate is 'trace': arrivals are not known; set workload.trace or workload.rate")
        given = None
    if given == 0 or (isinstance(given, str) and not endless):
        raise DesignError(f"{figures.where}: request_rate: expected a rate above 0, or inf, got {str(given)[:40]!r}")
    rate = math.inf if endless else figures.number("request_rate", given)
    concurrency = values.get("max_concurrency")
    limit = None if concurrency is None else figures.count("max_concurrency", concurrency, low=1)
    return rate, 1.0 if burstiness is None else burstiness**-0.5, limit


def _request_details(
    figures: FigureList, details: Mapping[str, Array], requests: int
) -> tuple[Array | None, Array | None, Array | None]:
    """Lengths and starts of each request; None where the file has them not, or not of each."""
    for name, entries in details.items():
        if len(entries) != requests:
            raise DesignError(
                f"{figures.where}: {name}: expected an entry for each of {requests:,} requests, got {len(entries):,}"
            )
    prompts, outputs, starts = (details.get(name) for name in DETAILS)
    if prompts is None or outputs is None:
        lacking = " and ".join(name for name in DETAILS[:2] if name not in details)
        figures.notes.append(f"lengths of single requests: no {lacking} in the file: all requests have the mean lengths")
        return None, None, None
    served = (outputs >= 1) & (prompts >= 1)  # a failed request has an output of 0
    if not (np.isfinite(prompts).all() and np.isfinite(outputs).all() and served.any()):
        raise DesignError(f"{figures.where}: input_lens, output_lens: expected counts of tokens, 1 or more")
    if starts is None or not np.isfinite(starts).all():
        return prompts[served], outputs[served], None
    return prompts[served], outputs[served], starts[served] - starts[served].min()


def _server_settings(server: Mapping[str, Any]) -> dict[str, str]:
    """Settings of the deployment that SGLang's server states."""
    tp = server.get("tp_size")
    if not isinstance(tp, int) or isinstance(tp, bool) or tp < 1:
        return {}
    return {"inference_engine": "sglang", "mapping.both.tp": str(tp)}


def _model_name(values: Mapping[str, Any]) -> str:
    server = values.get("server_info")
    name = values.get("model_id") or (server.get("model_path") if isinstance(server, Mapping) else None) or ""
    return str(name)[:80]

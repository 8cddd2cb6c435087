"""Command line with which an inference engine is assumed to be started, in the words of that engine."""

import json
from collections.abc import Iterator

from dse.analysis.engine_flags import TABLES, LaunchSettings, write_line, write_options
from dse.evaluators.serving.scheduling_policy import policies_with_batch
from dse.space.design import Design, prefill_mapping
from dse.space.errors import DesignError
from dse.space.workload import BatchCase, ServingLoad, WorkloadCase

UNBOUNDED = 1 << 30
"""Token budget from which on a policy has none."""


def engine_command_lines(design: Design, case: WorkloadCase) -> list[str]:
    """Command line of the inference engine for each pool of instances.

    Raises:
        DesignError: the design has no inference engine, or its workload is of single kernels.
    """
    lines = []
    for settings in launch_settings(design, case):
        table = TABLES[settings.engine.name]
        options = write_options(settings, table)
        file = f"{settings.role or 'options'}.yaml" if options else ""
        notes = [f"{settings.instances} of these"] * (settings.instances > 1)
        notes += [f"for {settings.role}"] * bool(settings.role) + [f"{file}: {json.dumps(options)}"] * bool(file)
        line = write_line(settings, table, file)
        lines.append(f"{line}   # {', '.join(notes)}" if notes else line)
    return lines


def launch_settings(design: Design, case: WorkloadCase) -> list[LaunchSettings]:
    """Settings of the inference engine for each pool of instances: prefill instances first.

    Raises:
        DesignError: the design has no inference engine, or its workload is of single kernels.
    """
    if design.mapping.inference_engine is None:
        raise DesignError("--engine-args: this design has no inference engine; set one, as inference_engine=vllm_v1")
    if not isinstance(case, BatchCase | ServingLoad):
        raise DesignError("--engine-args: an inference engine serves models; choose workload=serving or workload=static")
    return list(_pool_settings(design, case))


def _pool_settings(design: Design, case: BatchCase | ServingLoad) -> Iterator[LaunchSettings]:
    """Settings of the engines of each pool."""
    mapping = design.mapping
    serving = mapping.serving
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
    speculation = getattr(case, "speculation", None)
    for phase, role, count, batch, tokens, chunked in pools:
        own = prefill_mapping(design) if role == "prefill" and design.pools is not None else mapping
        plan, precision = getattr(own, phase), own.precision
        tp, pp, ep = (int(getattr(plan, name, 1) or 1) for name in ("tp", "pp", "ep"))
        copies = max(ep // tp, 1) if ep > 1 else 1
        budget = 0 if tokens >= UNBOUNDED else -(-tokens // copies)
        yield LaunchSettings(
            case.model.name,
            own.inference_engine or mapping.inference_engine,
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
            precision.activations,
            int(speculation.tokens) if speculation is not None and role != "prefill" else 0,
        )

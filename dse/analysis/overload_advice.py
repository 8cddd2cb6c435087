"""Remedies for overloaded deployments, in the user's addresses."""

from collections.abc import Mapping
from typing import Any

from dse.space.chip import Chip
from dse.space.design import Design
from dse.space.main_memory import has_main_memory, main_memory

BUSY_SHARE = 0.9
"""Share of the time from which on something is busy all the time."""


def overload_advice(metrics: Mapping[str, float], design: Design) -> str:
    """Cause of long waits in an overloaded deployment, and the knobs that help; else empty string."""
    if not metrics.get("load_status"):
        return ""
    if metrics["load_status"] == 3:
        return "all requests arrive within about one response time; simulate more (workload.requests)"
    if metrics["load_status"] == 4:
        most = f"{metrics['offered_load']:.3g} times the number of users at which requests start to wait"
        return f"{most}; response times grow in proportion, and no queue grows: set fewer workload.users, or add instances"
    serving: Any = design.mapping.serving
    prefill, decode = metrics["prefill_busy_share"], metrics["decode_busy_share"]
    tiles = hasattr(serving, "prefill_cores")
    if serving.prefill_cores if tiles else serving.prefill_instances:
        slow, fast = ("prefill", "decode") if prefill > decode else ("decode", "prefill")
        knobs = "mapping.serving.prefill_cores" if tiles else "mapping.serving.prefill_instances or instances"
        shares = f"{slow} is busy {max(prefill, decode):.0%} of the time and {fast} {min(prefill, decode):.0%}"
        return f"{shares}: add capacity for {slow} ({knobs}), or lower workload.rate"
    if max(prefill, decode) >= BUSY_SHARE:
        wider = ", mapping.both.tp" if hasattr(design.mapping.decode, "tp") else ""
        knobs = "a larger chip.mesh" if tiles else f"mapping.serving.instances{wider}"
        return f"busy all the time: add capacity ({knobs}), or lower workload.rate"
    idle = f"requests wait, yet {1 - max(prefill, decode):.0%} of the time is idle"
    levers = {
        "blocked_by_batch_share": (
            "a batch slot",
            "mapping.both.microbatch_size" if tiles else "mapping.serving.max_batch_size",
        ),
        "blocked_by_kv_share": ("KV memory", f"mapping.precision.kv{_memory_knob(design.chip)}"),
    }
    most = max(levers, key=lambda name: metrics.get(name, 0.0))
    if not metrics.get(most):
        return f"{idle}: iterations leave gaps" + (" (fewer mapping.both.pp)" if tiles else "")
    what, knobs = levers[most]
    stages = ", fewer mapping.both.pp or mapping.both.stages=operators" if tiles else ""
    return f"{idle}; {metrics[most]:.0%} of the time the first queued request waits for {what} ({knobs}{stages})"


def _memory_knob(chip: Chip) -> str:
    """Setting for the capacity of main memory, after a comma; empty string without main memory."""
    return f", {main_memory(chip).address('capacity')}" if has_main_memory(chip) else ""

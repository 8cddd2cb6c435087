"""Settings of serving: instances, batch sizes, scheduling policies and KV memory.

Prefill and decode share instances, or have pools of their own.
"""

from typing import Any

import numpy as np

from dse.space.array_math import Number
from dse.space.fields import integer_field, option_field, quantity_field, record_class

FORMER_POLICIES = {"chunked": "chunked_prefill", "fusion": "pd_fusion"}
"""Policies by the names that they had before."""

PREEMPTION = ("recompute", "swap")
"""What happens to a KV cache that no longer fits: it is recomputed, or swapped to the host and back."""

ROUTING = ("round_robin", "least_loaded", "cache_aware")
"""Routing of requests to instances: the next in rotation; the one with the fewest requests, running and queued; or the one
with the longest cached prefix, if that is long enough and instances are loaded evenly ([smg2025]).
"""


KV_TRANSFERS = ("whole", "layerwise")
"""KV transfer from prefill to decode: whole, when the prompt is done; or layer by layer as these are computed, during
prefill iterations, so that only the last layer is left to send if the link keeps up.
"""

PREFIX_STORES = ("reserved", "shared")
"""Where prefixes are kept for reuse: in a separate part of the memory, of size `prefix_cache_share`; or in the KV blocks
that running requests do not need, which also share equal blocks.
"""


SNAPSHOT = "prompt tokens between snapshots of recurrent states, for reuse; only the prompt's end if absent"


POOL_PHASES = ("prefill", "decode")
"""Phase of each pool where prefill and decode are on instances of their own."""

ADMISSION_RULES = ("policy", "chunk", "gate", "prompt")
"""KV memory of a prompt at admission: as its policy says; blocks for the next chunk, and more from chunk to chunk;
likewise, but only when blocks for the whole prompt are free; or blocks for the whole prompt. The chunk of a prompt that is
never cut is the whole prompt.
"""


WHOLE_PROMPTS = ("static", "prefill_first", "orca")
"""Policies that never cut a prompt: chunks have no length, and memory is allocated for the whole prompt."""

NEVER_SHORT = {"policy": ("static", "orca"), "prefill_instances": (0,)}
"""Policies that allocate memory for a request's last token at once, so that it never runs out."""


@record_class
class ServingPlan:
    """Serving settings: instances of the model, batch sizes, scheduling policy and KV memory."""

    policy: str = option_field("scheduling policy of an instance", former_options=FORMER_POLICIES)
    instances: Number = integer_field("instances, each with its own queue; with prefill instances, those that decode")
    prefill_instances: Number = integer_field(
        "instances that only prefill and transfer KV caches; 0 if every instance does both", low=0
    )
    max_batch_size: Number = integer_field("requests that an instance runs at a time, at most", former="batch")
    prefill_policy: str = option_field(
        "scheduling policy of prefill instances", default="prefill_first", former_options=FORMER_POLICIES
    )
    prefill_max_batch_size: Number = integer_field(
        "requests that a prefill instance runs at a time, at most; 0 for `max_batch_size`",
        low=0,
        default=0,
        former="prefill_batch",
    )
    prefill_max_batched_tokens: Number = integer_field(
        "token budget of prefill iterations; 0 for the policy's", low=0, default=0, former="prefill_tokens"
    )
    max_batched_tokens: Number = integer_field(
        "token budget of an iteration, or units where the budget has units; 0 for the policy's", low=0, former="tokens"
    )
    chunk_budget_units: Number = integer_field(
        "units of the budget that a prompt chunk takes; 0 for the policy's", low=0, former="unit"
    )
    max_chunk_tokens: Number = integer_field(
        "tokens of a prompt chunk, at most; 0 for the policy's",
        low=0,
        unread={"policy": WHOLE_PROMPTS},
        former="chunk",
    )
    block_size: Number = integer_field("tokens in a block of KV memory", former="block")
    kv_blocks: Number = integer_field("KV blocks of an instance; 0 for as many as fit", low=0, former="blocks")
    reserved_memory: Number = quantity_field(
        "B", "KV memory that the engine reserves, per device of an instance", former="reserved"
    )
    admission: str = option_field(
        "blocks that a prompt must have before admission",
        ADMISSION_RULES,
        unread={"policy": WHOLE_PROMPTS, "prefill_policy": WHOLE_PROMPTS},
        former="admit",
    )
    preemption: str = option_field("what happens to a KV cache that does not fit", PREEMPTION, unread=NEVER_SHORT)
    host_bandwidth: Number = quantity_field(
        "B/s",
        "bandwidth to the host's memory, per device; for swapped KV caches and prefixes",
        positive=True,
        former="host",
    )
    host_kv_capacity: Any = quantity_field(
        "B",
        "host memory per device for prefixes that leave the pool; none if absent",
        positive=True,
        absent=True,
        unread={"prefix_cache": ("reserved",)},
        former="host_capacity",
    )
    prefix_cache: str = option_field(
        "where prefixes are kept: reserved, in a part of the memory of size prefix_cache_share, or shared, in the pool of KV "
        "blocks",
        PREFIX_STORES,
        former="reuse",
        former_options={"part": "reserved", "pool": "shared"},
    )
    prefix_cache_share: Number = quantity_field(
        "1", "share of the KV memory that keeps prefixes for reuse", high=0.95, former="prefix"
    )
    state_snapshot_tokens: Any = integer_field(SNAPSHOT, absent=True, former="snapshot")
    routing: str = option_field(
        "routing of requests to instances", ROUTING, unread={"instances": (1,), "prefill_instances": (0, 1)}
    )
    kv_transfer: Any = option_field(
        "KV transfer from prefill instances: whole, or layerwise during prefill; whole if absent",
        KV_TRANSFERS,
        absent=True,
        unread={"prefill_instances": (0,)},
        former="transfer",
        former_options={"by_layer": "layerwise"},
    )
    pool: Any = option_field(
        "the pool that is on these chips, where the other one is on chips of another kind; set by `pools`, never by hand",
        POOL_PHASES,
        absent=True,
    )


def pool_phases(serving: ServingPlan) -> tuple[str, ...]:
    """Phase of each pool on a design's chips: prefill, if some instances only prefill, and decode.

    A pool that decodes and has no prefill pool beside it prefills too.

    Args:
        serving: settings; of several designs, where all have prefill instances or none has.
    """
    if serving.pool:
        return (str(serving.pool),)
    return POOL_PHASES if np.all(serving.prefill_instances) else POOL_PHASES[1:]


def instance_counts(serving: ServingPlan) -> tuple[int, ...]:
    """Number of instances of each pool on the chips of one design."""
    counts = {"prefill": int(serving.prefill_instances), "decode": int(serving.instances)}
    return tuple(map(counts.__getitem__, pool_phases(serving)))


def served_chips(serving: ServingPlan) -> Number:
    """Number of chips of all instances, where each is one chip."""
    counts = {"prefill": serving.prefill_instances, "decode": serving.instances}
    if serving.pool:
        return counts[serving.pool]
    return serving.instances + serving.prefill_instances


def is_disaggregated(serving: ServingPlan) -> bool:
    """Whether instances of their own prefill, on these chips or on others."""
    return bool(serving.pool) or bool(np.all(serving.prefill_instances))

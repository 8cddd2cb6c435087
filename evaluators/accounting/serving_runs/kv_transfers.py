"""Transfers of KV caches between two pools: their times, and what they do to main memory and links."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dse.evaluators.serving.kv_memory import RequestMemory, value_of_row
from dse.evaluators.serving.simulator import InstancePool
from dse.evaluators.serving.simulator_state import KvTransfer
from dse.evaluators.silicon.energy import prefix_transfer_energy
from dse.space.array_math import Array
from dse.space.design import Design
from dse.space.mapping import PipelineServingPlan
from dse.space.serving_plan import ServingPlan
from dse.space.workload import ServingLoad


class KvPath(NamedTuple):
    """Path of a KV cache from a prefill to a decode instance; leaves broadcast over designs.

    Attributes:
        seconds: time of a request's cache on one channel, by the parts of its memory. [s]
        latency: from its last byte to its arrival. [s]
        sent: bytes of a request's cache that are sent, by all chips. [B]
        memory_bytes: that main memories of both ends give or take for a byte that is sent. [1]
        energy: dynamic, of a byte that is sent. [J/B]
        hop_bytes: links of a NoC that a byte crosses. [1]
        channels: caches on their way at a time; None for one of each instance of the smaller pool.
        blocks: parts of a chip between which nothing is sent.
    """

    seconds: RequestMemory
    latency: Any
    sent: RequestMemory
    memory_bytes: Any
    energy: Any
    hop_bytes: Any = 0.0
    channels: Any = None
    blocks: Any = 1


class TransferWork(NamedTuple):
    """Work of KV transfers between pools, and of bytes to hosts and back, on all chips.

    Attributes:
        memory_bytes: that main memory gives or takes. [B]
        energy: dynamic. [J]
        hop_bytes: bytes times links of the NoC that they cross. [B]
    """

    memory_bytes: Any
    energy: Any
    hop_bytes: Any = 0.0


def make_transfer(
    path: KvPath, row: int, serving: ServingPlan | PipelineServingPlan, load: ServingLoad, pools: Sequence[InstancePool]
) -> KvTransfer:
    """Transfer of one design of those that a path is of.

    Args:
        path, row: of designs, and which one of them.
        serving: its serving settings.
        load: that is served.
        pools: its pools; an instance sends or takes one cache at a time.
    """
    seconds = path.seconds.design_memory(row)
    few = min(pool.instances for pool in pools)
    return KvTransfer(
        seconds.growing,
        _value(path.latency, row),
        few if path.channels is None else int(_value(path.channels, row)),
        True,
        int(_value(path.blocks, row)),
        fixed=seconds.fixed,
        windows=seconds.windows,
        layers=int(load.model.layers) if serving.kv_transfer == "layerwise" else 0,  # each sent as soon as it is there
    )


def _value(values: Any, row: int) -> float:
    """Value of one design, from a number or an array over designs."""
    return value_of_row(np.ravel(values), row) if isinstance(values, np.ndarray) else float(values)


def work_of_transfers(path: KvPath | None, prompts: Array) -> TransferWork:
    """Work of sending the caches of prompts of some lengths; none without a path."""
    if path is None:
        return TransferWork(0.0, 0.0)
    nbytes = path.sent.sum_bytes(prompts)
    return TransferWork(path.memory_bytes * nbytes, path.energy * nbytes, path.hop_bytes * nbytes)


def work_beside_iterations(path: KvPath | None, design: Design, load: ServingLoad, hosted: Any) -> TransferWork:
    """Work of a load's KV transfers, if there are two pools, and of bytes between all chips and hosts. [B]"""
    sent = work_of_transfers(path, load.requests.prompt[load.requests.output > 1])  # others end with their first token
    return TransferWork(hosted + sent.memory_bytes, prefix_transfer_energy(hosted, design) + sent.energy, sent.hop_bytes)

"""What there is a mapping for: which one goes with a chip and with what is asked of it."""

from collections.abc import Mapping as Dict
from typing import Any, NamedTuple

from dse.space.chip import Chip, MeshChip, TileChip
from dse.space.mapping import (
    AttentionMapping,
    CollectiveMapping,
    FlatMapping,
    FlatServingMapping,
    Mapping,
    MeshMapping,
    MeshServingMapping,
    ProductMapping,
    ServingMapping,
    StreamMapping,
    SummaMapping,
    TileMapping,
    TileServingMapping,
    TrafficMapping,
)
from dse.space.memory import MemoryChip
from dse.space.network import NetworkChip
from dse.space.workload import Attention, Case, Collective, Load, Product, Stream, Traffic


class Kind(NamedTuple):
    """Mappings, the usual one first, and in words why it is one of these and which to choose on the command line."""

    mappings: tuple[type, ...]
    why: str
    choices: str


CHIPS = (Chip, MeshChip, TileChip, MemoryChip, NetworkChip)
"""Kinds of chips."""

CASES = {
    "kernel": Product,
    "patterns": Stream,
    "traffic": Traffic,
    "pattern": Collective,
    "keys": Attention,
    "arrivals": Load,
}
"""Kinds of cases by the field of a workload that only they have; others are batches of requests to models."""

KINDS: dict[tuple[type, type], Kind] = {
    (Chip, Case): Kind((Mapping,), "the chip is a die with a cache", "tensor_parallel or sglang, or a mesh, as chip=wse2"),
    (MeshChip, Case): Kind((MeshMapping,), "the chip is a mesh of cores", "waferllm, t10 or ladder"),
    (TileChip, Case): Kind(
        (TileMapping, FlatMapping), "the chip is a mesh of tiles", "flat, npu, npu_t10, npu_waferllm or npu_wsc_llm"
    ),
    (Chip, Product): Kind((Mapping,), "the chip is a die with a cache", "tensor_parallel or sglang, or a mesh, as chip=wse2"),
    (MeshChip, Product): Kind((ProductMapping,), "the workload is a product by itself", "product"),
    (TileChip, Product): Kind((SummaMapping,), "the workload is a product by itself, on a mesh of tiles", "summa"),
    (TileChip, Collective): Kind((CollectiveMapping,), "the workload is a collective by itself", "collective"),
    (TileChip, Attention): Kind((AttentionMapping,), "the workload is attention by itself", "attention"),
    (Chip, Load): Kind((ServingMapping,), "requests are served as they come", "serving"),
    (MeshChip, Load): Kind(
        (MeshServingMapping,),
        "requests are served as they come, on a mesh of cores",
        "waferllm_serving or waferllm_dojo_serving",
    ),
    (TileChip, Load): Kind(
        (TileServingMapping, FlatServingMapping),
        "requests are served as they come, on a mesh of tiles",
        "flat_serving, npu_serving, npu_serving_t10, npu_serving_waferllm or npu_serving_wsc_llm",
    ),
    (MemoryChip, Stream): Kind((StreamMapping,), "the chip is a memory by itself", "stream"),
    (TileChip, Stream): Kind((StreamMapping,), "the workload is requests to memory", "stream"),
    (NetworkChip, Traffic): Kind((TrafficMapping,), "the chip is a network by itself", "traffic"),
}
"""By kinds of chip and of case."""

WHERE: dict[type, str] = {
    Case: "chip=npu_dse",
    Product: "chip=wse2",
    Stream: "chip=hbm3",
    Traffic: "chip=mesh8",
    Collective: "chip=tile32",
    Attention: "chip=tile32",
    Load: "chip=npu_dse",
}
"""A chip for each kind of case."""


def asked(workload: Dict[str, Any]) -> type:
    """The kind of case that a workload's fields say."""
    return next((case for field, case in CASES.items() if workload.get(field) is not None), Case)


def called(workload: Dict[str, Any]) -> str:
    """What a workload of such fields is called in a chip's ``mapping_NAME``: as in conf/workload, whatever file it is from."""
    case = asked(workload)
    if case is Product:
        return str(workload.get("kernel"))
    return {Case: "static", Load: "serving"}.get(case, case.__name__.lower())

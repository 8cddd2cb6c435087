"""Which software runs on which machine for what is asked of it, and which mapping to choose for that."""

from collections.abc import Mapping as Dict
from typing import Any, NamedTuple

from dse.space.machines import DIES, MEMORY, NETWORK, POOL, POOLED, TILES, WAFER
from dse.space.software import (
    ATTENTION,
    COLLECTIVE,
    DEVICES,
    MANY_DIES,
    PIPELINES,
    POOLED_DIES,
    PRODUCT,
    REGIONS,
    SERVED_DEVICES,
    SERVED_PIPELINES,
    SERVED_REGIONS,
    SERVED_WHOLE_CHIP,
    STREAM,
    SUMMA,
    TRAFFIC,
    WHOLE_CHIP,
)
from dse.space.workload import Attention, Case, Collective, Load, Mixture, Operation, Product, Stream, Traffic


class Kind(NamedTuple):
    """Software, and in words why it is one of these and which to choose on the command line."""

    software: tuple[str, ...]
    why: str
    choices: str


CASES = {
    "kernel": Product,
    "experts": Mixture,
    "operator": Operation,
    "patterns": Stream,
    "traffic": Traffic,
    "pattern": Collective,
    "keys": Attention,
    "arrivals": Load,
}
"""Kinds of cases by the field of a workload that only they have; others are batches of requests to models."""

KINDS: dict[tuple[str, type], Kind] = {
    (POOL, Case): Kind((DEVICES,), "the chip is a die with a cache", "tensor_parallel or sglang, or a mesh, as chip=wse2"),
    (WAFER, Case): Kind((REGIONS,), "the chip is a mesh of cores", "waferllm, waferllm_prefetch, t10 or ladder"),
    (TILES, Case): Kind(
        (PIPELINES, WHOLE_CHIP),
        "the chip is a mesh of tiles",
        "flat, flat_prefetch, npu, npu_flat_attention, npu_ktree, npu_prefetch, npu_t10, npu_waferllm or npu_wsc_llm",
    ),
    (DIES, Case): Kind((MANY_DIES,), "the chip is many dies of tiles", "flat_dies or flashmla_dies"),
    (POOLED, Case): Kind((POOLED_DIES,), "the chip is many dies with a cache", "expert_parallel or expert_parallel_int8"),
    (POOL, Product): Kind((DEVICES,), "the chip is a die with a cache", "tensor_parallel or sglang, or a mesh, as chip=wse2"),
    (POOL, Mixture): Kind((DEVICES,), "the chip is a die with a cache", "tensor_parallel or sglang"),
    (POOL, Operation): Kind((DEVICES,), "the chip is a die with a cache", "tensor_parallel or sglang"),
    (POOL, Attention): Kind((DEVICES,), "the chip is a die with a cache", "tensor_parallel or sglang"),
    (POOL, Collective): Kind((DEVICES,), "the chip is a die with a cache", "tensor_parallel or sglang"),
    (WAFER, Product): Kind((PRODUCT,), "the workload is a product by itself", "product"),
    (TILES, Product): Kind((SUMMA, PRODUCT), "the workload is a product by itself, on a mesh of tiles", "summa or product"),
    (TILES, Collective): Kind((COLLECTIVE,), "the workload is a collective by itself", "collective"),
    (TILES, Attention): Kind((ATTENTION,), "the workload is attention by itself", "attention"),
    (POOL, Load): Kind((SERVED_DEVICES,), "requests are served as they come", "serving"),
    (WAFER, Load): Kind(
        (SERVED_REGIONS,),
        "requests are served as they come, on a mesh of cores",
        "waferllm_serving or waferllm_dojo_serving",
    ),
    (TILES, Load): Kind(
        (SERVED_PIPELINES, SERVED_WHOLE_CHIP),
        "requests are served as they come, on a mesh of tiles",
        "flat_serving, npu_serving, npu_serving_prefetch, npu_serving_t10, npu_serving_waferllm or npu_serving_wsc_llm",
    ),
    (MEMORY, Stream): Kind((STREAM,), "the chip is a memory by itself", "stream"),
    (TILES, Stream): Kind((STREAM,), "the workload is requests to memory", "stream"),
    (NETWORK, Traffic): Kind((TRAFFIC,), "the chip is a network by itself", "traffic"),
}
"""By machines and kinds of case."""

GUESSING = (DEVICES, WHOLE_CHIP, MANY_DIES, POOLED_DIES, SERVED_DEVICES)
"""Software that checks guessed tokens in decode."""

WHERE: dict[type, str] = {
    Case: "chip=npu_dse",
    Product: "chip=wse2",
    Mixture: "chip=h100",
    Operation: "chip=h100",
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
    return {Case: "static", Load: "serving", Mixture: "experts", Operation: "elementwise"}.get(case, case.__name__.lower())

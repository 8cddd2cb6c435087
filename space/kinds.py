"""Which software runs on which machine for what is asked of it, and which mapping to choose for that."""

from collections.abc import Mapping as Dict
from typing import Any, NamedTuple

from dse.space.machines import DIES, MEMORY, NETWORK, POOL, POOLED, TILES, WAFER
from dse.space.software import (
    ATTENTION,
    COLLECTIVE,
    DEVICES,
    DIE_COLLECTIVE,
    MANY_DIES,
    PIPELINES,
    POOLED_DIES,
    PRODUCT,
    REGIONS,
    SERVED_DEVICES,
    SERVED_DIES,
    SERVED_PIPELINES,
    SERVED_POOLED_DIES,
    SERVED_REGIONS,
    SERVED_WHOLE_CHIP,
    STREAM,
    SUMMA,
    TRAFFIC,
    WHOLE_CHIP,
)
from dse.space.workload import Attention, Case, Collective, Load, Mixture, Operation, Product, Stream, Traffic


class Kind(NamedTuple):
    """Software, the mappings for it that ship, and in words what else would do."""

    software: tuple[str, ...]
    mappings: tuple[str, ...]
    more: str = ""

    @property
    def choices(self) -> str:
        """Which mappings to choose on the command line."""
        return " or ".join(part for part in (", ".join(self.mappings[:-1]), self.mappings[-1]) if part) + self.more


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
    (POOL, Case): Kind((DEVICES,), ("tensor_parallel", "sglang"), ", or a mesh, as chip=wse2"),
    (WAFER, Case): Kind((REGIONS,), ("waferllm", "waferllm_dojo", "waferllm_prefetch", "t10", "ladder")),
    (TILES, Case): Kind(
        (PIPELINES, WHOLE_CHIP),
        (
            "flat",
            "flat_prefetch",
            "npu",
            "npu_flat_attention",
            "npu_ktree",
            "npu_prefetch",
            "npu_t10",
            "npu_waferllm",
            "npu_wsc_llm",
        ),
    ),
    (DIES, Case): Kind((MANY_DIES,), ("flat_dies", "flashmla_dies")),
    (POOLED, Case): Kind((POOLED_DIES,), ("expert_parallel", "expert_parallel_int8")),
    (POOL, Product): Kind((DEVICES,), ("tensor_parallel", "sglang"), ", or a mesh, as chip=wse2"),
    (POOL, Mixture): Kind((DEVICES,), ("tensor_parallel", "sglang")),
    (POOL, Operation): Kind((DEVICES,), ("tensor_parallel", "sglang")),
    (POOL, Attention): Kind((DEVICES,), ("tensor_parallel", "sglang")),
    (POOL, Collective): Kind((DEVICES,), ("tensor_parallel", "sglang")),
    (WAFER, Product): Kind((PRODUCT,), ("product", "product_dojo")),
    (TILES, Product): Kind((SUMMA, PRODUCT), ("summa", "product")),
    (TILES, Collective): Kind((COLLECTIVE,), ("collective",)),
    (TILES, Attention): Kind((ATTENTION,), ("attention",)),
    (DIES, Collective): Kind((DIE_COLLECTIVE,), ("die_collective",)),
    (POOLED, Collective): Kind((DIE_COLLECTIVE,), ("die_collective",)),
    (POOL, Load): Kind((SERVED_DEVICES,), ("serving", "sglang_serving")),
    (WAFER, Load): Kind(
        (SERVED_REGIONS,),
        ("waferllm_serving", "waferllm_dojo_serving"),
    ),
    (TILES, Load): Kind(
        (SERVED_PIPELINES, SERVED_WHOLE_CHIP),
        (
            "flat_serving",
            "npu_serving",
            "npu_serving_prefetch",
            "npu_serving_t10",
            "npu_serving_waferllm",
            "npu_serving_wsc_llm",
        ),
    ),
    (DIES, Load): Kind((SERVED_DIES,), ("flat_dies_serving",)),
    (POOLED, Load): Kind((SERVED_POOLED_DIES,), ("expert_parallel_serving", "expert_parallel_int8_serving")),
    (MEMORY, Stream): Kind((STREAM,), ("stream",)),
    (TILES, Stream): Kind((STREAM,), ("stream",)),
    (NETWORK, Traffic): Kind((TRAFFIC,), ("traffic",)),
}
"""By machines and kinds of case."""

GUESSING = (DEVICES, WHOLE_CHIP, MANY_DIES, POOLED_DIES, SERVED_DEVICES, SERVED_DIES, SERVED_POOLED_DIES)
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


PLURALS: dict[type, str] = {
    Case: "models",
    Product: "products",
    Mixture: "experts",
    Operation: "operators",
    Stream: "streams of memory requests",
    Traffic: "traffic patterns",
    Collective: "collectives",
    Attention: "attention",
    Load: "served requests",
}
"""What each kind of case is called in messages, counted."""


def plural(case: type) -> str:
    """What a kind of case is called in messages.

    >>> plural(Traffic), plural(Load)
    ('traffic patterns', 'served requests')
    """
    return PLURALS[case]


def asked(workload: Dict[str, Any]) -> type:
    """The kind of case that a workload's fields say."""
    return next((case for field, case in CASES.items() if workload.get(field) is not None), Case)


def elsewhere(mapping: str, machine: str, case: type) -> bool:
    """Whether a mapping that ships is for such a case on other machines alone.

    >>> elsewhere("product", POOL, Product), elsewhere("product", WAFER, Product), elsewhere("own", POOL, Product)
    (True, False, False)
    """
    on = {of for (of, asked_for), kind in KINDS.items() if asked_for is case and mapping in kind.mappings}
    return bool(on) and machine not in on


def called(workload: Dict[str, Any]) -> str:
    """What a workload of such fields is called in a chip's ``mapping_NAME``: as in conf/workload, whatever file it is from."""
    case = asked(workload)
    if case is Product:
        return str(workload.get("kernel"))
    return {Case: "static", Load: "serving", Mixture: "experts", Operation: "elementwise"}.get(case, case.__name__.lower())

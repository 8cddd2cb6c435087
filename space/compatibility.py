"""Which software runs on which machine for a type of case, and which mappings to choose."""

from collections.abc import Mapping as Dict
from typing import Any, NamedTuple

from dse.space.machines import DIES, MEMORY, NETWORK, POOL, POOLED, TILES, WAFER
from dse.space.software import (
    ATTENTION,
    COLLECTIVE,
    DEVICES,
    DIE_COLLECTIVE,
    MANY_DIES,
    POOLED_DIES,
    PRODUCT,
    SERVED_DEVICES,
    SERVED_DIES,
    SERVED_POOLED_DIES,
    STREAM,
    SUMMA,
    TRAFFIC,
    WHOLE_CHIP,
    layouts_on,
)
from dse.space.workload import (
    AttentionCase,
    BatchCase,
    CollectiveCase,
    ElementwiseCase,
    ExpertsCase,
    MemoryStreamCase,
    NocTrafficCase,
    ProductCase,
    ServingLoad,
)


class SoftwareKind(NamedTuple):
    """Software that can run a type of case, the mappings shipped for it, and advice for messages."""

    software: tuple[str, ...]
    mappings: tuple[str, ...]
    more: str = ""

    @property
    def choices(self) -> str:
        """Overrides that choose a mapping, as text for messages."""
        return " or ".join(part for part in (", ".join(self.mappings[:-1]), self.mappings[-1]) if part) + self.more


CASE_TYPES = {
    "kernel": ProductCase,
    "experts": ExpertsCase,
    "operator": ElementwiseCase,
    "patterns": MemoryStreamCase,
    "traffic": NocTrafficCase,
    "pattern": CollectiveCase,
    "keys": AttentionCase,
    "arrivals": ServingLoad,
}
"""Kinds of cases by the field of a workload that only they have; others are batches of requests to models."""

KINDS: dict[tuple[str, type], SoftwareKind] = {
    (POOL, BatchCase): SoftwareKind(layouts_on(POOL, serves=False), ("tensor_parallel", "sglang"), ", or a mesh, as chip=wse2"),
    (WAFER, BatchCase): SoftwareKind(
        layouts_on(WAFER, serves=False), ("waferllm", "waferllm_dojo", "waferllm_prefetch", "t10", "ladder")
    ),
    (TILES, BatchCase): SoftwareKind(
        layouts_on(TILES, serves=False),
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
    (DIES, BatchCase): SoftwareKind(layouts_on(DIES, serves=False), ("flat_dies", "flashmla_dies")),
    (POOLED, BatchCase): SoftwareKind(layouts_on(POOLED, serves=False), ("expert_parallel", "expert_parallel_int8")),
    (POOL, ProductCase): SoftwareKind((DEVICES,), ("tensor_parallel", "sglang"), ", or a mesh, as chip=wse2"),
    (POOL, ExpertsCase): SoftwareKind((DEVICES,), ("tensor_parallel", "sglang")),
    (POOL, ElementwiseCase): SoftwareKind((DEVICES,), ("tensor_parallel", "sglang")),
    (POOL, AttentionCase): SoftwareKind((DEVICES,), ("tensor_parallel", "sglang")),
    (POOL, CollectiveCase): SoftwareKind((DEVICES,), ("tensor_parallel", "sglang")),
    (WAFER, ProductCase): SoftwareKind((PRODUCT,), ("product", "product_dojo")),
    (TILES, ProductCase): SoftwareKind((SUMMA, PRODUCT), ("summa", "product")),
    (TILES, CollectiveCase): SoftwareKind((COLLECTIVE,), ("collective",)),
    (TILES, AttentionCase): SoftwareKind((ATTENTION,), ("attention",)),
    (DIES, CollectiveCase): SoftwareKind((DIE_COLLECTIVE,), ("die_collective",)),
    (POOLED, CollectiveCase): SoftwareKind((DIE_COLLECTIVE,), ("die_collective",)),
    (POOL, ServingLoad): SoftwareKind(layouts_on(POOL, serves=True), ("serving", "sglang_serving")),
    (WAFER, ServingLoad): SoftwareKind(
        layouts_on(WAFER, serves=True),
        ("waferllm_serving", "waferllm_dojo_serving"),
    ),
    (TILES, ServingLoad): SoftwareKind(
        layouts_on(TILES, serves=True),
        (
            "flat_serving",
            "npu_serving",
            "npu_serving_prefetch",
            "npu_serving_t10",
            "npu_serving_waferllm",
            "npu_serving_wsc_llm",
        ),
    ),
    (DIES, ServingLoad): SoftwareKind(layouts_on(DIES, serves=True), ("flat_dies_serving",)),
    (POOLED, ServingLoad): SoftwareKind(
        layouts_on(POOLED, serves=True), ("expert_parallel_serving", "expert_parallel_int8_serving")
    ),
    (MEMORY, MemoryStreamCase): SoftwareKind((STREAM,), ("stream",)),
    (TILES, MemoryStreamCase): SoftwareKind((STREAM,), ("stream",)),
    (NETWORK, NocTrafficCase): SoftwareKind((TRAFFIC,), ("traffic",)),
}
"""By machines and kinds of case."""

SPECULATING_SOFTWARE = (DEVICES, WHOLE_CHIP, MANY_DIES, POOLED_DIES, SERVED_DEVICES, SERVED_DIES, SERVED_POOLED_DIES)
"""Software that checks guessed tokens in decode."""

WHERE: dict[type, str] = {
    BatchCase: "chip=npu_dse",
    ProductCase: "chip=wse2",
    ExpertsCase: "chip=h100",
    ElementwiseCase: "chip=h100",
    MemoryStreamCase: "chip=hbm3",
    NocTrafficCase: "chip=mesh8",
    CollectiveCase: "chip=tile32",
    AttentionCase: "chip=tile32",
    ServingLoad: "chip=npu_dse",
}
"""A chip for each kind of case."""


PLURALS: dict[type, str] = {
    BatchCase: "models",
    ProductCase: "products",
    ExpertsCase: "experts",
    ElementwiseCase: "operators",
    MemoryStreamCase: "streams of memory requests",
    NocTrafficCase: "traffic patterns",
    CollectiveCase: "collectives",
    AttentionCase: "attention",
    ServingLoad: "served requests",
}
"""What each kind of case is called in messages, counted."""


WORKLOAD_NAMES: Dict[type, str] = {
    AttentionCase: "attention",
    BatchCase: "static",
    CollectiveCase: "collective",
    ElementwiseCase: "elementwise",
    ExpertsCase: "experts",
    MemoryStreamCase: "stream",
    NocTrafficCase: "traffic",
    ServingLoad: "serving",
}
"""Names of workloads by their kind of case; a product has the name of its kernel."""


def case_type_name(case: type) -> str:
    """Plural name of a type of case in messages.

    >>> case_type_name(NocTrafficCase), case_type_name(ServingLoad)
    ('traffic patterns', 'served requests')
    """
    return PLURALS[case]


def case_type_of(workload: Dict[str, Any]) -> type:
    """Type of case that the fields of a workload set describe."""
    return next((case for field, case in CASE_TYPES.items() if workload.get(field) is not None), BatchCase)


def is_for_other_machines(mapping: str, machine: str, case: type) -> bool:
    """Whether a shipped mapping supports a type of case on other machines only.

    >>> (
    ...     is_for_other_machines("product", POOL, ProductCase),
    ...     is_for_other_machines("product", WAFER, ProductCase),
    ...     is_for_other_machines("own", POOL, ProductCase),
    ... )
    (True, False, False)
    """
    machines = {
        machine_name for (machine_name, asked_for), kind in KINDS.items() if asked_for is case and mapping in kind.mappings
    }
    return bool(machines) and machine not in machines


def workload_name(workload: Dict[str, Any]) -> str:
    """Name of a workload in a chip's ``mapping_NAME`` setting, as in conf/workload."""
    case = case_type_of(workload)
    if case is ProductCase:
        return str(workload.get("kernel"))
    return WORKLOAD_NAMES[case]

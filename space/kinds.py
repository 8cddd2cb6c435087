"""What there is a mapping for: which one goes with a chip and with what is asked of it."""

from typing import NamedTuple

from space.chip import Chip, MeshChip, TileChip
from space.mapping import CollectiveMapping, Mapping, MeshMapping, ProductMapping, TileMapping
from space.workload import Case, Collective, Product


class Kind(NamedTuple):
    """A mapping, and in words why it is this one and which to choose on the command line."""

    mapping: type
    why: str
    choices: str


CHIPS = (Chip, MeshChip, TileChip)
"""Kinds of chips."""

KINDS: dict[tuple[type, type], Kind] = {
    (Chip, Case): Kind(Mapping, "the chip is a die with a cache", "tensor_parallel or sglang, or a mesh, as chip=wse2"),
    (MeshChip, Case): Kind(MeshMapping, "the chip is a mesh of cores", "waferllm, t10 or ladder"),
    (TileChip, Case): Kind(TileMapping, "the chip is a mesh of tiles", "npu, npu_t10, npu_waferllm or npu_wsc_llm"),
    (Chip, Product): Kind(Mapping, "the chip is a die with a cache", "tensor_parallel or sglang, or a mesh, as chip=wse2"),
    (MeshChip, Product): Kind(ProductMapping, "the workload is a product by itself", "product"),
    (TileChip, Collective): Kind(CollectiveMapping, "the workload is a collective by itself", "collective"),
}
"""By kinds of chip and of case."""

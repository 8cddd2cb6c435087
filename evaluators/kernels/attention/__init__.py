"""Dataflows of attention on groups of tiles, by name; they differ in collectives and in overlap.

flash2      FlashAttention-2: every tile for itself, one thing after the other
flash3      FlashAttention-3: two row blocks in flight on every tile
flash_split FlashDecoding, FlashMLA: as flash2, with keys split into parts that are items of their own; partial outputs go
            through main memory in FP32, and a merge adds them up (`split_kv_merge`)
flat_seq    FlatAttention on groups, collectives in software, one message after the other (FlatSC)
flat_tree   by trees (FlatTC)
flat_hw     in the network (FlatHC)
flat_async  in the network, two heads in flight (FlatAsync)
flat_rows   in the network, two blocks of queries in flight that share keys and values, where there are two; else as flat_async

All are `dataflow.attention_program`, then `split_kv_merge.merge_program`, and `attention_cost`; operands and results are in
`operand_blocks`, shapes in `attention_shape`, and candidate tilings in `tiling_candidates`. Installed packages add a `Dataflow`
by an entry point of the group dse.dataflow.
"""

from dse.evaluators.kernels.attention.dataflow import Dataflow
from dse.space.errors import choose_option
from dse.space.registry import Registry

SHIPPED = {
    "flash2": Dataflow("hardware", 1, grouped=False),
    "flash3": Dataflow("hardware", 2, grouped=False),
    "flash_split": Dataflow("hardware", 1, grouped=False, split=True),
    "flat_seq": Dataflow("sequential", 1, grouped=True),
    "flat_tree": Dataflow("tree", 1, grouped=True),
    "flat_hw": Dataflow("hardware", 1, grouped=True),
    "flat_async": Dataflow("hardware", 2, grouped=True),
    "flat_rows": Dataflow("hardware", 2, grouped=True, paired=True),
}

ATTENTION: Registry[Dataflow] = Registry("dse.dataflow", SHIPPED)


def find_dataflow(name: str) -> Dataflow:
    """Return the attention dataflow of an option of `mapping.dataflow`."""
    return choose_option(ATTENTION, name, "mapping.dataflow")

"""Data movement between layouts and regions of a mesh, by name.

Each module has `cost` and `build_program`.
"""

from types import ModuleType

from dse.evaluators.kernels.data_movement import columns_to_rows as turn
from dse.evaluators.kernels.data_movement import expert_dispatch as dispatch
from dse.evaluators.kernels.data_movement import region_transfer as transfer
from dse.evaluators.kernels.data_movement import relayout as reshuffle

MOVE: dict[str, ModuleType] = {"transfer": transfer, "reshuffle": reshuffle, "dispatch": dispatch, "turn": turn}

"""What moves between layouts and regions of a mesh, by name. Each module has `cost` and `steps`."""

from types import ModuleType

from dse.evaluators.kernels.move import dispatch, reshuffle, transfer, turn

MOVE: dict[str, ModuleType] = {"transfer": transfer, "reshuffle": reshuffle, "dispatch": dispatch, "turn": turn}

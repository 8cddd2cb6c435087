"""Families of designs that the study searches.

Each has a machine, a model, a space, loads, and the fidelity that the analytical model is compared with.
"""

from typing import NamedTuple

from dse.commands.notebook_api import find_study
from dse.evaluators.calls.submesh import SUBMESH_MARK, parse_fidelity
from dse.execution.study import Study

STUDY = "what_closed_misses"

LOADS = ("workload.batch=[1,64]", "workload.prompt=[64,1024]", "workload.output=[16]")
"""Loads of most families: four cases, of one request and of many, with short and with long prompts."""

ON_DIES = ("workload.batch=[64,512]", "workload.prompt=[64,1024]", "workload.output=[16]")
"""Loads of many dies, which have at least a request each."""

FEW = ("workload.batch=[1,16]", "workload.prompt=[256]", "workload.output=[4]")
"""Loads that cores are simulated with cycle by cycle, and memories burst by burst."""

SHORT = ("workload.batch=[1,16]", "workload.prompt=[64]", "workload.output=[4]")
"""Loads that tiles and wafers are simulated with cycle by cycle."""

NPU = ("chip=npu64", "mapping=npu_gap", "space=gap_npu")
TILES = (
    "chip=tile32",
    "chip.mesh.rows=8",
    "chip.mesh.cols=8",
    "chip.hbm.channels=8",
    "mapping=flat_prefetch",
    "space=gap_tiles",
)
DIES = (
    *("chip=wafer64", "chip.mesh.rows=8", "chip.mesh.cols=8", "chip.hbm.channels=8", "mapping=flat_dies", "space=gap_dies"),
    *("chip.dies.rows=4", "chip.dies.cols=4", "model=deepseek_v2_lite"),
)
NODES = ("chip=h800_ep", "chip.dies.rows=4", "mapping=expert_parallel", "space=gap_nodes", "model=deepseek_v2_lite")
CACHES = (
    *("chip=h100", "+memory@chip.hbm.banks=hbm3", "chip.hbm.banks.stacks=5", "mapping=tensor_parallel", "space=gap_caches"),
    *("stack=ideal", "inference_engine=none", "model=llama3_8b"),
)
WAFER = ("chip=wse2", "mapping=waferllm", "space=gap_wafer", "model=llama3_8b")


class DesignFamily(NamedTuple):
    """Designs of one kind of machine under some loads, and the fidelity that they are simulated at.

    Attributes:
        name: text for tables.
        fidelity: the higher one; with a submesh where whole models are simulated on one.
        overrides: of the study: machine, mapping, space, model and loads.
    """

    name: str
    fidelity: str
    overrides: tuple[str, ...]

    @property
    def analytical(self) -> str:
        """Fidelity of the analytical model, on the same submesh."""
        side = parse_fidelity(self.fidelity)[1]
        return f"analytical{SUBMESH_MARK}{side}" if side else "analytical"

    def study(self, *more: str) -> Study:
        """The study's space and workload of this family, with further overrides."""
        return find_study(STUDY, *self.overrides, *more)


def _skewed(model: str) -> tuple[str, ...]:
    """Overrides of a load whose tokens prefer some experts, drawn once."""
    return (f"+model.{model}.experts.skew=1", "workload.expert_load=sampled")


FAMILIES = tuple(
    DesignFamily(name, fidelity, overrides)
    for name, fidelity, overrides in (
        ("NPU cores", "events", (*NPU, "model=qwen3_1b7", *LOADS)),
        ("NPU cores, cycle by cycle", "cycles", (*NPU, "model=qwen3_1b7", *FEW)),
        ("NPU cores with experts", "events", (*NPU, "model=deepseek_v2_lite", *LOADS)),
        ("tiles", "events", (*TILES, "model=qwen3_1b7", *LOADS)),
        ("tiles, cycle by cycle", "cycles@8", (*TILES, "model=qwen3_1b7", *SHORT)),
        ("tiles with experts", "events", (*TILES, "model=deepseek_v2_lite", *LOADS)),
        ("wafer's cores", "events@8", (*WAFER, *LOADS)),
        ("wafer's cores, cycle by cycle", "cycles@8", (*WAFER, *SHORT)),
        ("dies of tiles", "events", (*DIES, *ON_DIES)),
        ("dies of tiles, skewed experts", "events", (*DIES, *ON_DIES, *_skewed("deepseek_v2_lite"))),
        ("nodes of dies", "events", (*NODES, *ON_DIES)),
        ("nodes of dies, skewed experts", "events", (*NODES, *ON_DIES, *_skewed("deepseek_v2_lite"))),
        ("dies with a cache", "events", (*CACHES, *LOADS)),
        ("dies with a cache, burst by burst", "cycles", (*CACHES, *FEW)),
    )
)
"""All families, by the machines that whole models are simulated on."""

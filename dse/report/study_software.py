"""Software of each chip of a study: constants with their sources, and what was chosen by name."""

from collections.abc import Iterator

from dse.config.record_parser import ConstantSource
from dse.execution.study import Study
from dse.space.design import Design
from dse.space.multi_chip_space import CHIP_KNOB
from dse.space.workload import Workload


def list_study_software(study: Study) -> Iterator[tuple[list[ConstantSource], dict[str, str], Design, Workload, set[str]]]:
    """Sources, chosen names, base design, workload and moved leaves of each chip of a study."""
    for chosen, space in study.question.space.base_spaces:
        name = str(chosen.get(CHIP_KNOB, ""))
        choices = (study.config["chips"][name] if chosen else study.config)["choices"]
        own = [source for source in study.question.sources if not chosen or source.address.startswith(f"{name}: ")]
        moved = {address for targets in space.targets.values() for address in targets}
        names = {"chip": str(choices.get("chip", "")), "stack": str(choices.get("stack", ""))}
        yield own, names, space.base, study.question.workload, moved

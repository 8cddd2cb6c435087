"""``--to`` of ``dse capacity`` and ``dse evaluate``: files that start the deployment of an answer."""

from collections.abc import Sequence
from pathlib import Path

from rich.markup import escape

from dse.analysis.capacity import ChipCapacity
from dse.analysis.deployment_files import build_deployment_files
from dse.config.compose import compose
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.workload import WorkloadCase
from dse.terminal.atomic_files import write_atomically
from dse.terminal.progress import say


def write_capacity_deployments(sides: Sequence[ChipCapacity], target: str, folder: Path) -> None:
    """Write the files of the best deployment of each chip that has one.

    Args:
        sides: chips of the answer.
        target: what is deployed on.
        folder: of the files; with several chips, each has a folder of its own there.

    Raises:
        DesignError: no chip has a deployment, or as of `build_deployment_files`.
    """
    deployed_sides = [side for side in sides if side.best is not None]
    if not deployed_sides:
        raise DesignError(f"--to {target}: no deployment to write; {sides[0].chip}: {sides[0].why}")
    for side in deployed_sides:
        assert side.best is not None
        rate = f"{side.best.rate:.4g} {'users' if side.load.requests.users else 'requests/s'}"
        title = f"{side.load.model.name} on {side.devices} x {side.chip}: {rate} by {side.best.candidate.text}"
        own = folder / side.chip if len(sides) > 1 else folder
        _write_files(target, side.best.candidate.design, side.load, title, own, _vendor_of(side.chip), side.cells)


def write_design_deployment(
    target: str, design: Design, case: WorkloadCase, chip: str, vendor: str | None, folder: Path
) -> None:
    """Write the files of one design.

    Args:
        target: what is deployed on.
        design: of the deployment.
        case: what it serves.
        chip: its name.
        vendor: of the chip; None if the chip names none.
        folder: of the files.

    Raises:
        DesignError: as of `build_deployment_files`.
    """
    _write_files(target, design, case, f"{case.label} on {chip}", folder, vendor or "")


def _write_files(
    target: str, design: Design, case: WorkloadCase, title: str, folder: Path, vendor: str, cells: int = 1
) -> None:
    files = build_deployment_files(target, design, case, title, vendor=vendor, cells=cells)
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        with write_atomically(folder / name) as place:
            place.write_text(text, encoding="utf-8")
        if name.endswith(".sh"):
            (folder / name).chmod(0o755)
        say(f"wrote   {escape(str(folder / name))}")


def _vendor_of(chip: str) -> str:
    """Vendor of a chip by its preset; empty string if it names none."""
    return str(compose([f"chip={chip}"])["chip"].get("vendor") or "")

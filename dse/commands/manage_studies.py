"""``dse delete`` and ``dse rename``: stored results of a study, with the folder of its report."""

import shutil
import sys
from pathlib import Path

from rich.markup import escape

from dse.commands.command_record import list_run_names
from dse.config.overrides import find_study_paths
from dse.execution.study import stored_location
from dse.space.errors import DesignError, suggest_nearest
from dse.store.database import store_exists
from dse.store.study_rows import delete_study_rows, hold_study, list_studies, rename_study_rows
from dse.terminal.progress import say

RUNS = Path("runs")


def delete_study(name: str, *, yes: bool) -> int:
    """Delete the stored results of a study and its folder in ./runs; its definition stays.

    Args:
        name: of the study.
        yes: whether it is done without asking.

    Returns:
        0, or 1 if the answer was no.

    Raises:
        DesignError: no such results, a run holds the study, or nobody can be asked.
    """
    folder, place = _find_results(name)
    inside = _is_inside(place, folder)
    with hold_study(place, name) as engine:
        others = [other for other in list_studies(engine) if other != name]
        if inside and others:
            raise DesignError(f"delete: {folder} has results of {', '.join(others)} too; delete or rename these first")
        what = f"{folder} ({_folder_size(folder) / 1e6:,.1f} MB)" + ("" if inside else f", and rows of {name} in its store")
        if not _is_confirmed(f"delete {what}?", "delete", yes=yes):
            say("nothing deleted")
            return 1
        if not inside:
            delete_study_rows(engine, name)
    shutil.rmtree(folder)
    kept = find_study_paths().get(name)
    say(f"deleted {escape(str(folder))}" + (f"; the definition stays: {escape(_shown(kept))}" if kept else ""))
    return 0


def rename_study(name: str, new: str, *, yes: bool) -> int:
    """Give the stored results of a study another name, and move its folder in ./runs.

    Args:
        name: of the study.
        new: its name from now on.
        yes: whether it is done without asking.

    Returns:
        0, or 1 if the answer was no.

    Raises:
        DesignError: no such results, the new name is taken or is no name, a run holds the study, or nobody can be asked.
    """
    folder, place = _find_results(name)
    target = RUNS / new
    if not new.replace("-", "_").isidentifier():
        raise DesignError(f"rename: {new!r} is no name of a study; use letters, digits, _ and -, a letter first")
    if new in find_study_paths():
        raise DesignError(f"rename: {new!r} is the name of a study with a definition; choose another name")
    if target.exists():
        raise DesignError(f"rename: {target} exists; choose another name, or delete it first: dse delete {new}")
    inside = _is_inside(place, folder)
    with hold_study(place, name) as engine:
        if not _is_confirmed(f"rename {folder} to {target}?", "rename", yes=yes):
            say("nothing renamed")
            return 1
        rename_study_rows(engine, name, new)
    try:
        folder.rename(target)
    except OSError:
        with hold_study(place, new) as engine:
            rename_study_rows(engine, new, name)
        raise
    for lock in target.glob(f"*.{name}.lock"):
        lock.unlink(missing_ok=True)
    where = f"{target}" if inside else f"{target}, and in its store"
    say(f"renamed {escape(name)} to {escape(new)} in {escape(where)}; dse report {escape(new)} writes the report again")
    return 0


def _find_results(name: str) -> tuple[Path, str]:
    """Folder and store of a study that ran here."""
    folder = RUNS / name
    place = stored_location(folder) if name in list_run_names() else None
    if place is None or not store_exists(place):
        known = list_run_names()
        hint = suggest_nearest(name, known) if known else "nothing ran in this folder"
        raise DesignError(f"study {name!r} has no results in {RUNS}; {hint}")
    return folder, place


def _is_inside(place: str, folder: Path) -> bool:
    """Whether a store is a file of a folder."""
    return "://" not in place and Path(place).resolve().is_relative_to(folder.resolve())


def _folder_size(folder: Path) -> int:
    """Bytes of the files of a folder. [B]"""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _is_confirmed(question: str, command: str, *, yes: bool) -> bool:
    """Whether the user agrees; asked on a terminal unless it was typed."""
    if yes:
        return True
    if not (sys.stdin and sys.stdin.isatty() and sys.stderr.isatty()):
        raise DesignError(f"{command}: no terminal to ask on; add --yes to {question.rstrip('?')}")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _shown(path: Path) -> str:
    """A path from the working folder where it is below it."""
    return (
        str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else f"{path.parent.name}/{path.name}, which ships"
    )

"""What the tools do: arguments of an assistant in, a published document out.

What an assistant says is data, as that of any stranger: no flags, no code (`dse.config.strangers`), no file outside of the
folder, as a message may quote a line of it, and no other place of results than ./runs.
"""

import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from dse.config.strangers import CONF, UNLESS, as_data
from dse.space.errors import DesignError
from dse.terminal.progress import Told
from dse.tools import checked

GROUPS = ("chip", "model", "mapping", "workload", "stack", "part", "space", "search", "verify", "workers")
"""Groups of options that overrides choose from."""

PLACES = ("store", "run_dir")
"""Fields that say where results are."""

OUTSIDE = re.compile(r"""(^|[\s\[{(,:=|'"])(/+\w|~|(\.\./*)+(\w|$))|/\.\.(/|$)""")
"""In a value: a path from the root, a URL, or a path that goes up."""


def answer(name: str, arguments: Mapping[str, Any], told: Told) -> dict[str, Any]:
    """What a tool answers: the document of `dse.tools.TOOLS`.

    Args:
        name: of the tool.
        arguments: as the assistant gave them.
        told: takes how far it is.

    Raises:
        DesignError: an argument, or what it asks for, is wrong.
    """
    given = checked(name, arguments)
    words = _words(name, given.get("overrides", []))
    study, design = given.get("study", ""), given.get("design", "")
    if study and (Path(study).name != study or study.startswith(".")):
        raise DesignError(f"{name}: study: {study!r} is no name of a study; the tool list says which there are")
    if name == "run":
        return _run(study, words, told)
    does: dict[str, Callable[[], dict[str, Any]]] = {
        "list": _list,
        "evaluate": lambda: _evaluate(study, design, words),
        "front": lambda: _front(study),
        "why": lambda: _why(study, design, words),
        "whynot": lambda: _whynot(study, design, words),
    }
    return does[name]()


def options() -> dict[str, Any]:
    """What overrides can choose: names by group, fidelities, and metrics with their definitions."""
    from dse.evaluators import FIDELITIES, METRICS

    chosen = {group: sorted(path.stem for path in (CONF / group).glob("*.yaml") if path.stem != "usual") for group in GROUPS}
    metrics = {name: {"unit": one.unit, "better": one.better, "definition": one.definition} for name, one in METRICS.items()}
    return {**chosen, "fidelity": list(FIDELITIES), "metrics": metrics}


def _words(name: str, overrides: list[str]) -> list[str]:
    """Overrides as data, none of which says where results are, whose machines work, or a file that is not in the folder."""
    try:
        words = as_data(overrides, name)
    except DesignError as error:
        raise DesignError(f"{str(error).removesuffix(UNLESS)}; refused from an assistant") from None
    for word in words:
        root = word.lstrip("+~").partition("=")[0].partition(".")[0].strip()
        if root in PLACES:
            raise DesignError(
                f"{name}: {word!r}: results are in ./runs of the folder of the server; name=NEW puts them beside others"
            )
        if root == "ray":
            raise DesignError(
                f"{name}: {word!r}: a cluster is for people to choose; leave it out, and Ray starts on this machine"
            )
        value = word.partition("=")[2]
        if any(OUTSIDE.search(read) or _leads_outside(read) for read in (value, value.replace("\\", ""))):
            raise DesignError(f"{name}: {word!r}: names a place outside of the folder of the server; bring the file there")
    return words


def _leads_outside(value: str) -> bool:
    """Whether a path in a value is, or is below, a link to a place outside of the folder of the server or of a study in it."""
    here = Path.cwd().resolve()
    folders = [Path(), *(path.parent for path in Path("studies").glob("*/study.yaml"))]
    names = filter(None, re.split(r"[\[\]{},:'\"\s]+", value))
    paths = [folder / name for name in {value, *names} for folder in folders]
    return any(os.path.lexists(path) and not path.resolve().is_relative_to(here) for path in paths)


def _list() -> dict[str, Any]:
    from dse.commands.show import listed
    from dse.config.overrides import studies

    return listed(studies())


def _evaluate(study: str, design: str, words: list[str]) -> dict[str, Any]:
    from dse.commands.api import evaluate, load
    from dse.commands.sheet import record

    if not study and not design:
        return record(evaluate(words))
    if not study or not design or words:
        raise DesignError("evaluate: say study and design, the id of a design of the study; or overrides alone")
    return record(load(study).evaluate(design))


def _front(study: str) -> dict[str, Any]:
    from dse.commands.explained import front_of

    return front_of(study)


def _why(study: str, design: str, words: list[str]) -> dict[str, Any]:
    from dse.commands.explained import explained, of_study
    from dse.commands.why_text import why_record

    if design and not study:
        raise DesignError(f"why: {design!r} is a design of a study; say which study")
    if study and not design and not words:
        raise DesignError("why: say which design of the study, by design or by overrides; the tool front has its front")
    return why_record(of_study(study, design, words) if study else explained(words))


def _whynot(study: str, design: str, words: list[str]) -> dict[str, Any]:
    from dse.commands.explained import why_not_of
    from dse.commands.whynot_text import why_not_record

    return why_not_record(why_not_of(study, words, which=design))


def _run(study: str, words: list[str], told: Told) -> dict[str, Any]:
    """Runs a study as ``dse run`` does, in ./runs of this folder; then reads its front as ``dse explain`` does."""
    from dse.commands.api import load
    from dse.commands.loop import run_study
    from dse.config.compose import compose, folder_of
    from dse.report.page import place
    from dse.running.study import study as built
    from dse.schemas import stamped
    from dse.space.shown import masked

    config = compose([f"study={study}", *words])
    asked = built(config, folder_of(config))
    if asked.run_dir.parent != Path("runs").resolve():
        raise DesignError(f"run: {asked.name!r} would write to {asked.run_dir}, outside of ./runs; choose a plain name=NEW")
    if run_study(asked, told):
        raise DesignError("run: stopped; what is finished is stored, and the same call goes on from there")
    (*_, last) = load(asked.name).runs()
    data = {
        "name": asked.name,
        "state": last["state"],
        "results": masked(asked.store),
        "report": str(place([asked])),
        "front": _front(asked.name),
    }
    return stamped("run", data)

"""From what is typed to why: a design by overrides, or one of a study by its id or overrides."""

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from dse.commands.api import Loaded, load, words
from dse.commands.why_text import front_record, front_text, why_record, why_text
from dse.commands.whynot_text import why_not_record, why_not_text
from dse.config.build import question
from dse.config.compose import compose, folder_of, hydra_job
from dse.config.effects import note, without_effect
from dse.config.said import unasked
from dse.config.strangers import TRUST
from dse.evaluators.account.metrics import METRICS
from dse.report.cannot import distinct_designs, remarks
from dse.report.kept import BINDING, Kept
from dse.report.kept import explained as explained_by_page
from dse.running.frame import DESIGN, ordered
from dse.running.study import bounds, objectives
from dse.space.chips import CHIP
from dse.space.errors import DesignError
from dse.terminal.json_text import json_text
from dse.why.moves import Goal, Point, around, points, steps_from, values_at
from dse.why.shadow import MOST
from dse.why.sifted import known_rows
from dse.why.stored_design import stored_design
from dse.why.typed_design import following, not_in, of_study_not_in, typed_design
from dse.why.why import SECONDS, Why, front_points, front_prices, front_shares, goal_of, named, of_front, of_stored
from dse.why.whynot import WhyNot

USUAL = ("throughput_per_system_mm2", "ttft", "tpot", "energy_per_token", "price_per_mtoken")
"""What a design is explained by where nobody says objectives: those of these that it has."""

ALONE = ("latency", "bandwidth", "packet_latency", "utilisation", "energy")
"""The same of kernels, streams and traffic by themselves."""

PLACE = ("store=", "run_dir=")
"""Overrides that say where results are, not what a design is."""


def explained(*overrides: str | Sequence[str], trust: bool = False, seconds: float = SECONDS) -> Why:
    """Why a design is as it is, that overrides name as for `dse.evaluate`.

    Its knobs are those of its configuration's space (``space=NAME``); without any, the leaves of its chip that somebody
    chooses and those of its mapping. Its objectives are those of the configuration, else the usual ones.

    Raises:
        DesignError: naming the override that is wrong.
    """
    typed = words(overrides)
    return of_config(compose(typed, trust=trust), " ".join(typed), seconds=seconds)


def of_config(config: Mapping[str, Any], name: str, *, seconds: float = SECONDS) -> Why:
    """Why the design of a composed configuration is as it is.

    Args:
        config: as `dse.config.compose.compose` returns it.
        name: what was typed.
        seconds: what its steps may take.

    Raises:
        DesignError: several chips, or a value that is wrong.
    """
    if len(config.get("chips") or ()) > 1:
        raise DesignError(
            f"explain: one design of {', '.join(config['chips'])}: say whose, as in chip={next(iter(config['chips']))}"
        )
    asked = question(dict(config), folder_of(config), fewer=bool(config.get("chips")))
    ((_, space),) = asked.space.each
    if space.knobs:
        space = following(asked.base, space, config["overrides"])
    else:
        space = around(
            asked.base, lambda address, word: _refused(config, address, word), lambda design: unasked(design, asked.workload)
        )
    base = space.base
    goal = Goal(asked.workload, {}, bounds(config["constraints"]), config["fidelity"], defined=asked.defined)
    (here,) = points([base], goal)
    assert here is not None
    wanted = objectives(config["objectives"]) if config["objectives"] else _usual(here)
    goal = replace(goal, objectives=wanted)
    name = name or "the design as it is configured"
    found = named(name, space, values_at(space, base), base, goal, steps_from(space), seconds=seconds)
    return replace(found, without_effect=without_effect("explain", asked, config, folder_of(config), base))


def of_study(name: str, which: str, *overrides: str | Sequence[str], trust: bool = False, seconds: float = SECONDS) -> Why:
    """Why a design of a study is as it is.

    Args:
        name: of a study that ran here.
        which: id of the design; "" where overrides name the design.
        overrides: what names it, and where results are (``store=URL``).
        trust: whether files that are not ours may run code.
        seconds: what its steps may take.

    Raises:
        DesignError: no such design, or the study has no results here.
    """
    loaded, typed = _loaded(name, words(overrides), trust=trust)
    part = loaded.part()
    asked, frame = part.study, part.frame
    if which:
        if typed:
            raise DesignError(f"--design: {which!r} names a design, and so do {' '.join(typed)}; give one of them")
        found = stored_design(asked, frame, part.screened, which)
        return of_stored(asked, frame, found, part.screened, seconds=seconds)
    own = typed_design(asked, typed, "explain", trust=trust)
    space, base = own.space, own.space.base
    rows = ordered(asked, frame)
    own_values = values_at(space, base)
    near = front_points(asked, rows)
    if own.chip:
        near = [(label, {k: v for k, v in at.items() if k != CHIP}, point) for label, at, point in near if at[CHIP] == own.chip]
    why = named(
        own.name,
        space,
        own_values,
        base,
        goal_of(asked),
        steps_from(space),
        front=near,
        stored=lambda here: known_rows(asked, rows, part.screened, [here], MOST),
        seconds=seconds,
    )
    return replace(why, without_effect=own.without_effect)


def front_of(name: str, *overrides: str, trust: bool = False) -> dict[str, Any]:
    """The front of a study that ran here, which knobs move it and what its constraints cost, as plain values.

    Args:
        name: of the study.
        overrides: where results are (``store=URL``).
        trust: whether files that are not ours may run code.

    Raises:
        DesignError: the study has no results here.
    """
    asked, members, spent, found, notes, distinct = _front(name, overrides, trust=trust)
    return front_record(asked, members, spent, found, notes, distinct)


def show_study(name: str, *overrides: str, trust: bool, as_json: bool) -> None:
    """Prints the front of a study, which knobs move it and what its constraints cost."""
    if as_json:
        print(json_text(front_of(name, *overrides, trust=trust), indent=1))
        return
    asked, members, spent, found, notes, _ = _front(name, overrides, trust=trust)
    front_text(asked, members, spent, found, notes)


def why_not_of(
    name: str, *overrides: str | Sequence[str], which: str = "", trust: bool = False, seconds: float = SECONDS
) -> WhyNot:
    """Where a design that overrides name stands in a study that ran here.

    Args:
        name: of the study.
        overrides: what names the design, over what the study starts from, and where results are (``store=URL``).
        which: id of a design of the study; "" where overrides name the design.
        trust: whether files that are not ours may run code.
        seconds: what the steps of the way to a better design may take.

    Raises:
        DesignError: it is asked something else than the study asks, or the study has no results here.
    """
    loaded, typed = _loaded(name, words(overrides), trust=trust)
    part = loaded.part()
    if not which:
        return not_in(loaded.study, part.frame, typed, trust=trust, seconds=seconds)
    if typed:
        raise DesignError(f"--design: {which!r} names a design, and so do {' '.join(typed)}; give one of them")
    found = stored_design(part.study, part.frame, part.screened, which)
    return of_study_not_in(part.study, part.frame, found, seconds=seconds)


def whynot(names: Sequence[str], typed: Sequence[str], which: str, *, as_json: bool, trust: bool) -> None:
    """What ``dse whynot`` does.

    Args:
        names: of the study.
        typed: overrides.
        which: id of a design of the study.

    Raises:
        DesignError: no study, or several.
    """
    if len(names) != 1:
        raise DesignError(f"whynot: takes the name of one study, as dse list shows it; got {' '.join(names) or 'nothing'}")
    found = why_not_of(names[0], *typed, which=which, trust=trust)
    note(found.without_effect)
    if as_json:
        print(json_text(why_not_record(found), indent=1))
    else:
        why_not_text(found)


def explain(names: Sequence[str], typed: Sequence[str], which: str, *, as_json: bool, trust: bool) -> None:
    """What ``dse explain`` does: one design, of a study or by itself, or the front of a study.

    Args:
        names: of the study, if one is named.
        typed: overrides.
        which: design of the study.

    Raises:
        DesignError: several studies, or a design without a study.
    """
    if len(names) > 1:
        raise DesignError(f"explain: takes the name of one study, as dse list shows it; got {' '.join(names)}")
    if which and not names:
        raise DesignError(
            f"explain --design: {which!r} is a design of a study; name it, as in dse explain quickstart --design {which}"
        )
    if names and not which and all(word.startswith(PLACE) for word in typed):
        show_study(names[0], *typed, trust=trust, as_json=as_json)
        return

    def show(found: Why) -> None:
        note(found.without_effect)
        if as_json:
            print(json_text(why_record(found), indent=1))
        else:
            why_text(found)

    if names:
        show(of_study(names[0], which, *typed, trust=trust))
    else:
        line = [*typed, *([TRUST] if trust else [])]
        hydra_job(line, lambda config: show(of_config(config, " ".join(typed))))


def _front(name: str, overrides: Sequence[str], *, trust: bool) -> tuple[Any, ...]:
    """What is said of a study's front, as `front_record` takes it."""
    part = _loaded(name, overrides, trust=trust)[0].part()
    asked, frame = part.study, part.frame
    members, found = of_front(asked, frame), front_prices(asked, frame, part.screened)
    notes, page = remarks(asked, frame, part.screened), Kept(asked)

    def known(key: str, by: str) -> Any:
        return (page.find(explained_by_page(key, by)) or {}).get(BINDING)

    spent = front_shares(asked, members, known=known)
    ids = ordered(asked, frame)[DESIGN]
    return asked, members, spent, found, notes, [str(ids.iloc[place]) for place in distinct_designs(asked, frame)[0]]


def _loaded(name: str, typed: Sequence[str], *, trust: bool) -> tuple[Loaded, list[str]]:
    """A study, found where overrides say, and the other overrides."""
    places = [word for word in typed if word.startswith(PLACE)]
    return load(name, *places, trust=trust), [word for word in typed if word not in places]


def _usual(here: Point) -> dict[str, str]:
    known = [name for name in USUAL if name in here.metrics] or [name for name in ALONE if name in here.metrics]
    return {name: METRICS[name].better for name in known}


def _refused(config: Mapping[str, Any], address: str, word: str) -> bool:
    """Whether a word of the chip would be refused where it was typed."""
    changed: Any = deepcopy(dict(config))
    node = changed
    *path, last = address.split(".")
    for part in path:
        node = node[part]
    node[last] = {**node[last], "value": word} if isinstance(node.get(last), dict) else word
    try:
        question(changed, Path.cwd())
    except DesignError:
        return True
    return False

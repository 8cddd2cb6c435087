"""Old addresses work at every door as the new ones do, alone but not beside them."""

import os
import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.accuracy.validate import COLUMNS, compare_file, simulate_metric
from dse.config.compose import compose, find_study_folder
from dse.config.question import build_question
from dse.search.samplers import Ask
from dse.space.aliases import RENAMED_ADDRESSES, Alias
from dse.space.design import Design
from dse.space.errors import DesignError
from dse.space.fields import field_at, leaf_at
from dse.space.knobs import Space
from dse.space.machines import MACHINES, POOL, TILES, machine_of
from dse.space.units import format_quantity
from dse.store.store import DesignResult, ResultContext, Store
from tests.marks import slow_if

OF_MACHINES = tuple(alias for alias in RENAMED_ADDRESSES if alias.machine)
"""Aliases that hold on some machines alone; others are in test_renamed_options.py."""

CHIPS = {POOL: "a100", TILES: "npu64"}
"""A chip of each machine that has old addresses."""

each = pytest.mark.parametrize("alias", OF_MACHINES, ids=lambda alias: alias.old)
SORTS = {(alias.machine, alias.old.count(".")): alias for alias in reversed(OF_MACHINES)}
some_of_each_sort = pytest.mark.parametrize(
    "alias", OF_MACHINES if os.environ.get("ALIASES") == "all" else SORTS.values(), ids=lambda alias: alias.old
)
"""One of each machine and depth, at doors that read files; ALIASES=all for all."""

SHORT = ("model=qwen3_1b7", "workload.batch=[1]", "workload.prompt=64", "workload.output=4")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own").mkdir()
    return tmp_path


def design(*words: str) -> Design:
    config = compose(words)
    question = build_question(config, find_study_folder(config))
    # devices that are open follow what is typed: a value of links asks for two, one of a chip's file does not
    return design(*words, "mapping.both.tp=8") if question.devices else question.base


def space(*words: str) -> Space:
    config = compose(words)
    return build_question(config, find_study_folder(config)).space


def chip(alias: Alias) -> str:
    return f"chip={CHIPS[alias.machine]}"


def some(alias: Alias, value: float = 0.375) -> str:
    """A value of the leaf, with its unit."""
    unit = field_at(design(chip(alias)), alias.new).metadata["unit"]
    return f"{value}" if unit == "1" else f"{value} {unit}"


def nested(address: str, value: str) -> str:
    """A line of YAML that says something at an address."""
    *path, last = address.split(".")
    return "".join(f"{name}: {{" for name in path) + f"{last}: {value}" + "}" * len(path) + "\n"


def write(path: str, text: str) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(text)


def changed(alias: Alias) -> Design:
    """The design by the new address, which is not the chip's own."""
    found_design = design(chip(alias), f"{alias.new}={some(alias)}")
    assert leaf_at(found_design, alias.new) == 0.375
    return found_design


@each
def test_old_addresses_are_of_machines_that_have_the_new_ones(alias: Alias) -> None:
    base = design(chip(alias))
    assert machine_of(base.chip) == alias.machine in MACHINES
    assert leaf_at(base, alias.new) != 0.375
    with pytest.raises((DesignError, AttributeError)):
        leaf_at(base, alias.old)


@pytest.mark.sampled
@each
def test_an_override_by_the_old_address(alias: Alias) -> None:
    *_, last = alias.old.split(".")
    group = alias.old.rpartition(".")[0]
    ways = [f"{alias.old}={some(alias)}", f"+{alias.old}={some(alias)}", f"{alias.old}.value={some(alias)}"]
    ways += [f"{group}={{{last}: {some(alias)}}}"] if "." in group else []
    assert [design(chip(alias), way) for way in ways] == [changed(alias)] * len(ways)


@slow_if(lambda alias: alias.old != "chip.core.achieved")
@some_of_each_sort
def test_a_study_a_chip_and_a_chip_of_ones_own(alias: Alias) -> None:
    preset, line = CHIPS[alias.machine], nested(alias.old, some(alias))
    write("studies/mine/study.yaml", f"defaults: [override /chip: {preset}]\n{line}")
    write("own/chip/mine.yaml", f"defaults: [{preset}, _self_]\n{nested(alias.old.removeprefix('chip.'), some(alias))}")
    for way in (["study=mine"], ["-cd=own", "chip=mine"]):
        assert design(*way) == changed(alias)
        other = design(chip(alias), f"{alias.new}={some(alias, 0.25)}")
        assert [design(*way, f"{name}={some(alias, 0.25)}") for name in alias[:2]] == [other, other]


@pytest.mark.sampled
@some_of_each_sort
def test_knobs_by_the_old_address(alias: Alias) -> None:
    unit = some(alias).partition(" ")[2]
    sweep = f"tag({unit}, choice(0.25, 0.5))" if unit else "choice(0.25, 0.5)"
    value = f"0.5 {unit}".strip()
    when = f"{{sweep: 'choice(2, 4)', when: {{{alias.old}: ['{value}']}}}}"
    write("own/space/old.yaml", nested(alias.old, f'"{sweep}"') + nested("mapping.prefill.tp", when))
    (new, old) = (space(chip(alias), f"+space.{name}='{sweep}'") for name in (alias.new, alias.old))
    assert old.knobs == new.knobs
    of_file = space(chip(alias), "-cd=own", "space=old")
    assert of_file.knobs[0] == new.knobs[0]
    assert of_file.knobs[1].when == ((alias.new, (new.knobs[0].values[1],)),)
    narrow = sweep.replace("0.5", "0.75")
    for name in alias[:2]:
        assert space(chip(alias), "-cd=own", "space=old", f"space.{name}='{narrow}'").knobs[0] == of_file.knobs[0].__class__(
            alias.new, (0.25, 0.75)
        )


@some_of_each_sort
def test_pictures_of_the_old_address(alias: Alias) -> None:
    write("studies/mine/study.yaml", f"report: {{lines: [{{x: {alias.old}, y: tpot}}], bars: [{{x: {alias.old}}}]}}\n")
    report = compose(["study=mine", chip(alias)])["report"]
    assert (report["lines"], report["bars"]) == ([{"x": alias.new, "y": "tpot"}], [{"x": alias.new}])


@pytest.mark.sampled
@each
def test_published_figures_of_the_old_address(alias: Alias) -> None:
    bounded = field_at(design(chip(alias)), alias.new).metadata["high"] == 1 or " " in some(alias)
    value = some(alias) if bounded else "1e5"  # so much that it binds
    overrides = (chip(alias), *SHORT, f"{alias.old}={value}")
    words = " ".join(f"'{word}'" for word in overrides)
    write("old.csv", f'{",".join(COLUMNS)}\na,here,"{words}",,latency,1,s,report,\n')
    new = simulate_metric((*overrides[:-1], f"{alias.new}={value}"), "latency", strict=False)
    (row,) = compare_file(Path("old.csv"))
    assert new is not None
    assert row.simulated == new != simulate_metric(overrides[:-1], "latency", strict=False)


@pytest.mark.sampled
@some_of_each_sort
def test_two_names_of_one_address_are_refused(alias: Alias) -> None:
    both = f"{alias.old} and {alias.new}"
    typed = [f"{name}={some(alias)}" for name in alias[:2]]
    with pytest.raises(DesignError, match=both):
        design(chip(alias), *typed)
    for place, name in enumerate(alias[:2]):  # one of them in a group of fields
        group, _, last = name.rpartition(".")
        with pytest.raises(DesignError, match=both if "." in group else "a group of fields"):
            design(chip(alias), typed[1 - place], f"{group}={{{last}: {some(alias)}}}")
    write("studies/mine/study.yaml", f"defaults: [override /chip: {CHIPS[alias.machine]}]\n" + _both(alias))
    with pytest.raises(DesignError, match=both):
        design("study=mine")


def _both(alias: Alias) -> str:
    import yaml

    nested_values: dict[str, Any] = {}
    for name in alias[:2]:
        *path, last = name.split(".")
        group = nested_values
        for part in path:
            group = group.setdefault(part, {})
        group[last] = some(alias)
    return yaml.safe_dump(nested_values)


@each
def test_stored_rows_have_the_new_address(alias: Alias, folder: Path) -> None:
    base, context = design(chip(alias)), ResultContext("w" * 32, "analytical", 1)
    leaves = {f"chip.{part}.x": 1.0 for part in MACHINES[alias.machine].needs} | {alias.old: 2.0}
    ask, result = Ask(0, {alias.old: 0.5}, {}), DesignResult("d" * 32, {alias.old: 0.5}, {"tpot": 1.0})
    with closing(Store(str(folder / "s.sqlite"))) as store:
        store.begin("s", dict.fromkeys(leaves, ""), {})
        import orjson

        store.append("s", context, ("b", orjson.dumps(leaves).decode()), [(ask, result.key)], [result])
        assert leaf_at(base, alias.new) is not None
        assert store.results(context)[result.key].values == {alias.new: 0.5}
        assert [ask.values for ask, _ in store.asks("s", 1)] == [{alias.new: 0.5}]
        assert store.bases(context)[result.key] == {alias.new if name == alias.old else name: leaves[name] for name in leaves}


@pytest.mark.sampled
@settings(deadline=None, max_examples=12)
@given(st.sampled_from(OF_MACHINES), st.floats(0.001, 1.0))
def test_any_value_by_the_old_and_by_the_new_address_is_one_design(alias: Alias, value: float) -> None:
    unit = field_at(BASES[alias.machine], alias.new).metadata["unit"]
    text = format_quantity(value, unit, 17) if unit != "1" else repr(value)
    old, new = (design(chip(alias), f"{name}={text}") for name in alias[:2])
    assert old == new


BASES = {machine: design(f"chip={name}") for machine, name in CHIPS.items()}


@each
def test_a_study_that_was_begun_by_the_old_address_goes_on(alias: Alias, folder: Path) -> None:
    leaves = [f"chip.{part}.x" for part in MACHINES[alias.machine].needs]
    text = dict.fromkeys(leaves, "1") | {alias.old: "2", f"space.{alias.old}.unit": "s"}
    with closing(Store(str(folder / "s.sqlite"))) as store:
        store.begin("s", text, {})
        assert store.identity("s") == dict.fromkeys(leaves, "1") | {alias.new: "2", f"space.{alias.new}.unit": "s"}


def test_the_manual_has_every_address_that_was_renamed() -> None:
    manual = (Path(__file__).parents[2] / "docs/guide/renamed_settings.md").read_text()
    for alias in OF_MACHINES:
        assert re.search(rf"^\| `{re.escape(alias.old)}` \| `{re.escape(alias.new)}`", manual, re.MULTILINE), alias

"""Settings of every machine that were renamed: old addresses work as the new ones do, and content keys are what they were."""

import json
import os
import re
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from dse.commands.evaluate_output import INFEASIBLE_STATUS
from dse.config.compose import compose, find_study_folder
from dse.config.question import Question, build_question
from dse.config.renamed_addresses import SAID
from dse.execution.study import workload_key
from dse.space.aliases import CHOICES, EVERY, Alias, current_address, new_address_by_old, renamed_fields
from dse.space.design import design_key
from dse.space.errors import DesignError
from dse.space.fields import field_at, iterate_leaves, leaf_at, match_addresses_or_none
from dse.space.machines import MACHINES
from dse.store.store import ResultContext, Store

HERE = Path(__file__).parent

CHIPS = ("npu64", "tile32", "wse2_hbm", "h800_ep", "a100", "wafer64", "mesh8", "mi300x")
"""Chips that have every renamed leaf between them."""

LEAVES = [alias for alias in renamed_fields() if "chip." in alias.old and alias.old.count(".") > 1 and alias.machine == EVERY]


@cache
def asked(*words: str) -> Question:
    config = compose(words)
    return build_question(config, find_study_folder(config))


@cache
def chip_with(address: str) -> tuple[str, ...]:
    """A chip that has a leaf, with what it is asked."""
    for chip in CHIPS:
        words = (f"chip={chip}", *(["workload=traffic"] if chip == "mesh8" else []))
        if match_addresses_or_none([leaf for leaf, _, _ in iterate_leaves(asked(*words).base)], address):
            return words
    raise AssertionError(f"no chip has {address}")


def other_value(address: str) -> str:
    """A value that the leaf does not have, as it is typed."""
    base = asked(*chip_with(address)).base
    value, spec = leaf_at(base, address), field_at(base, address)
    if isinstance(value, bool):
        return str(not value).lower()
    if isinstance(value, str):
        return next(option for option in spec.metadata["options"] if option != value)
    if "whole" in spec.metadata:
        return f"{int(value) + 1}" if spec.metadata["unit"] == "1" else f"{int(value) + 1} {spec.metadata['unit']}"
    new = value * 0.9 if value * 0.9 >= max(spec.metadata["low"], 1e-30) else value * 1.1 or 0.5
    return f"{new!r}" if spec.metadata["unit"] == "1" else f"{new!r} {spec.metadata['unit']}"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(SAID, "")
    return tmp_path


def present_addresses(kind: type, prefix: str) -> Iterator[str]:
    from dse.space.aliases import _fields

    for spec, inner, name in _fields(kind):
        yield prefix + name
        if inner is not None:
            yield from present_addresses(inner, prefix if "inline" in spec.metadata else f"{prefix}{name}.")


def test_no_old_address_is_a_present_one_and_none_has_two_new_ones() -> None:
    from dse.space.chip import Chip
    from dse.space.mapping import Mapping

    present = {*present_addresses(Chip, "chip."), *present_addresses(Mapping, "mapping.")}
    every = new_address_by_old(EVERY)
    assert not [old for old in every if old in present]
    pairs = {(alias.old, alias.new) for alias in renamed_fields()}
    assert len({old for old, _ in pairs}) == len(pairs)
    assert not [new for new in every.values() if current_address(new, EVERY) != new]


@pytest.mark.parametrize("machine", MACHINES)
def test_no_setting_has_two_old_addresses_at_once(machine: str) -> None:
    """A setting may have moved from a chip to a mapping; in each of them it had one name before."""
    former: dict[tuple[str, str], list[str]] = {}
    for old, new in new_address_by_old(machine).items():
        former.setdefault((new, old.partition(".")[0]), []).append(old)
    assert not [several for several in former.values() if len(several) > 1]


@pytest.mark.parametrize("alias", LEAVES, ids=lambda alias: alias.old)
def test_the_old_address_makes_the_design_of_the_new_one(alias: Alias) -> None:
    chip, value = chip_with(alias.new), other_value(alias.new)
    old, new = (asked(*chip, f"++{address}={value}") for address in (alias.old, alias.new))
    assert old.base == new.base
    assert design_key(old.base) == design_key(new.base) != design_key(asked(*chip).base)


@pytest.mark.parametrize("alias", LEAVES[::7], ids=lambda alias: alias.old)
def test_both_names_are_an_error(alias: Alias, here: Path) -> None:
    chip, value = chip_with(alias.new), other_value(alias.new)
    both = f"{re.escape(alias.old)}.*{re.escape(alias.new)}|{re.escape(alias.new)}.*{re.escape(alias.old)}"
    with pytest.raises(DesignError, match=both):
        compose([*chip, f"++{alias.old}={value}", f"++{alias.new}={value}"])
    group, _, old = alias.old.rpartition(".")
    new = alias.new.rpartition(".")[2]
    (here / "own/chip").mkdir(parents=True)
    path = group.split(".")[1:]
    text = f"{old}: '{value}', {new}: '{value}'"
    for name in reversed(path):
        text = f"{name}: {{{text}}}"
    (here / "own/chip/mine.yaml").write_text(f"defaults: [{chip[0].removeprefix('chip=')}, _self_]\n{text}\n")
    with pytest.raises(DesignError, match=both):
        compose(["-cd=own", "chip=mine"])


def test_a_group_and_what_is_in_it_by_old_names(here: Path) -> None:
    new = asked("chip=h800_ep", "chip.nodes.exchange_start=3 us", "chip.nodes.latency=4 us").base
    assert new != asked("chip=h800_ep").base
    for words in (
        ["chip.boxes.start=3 us", "chip.boxes.latency=4 us"],
        ["chip.boxes={start: 3 us, latency: 4 us}"],
        ["+chip.boxes={start: 3 us, latency: 4 us}"],
        ["chip={boxes: {start: 3 us, latency: 4 us}}"],
    ):
        assert asked("chip=h800_ep", *words).base == new, words


def test_a_chip_of_ones_own_by_old_names(here: Path) -> None:
    (here / "own/chip").mkdir(parents=True)
    lines = ["defaults: [npu64, _self_]", "hbm: {place: north, crowded: 0.8}", "noc: {hop: 3 cycle, ramp: '${chip.noc.hop}'}"]
    (here / "own/chip/mine.yaml").write_text("\n".join(lines))
    own = ("chip.hbm.channel_side=north", "+chip.hbm.contended_efficiency=0.8", "chip.noc.hop_cycles=3 cycle")
    new = asked("chip=npu64", *own, "chip.noc.ramp_cycles=3 cycle").base
    assert asked("-cd=own", "chip=mine").base == new
    for name in ("chip.noc.ramp", "chip.noc.ramp_cycles"):  # what is typed counts
        typed = asked("-cd=own", "chip=mine", f"{name}=4 cycle").base
        assert leaf_at(typed, "chip.noc.ramp_cycles") == 4
    (here / "own/chip/above.yaml").write_text("defaults: [mine, _self_]\nhbm: {channel_side: south}\n")
    assert leaf_at(asked("-cd=own", "chip=above").base, "chip.hbm.channel_side") == "south"


def test_knobs_conditions_ties_points_and_pictures_by_old_names(here: Path) -> None:
    old = """
defaults: [override /chip: npu64]
space:
  chip:
    hbm: {place: "choice(south, north)", crowded: "choice(0.8, 0.9)"}
    noc: {hop: {sweep: "tag(cycle, choice(1, 2))", when: {chip.hbm.place: [north]}}}
    tile: {sync: {tied: "chip.noc.hop * 10"}}
report: {lines: [{x: chip.hbm.crowded, y: tpot}], points: {mine: {chip.hbm.place: north, chip.hbm.crowded: 0.8}}}
"""
    new = old
    for before, now in (
        ("place", "channel_side"),
        ("crowded", "contended_efficiency"),
        ("hop", "hop_cycles"),
        ("sync", "collective_sync"),
    ):
        new = re.sub(rf"\b{before}\b", now, new)
    for name, text in (("old", old), ("new", new)):
        (here / "studies" / name).mkdir(parents=True)
        (here / "studies" / name / "study.yaml").write_text(text)
    before, now = asked("study=old"), asked("study=new")
    assert [knob.address for knob in before.space.knobs] == [knob.address for knob in now.space.knobs]
    assert (before.space.knobs, before.space.key) == (now.space.knobs, now.space.key)
    reports = [compose([f"study={name}"])["report"] for name in ("old", "new")]
    assert reports[0] == reports[1]
    typed = asked("study=old", "space.chip.hbm.crowded='choice(0.7)'", "+space.chip.hbm.latency='tag(ns, choice(100, 120))'")
    assert leaf_at(typed.space.design_at({"chip.hbm.contended_efficiency": 0.7}), "chip.hbm.contended_efficiency") == 0.7


@pytest.mark.usefixtures("flat_stack")  # of the study of six chips, some of which read no stack that words could say
def test_stored_keys_are_what_they_were() -> None:
    """Those of the last version before settings were renamed, of chips, workloads and studies.

    Words say what was usual then and is no longer: flat stacks, no engine, no formats of embeddings, and first_token=decode.
    """
    for words, keys in json.loads((HERE / "stored_keys.json").read_text()).items():
        question = asked(*words.split())
        facts = [part.base.chip.published is not None for _, part in question.space.base_spaces]  # they came later
        if any(facts) and len(facts) > 1:
            assert workload_key(question.workload) == keys["workload"], words
            continue
        if any(facts):
            question = asked(*words.split(), "chip.published=null")
        space = question.space
        assert (space.key, workload_key(question.workload)) == (keys["space"], keys["workload"]), words
        if "base" in keys:
            assert design_key(question.base) == keys["base"], words
        if "rows" in keys:
            columns = space.sample(np.random.default_rng(1).random((4, len(space.knobs))))
            assert space.keys(columns) == keys["rows"], words
            assert [space.key_at(space.row(columns, row)) for row in range(4)] == keys["at"], words


def test_a_store_of_old_addresses_is_read_and_its_study_goes_on(here: Path) -> None:
    with closing(sqlite3.connect(here / "s.sqlite")) as connection:
        connection.executescript((HERE / "stores/renamed.sql").read_text())
        ((workload, fidelity, physics),) = connection.execute("SELECT DISTINCT workload, fidelity, physics FROM results")
    with closing(Store(str(here / "s.sqlite"), create=False)) as store:
        results = store.results(ResultContext(workload, fidelity, physics))
        asks = store.asks("renamed", physics)
        identity = store.identity("renamed")
        bases = store.bases(ResultContext(workload, fidelity, physics))
    names = {"chip.hbm.channel_side", "chip.hbm.contended_efficiency", "chip.noc.hop_cycles"}
    assert {name for result in results.values() for name in result.values} == names
    assert {name for ask, _ in asks for name in (*ask.values, *ask.marks.get("params", ()))} == names
    assert identity is not None
    assert identity["space.chip.tile.collective_sync.tied"] == "chip.noc.hop_cycles * 10"
    assert identity["space.chip.noc.hop_cycles.when.chip.hbm.channel_side"] == "['north']"
    write_study(here)
    space = asked("study=renamed").space
    assert {space.key_at(result.values) for result in results.values()} == set(results)
    assert all(set(leaves) == {address for address, _, _ in iterate_leaves(space.design_at({}))} for leaves in bases.values())


def write_study(folder: Path) -> None:
    """The study of `stores/renamed.sql`, as its user wrote it."""
    (folder / "studies/renamed").mkdir(parents=True)
    (folder / "studies/renamed/study.yaml").write_text(
        """
defaults: [override /chip: npu64, override /model: qwen3_1b7, _self_]
workload: {batch: [1], prompt: 64, output: 4}
space:
  chip:
    hbm: {place: "choice(south, north)", crowded: "choice(0.8, 0.9)"}
    noc: {hop: {sweep: "tag(cycle, choice(1, 2))", when: {chip.hbm.place: [north]}}}
    tile: {sync: {tied: "chip.noc.hop * 10"}}
objectives: {tpot: min, system_price: min}
"""
    )


def test_parts_by_their_old_names() -> None:
    new = asked("chip=h200", "+part@chip=node_nvlink4").base
    assert asked("chip=h200", "+part@chip=box_nvlink4").base == new
    assert all((HERE.parents[1] / f"conf/part/{name}.yaml").is_file() for name in CHOICES["part"].values())


def test_the_notice_is_printed_once_a_process_tree_and_never_in_json(here: Path) -> None:
    words = ["evaluate", "--json", "chip=npu64", "model=qwen3_1b7", "workload.batch=[1]", "chip.hbm.place=north"]
    found = subprocess.run([sys.executable, "-m", "dse", *words], capture_output=True, text=True, cwd=here)
    assert found.returncode == INFEASIBLE_STATUS  # main memory at one side alone does not hold the model
    assert found.stderr.count("chip.hbm.place is now chip.hbm.channel_side") == 1
    assert "chip.hbm.place" not in json.dumps({k: v for k, v in json.loads(found.stdout).items() if k != "overrides"})
    said = {**os.environ, SAID: "chip.hbm.place"}
    again = subprocess.run([sys.executable, "-m", "dse", *words], capture_output=True, text=True, cwd=here, env=said)
    assert "is now" not in again.stderr
    assert again.stdout == found.stdout


def test_the_manual_has_every_address_that_was_renamed() -> None:
    manual = (HERE.parents[1] / "docs/guide/renamed_settings.md").read_text()
    for alias in renamed_fields():
        if not re.search(r"\.(prefill|decode)\.", alias.old):
            assert re.search(rf"^\| `{re.escape(alias.old)}` \| `{re.escape(alias.new)}`", manual, re.MULTILINE), alias

"""The reference: every kind is listed in lines of 80 characters, and its pages have all that there is, and nothing else."""

import json
import re
from collections.abc import Callable
from pathlib import Path

import jsonschema
import pytest

from dse.config.compose import compose
from dse.config.record_parser import USUAL_CHOICES, parse_record
from dse.documents import build_schema
from dse.evaluators.accounting.metrics import SHIPPED
from dse.reference.catalogue import KINDS, find_nearest, list_entries
from dse.reference.chips import read_chip
from dse.reference.fidelities import LINES
from dse.reference.knobs import REGISTERED
from dse.reference.measure import measure, metrics_by_workload, read_measurements
from dse.reference.option_meanings import list_options, table_keys, used_keys
from dse.reference.pages import BOTH, COMMAND, PHASES
from dse.reference.presets import preset_names
from dse.reference.write import DOCS, find_stale_pages, write_pages
from dse.space.chip import Chip
from dse.space.errors import DesignError
from dse.space.fields import iterate_leaves

ROOT = DOCS.parent
PAGES = [*sorted((DOCS / "reference").glob("*.md")), DOCS / "settings.md"]
WITHOUT_KIND = {"mapping/parts"}
"""Folders of presets that only other presets choose."""
SET_BY_THE_CHOICE = {"chip.hbm.usable_ratio"}
"""Leaves of a chip's file that composing leaves out for an inference engine that does not read them."""

Typed = Callable[..., tuple[int, str, str]]


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_listed_in_lines_of_80_characters(kind: str, typed: Typed) -> None:
    code, out, err = typed("list", kind)
    assert (code, err) == (0, "")
    names = [entry.name for entry in list_entries(kind)]
    lines = out.splitlines()
    assert lines[-1].startswith(f"{len(names)} {kind}")
    assert {line.split()[0] for line in lines if line} >= set(names)
    assert max(map(len, lines[:-1])) <= 80


@pytest.mark.parametrize("kind", KINDS)
def test_a_whole_name_prints_its_entry_and_its_document(kind: str, typed: Typed) -> None:
    entry = list_entries(kind)[-1]
    code, out, _ = typed("list", kind, entry.name)
    assert code == 0
    assert out.startswith(f"{entry.name}: ")
    assert all(name in out for name, fact in entry.facts.items() if fact.value not in (None, "", "-"))
    code, out, _ = typed("list", kind, entry.name, "--json")
    document = json.loads(out)
    jsonschema.validate(document, build_schema("reference"))
    assert [found["name"] for found in document["entries"]] == [entry.name]


def test_a_word_keeps_entries_that_have_it(typed: Typed) -> None:
    _, out, _ = typed("list", "chips", "GDDR6")
    assert {"l40s", "n150"} <= {line.split()[0] for line in out.splitlines() if line}
    assert "h100" not in out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("chips", "h1000"), "dse: list chips: no entry has 'h1000'; did you mean 'h100'"),
        (("knobs", "chip.l2.sze"), "dse: list knobs: no entry has 'chip.l2.sze'; did you mean 'chip.l2.size'"),
        (("metrics", "throughputt"), "dse: list metrics: no entry has 'throughputt'; did you mean 'throughput'"),
        (("chps",), "dse: list: no kind 'chps'; did you mean 'chips'?"),
    ],
)
def test_a_mistyped_word_has_the_nearest_names(words: tuple[str, ...], line: str, typed: Typed) -> None:
    code, out, err = typed("list", *words)
    assert (code, out) == (2, "")
    assert err.startswith(line)
    assert err.count("\n") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_the_nearest_name_of_a_name_is_the_name(kind: str) -> None:
    name = list_entries(kind)[0].name
    assert find_nearest(kind, name).startswith(f"did you mean {name!r}")


def test_list_alone_names_the_kinds(typed: Typed) -> None:
    _, out, _ = typed("list")
    _, found, text = " ".join(out.split()).rpartition("dse list KIND")
    assert found
    assert all(kind in text for kind in KINDS)


def test_no_kind_is_listed_without_its_name() -> None:
    with pytest.raises(DesignError, match="no kind 'chip'; did you mean 'chips'"):
        list_entries("chip")


def test_pages_are_those_of_records_and_presets() -> None:
    assert not find_stale_pages()  # python -m dse.reference.write


def test_a_page_that_is_stale_missing_or_left_over_names_the_command(tmp_path: Path) -> None:
    write_pages(tmp_path)
    assert not find_stale_pages(tmp_path)
    (tmp_path / "reference/chips.md").unlink()
    (tmp_path / "reference/metrics.md").write_text("# Metrics\n")
    (tmp_path / "reference/old.md").write_text("# Old\n")
    stale = find_stale_pages(tmp_path)
    assert sorted(line.partition(":")[0] for line in stale) == [
        f"docs/reference/{name}.md" for name in ("chips", "metrics", "old")
    ]
    assert all(line.endswith(COMMAND) for line in stale)
    write_pages(tmp_path)
    assert not find_stale_pages(tmp_path)


def names_on_pages() -> set[str]:
    """Names in the first column of all tables of the pages, and options with their fields."""
    names = set()
    for path in PAGES:
        field = ""
        for line in path.read_text().splitlines():
            if heading := re.fullmatch(r"## `([^`]+)`", line):
                field = heading[1]
            if row := re.match(r"\| `([^`]+)` \|", line):
                names.add(f"{field}={row[1]}" if path.name == "options.md" else row[1])
    return names


def with_both(names: set[str]) -> set[str]:
    """Names with those of both phases in the place of a phase's."""
    phases = {name for name in names if name.startswith(PHASES)}
    return (names - phases) | {name.replace(phase, BOTH, 1) for name in phases for phase in PHASES if name.startswith(phase)}


def test_the_pages_have_all_names_and_no_others() -> None:
    known = {entry.name for kind in KINDS for entry in list_entries(kind)}
    assert with_both(names_on_pages()) == with_both(known), COMMAND


def test_every_folder_of_presets_has_a_kind() -> None:
    conf = ROOT / "conf"
    groups = {path.parent.relative_to(conf).as_posix() for path in conf.glob("*/**/*.yaml")} - WITHOUT_KIND
    known = {entry.name for kind in KINDS for entry in list_entries(kind)}
    for group in groups:
        beside = f"{group.removeprefix('library/')}/" if group.startswith("library/") else ""
        assert {f"{beside}{name}" for name in preset_names(group)} <= known, group


@pytest.mark.parametrize("kind", KINDS)
def test_every_entry_has_a_line(kind: str) -> None:
    assert not [entry.name for entry in list_entries(kind) if len(entry.line) < 4]


def test_every_option_has_a_meaning_and_no_meaning_is_left_over() -> None:
    assert not [f"{option.field}={option.name}" for option in list_options() if not option.meaning]
    assert not table_keys() - used_keys()


def test_options_that_a_registry_has_are_those_of_settings_that_lead_to_them() -> None:
    fields = {option.field for option in list_options()}
    assert fields >= REGISTERED


@pytest.mark.parametrize("name", ["h200", "h800_ep", "l40s", "npu64", "tpu_v7x", "wafer64_nvlink", "wse2_hbm", "hbm2_legacy"])
def test_a_chip_of_the_reference_is_that_of_a_command(name: str) -> None:
    composed = {key: value for key, value in compose([f"chip={name}"])["chip"].items() if key not in USUAL_CHOICES}
    leaves, own = (
        {address: value for address, value, _ in iterate_leaves(chip, "chip.") if address not in SET_BY_THE_CHOICE}
        for chip in (parse_record(Chip, composed, "chip", []), read_chip(name)[0])
    )
    assert own == leaves


def test_every_metric_has_a_workload_and_every_fidelity_a_cost() -> None:
    assert set(metrics_by_workload()) == set(SHIPPED)  # python -m dse.reference.measure
    assert {row.fidelity for row in read_measurements() if row.seconds is not None} == set(LINES)


@pytest.mark.slow
def test_the_lowest_fidelities_give_the_metrics_that_the_reference_states() -> None:
    stated = {(row.overrides, row.fidelity): row.metrics for row in read_measurements()}
    for row in measure(lowest_only=True):
        assert row.metrics == stated[row.overrides, row.fidelity], "python -m dse.reference.measure"

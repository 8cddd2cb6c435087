"""docs/glossary.md names settings, options, metrics, commands and folders that exist; older words lead to its terms."""

import ast
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import pytest
import yaml

from dse.analysis.capacity import QUERY_OPTIONS
from dse.commands.cli_options import COMMANDS
from dse.config.record_parser import field_types, record_type
from dse.evaluators.accounting.metrics import METRICS
from dse.evaluators.evaluation import fidelity_names
from dse.space.chip import Chip
from dse.space.design import UnlikePools
from dse.space.mapping import Mapping
from tests.house.sources import ROOT

GLOSSARY = ROOT / "docs/glossary.md"
RECORDS = {"chip": Chip, "mapping": Mapping, "pools": UnlikePools}
FOLDERS = ROOT / "docs/architecture/folders.md"


def rows() -> list[list[str]]:
    """Cells of every row of the glossary's tables, headings left out."""
    lines = [line for line in GLOSSARY.read_text().splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [row for row in cells if row[0] not in ("term", "older word", "---")]


TERMS = {row[0]: row for row in rows() if len(row) == 4}
OLDER = {row[0]: row[1] for row in rows() if len(row) == 2}
SEEN = sorted({span for row in TERMS.values() for span in re.findall(r"`([^`]+)`", row[3])})


def kinds(spec: Any, hint: Any) -> Iterator[type]:
    """Record classes that a field's values may have."""
    yield from spec.metadata.get("parts", ())
    if (kind := record_type(hint)) is not None:
        yield kind


def in_record(kind: type, path: list[str]) -> bool:
    """Whether some record below a class has a field at a path."""
    if not path:
        return True
    if not is_dataclass(kind):
        return False
    specs = {spec.name: spec for spec in fields(kind)}
    if path[0] not in specs:
        return False
    below = [*kinds(specs[path[0]], field_types(kind)[path[0]])]
    return len(path) == 1 or any(in_record(inner, path[1:]) for inner in below)


def in_files(group: str, path: list[str]) -> bool:
    """Whether a preset of a group, or the file of all groups, sets a field at a path."""
    files = [*sorted((ROOT / "conf" / group).glob("*.yaml"))]
    configs = [yaml.safe_load(file.read_text()) for file in files]
    configs.append((yaml.safe_load((ROOT / "conf/config.yaml").read_text()) or {}).get(group))
    return any(isinstance(config, dict) and path[0] in config for config in configs)


def exists(span: str) -> bool:
    """Whether a code span of the glossary's last column names something of the program."""
    if span.startswith("dse "):
        return span.split()[1] in COMMANDS
    key, equals, value = span.partition("=")
    if equals:
        return value in fidelity_names() if key == "fidelity" else (ROOT / f"conf/{key}/{value}.yaml").is_file()
    group, *path = span.split(".")
    if "/" not in span and path:
        return in_record(RECORDS[group], path) if group in RECORDS else in_files(group, path)
    return span in METRICS or span in QUERY_OPTIONS or (ROOT / span).exists()


@pytest.mark.parametrize("span", SEEN)
def test_what_the_glossary_names_exists(span: str) -> None:
    assert exists(span)


@pytest.mark.parametrize(
    "span", ["chip.l3", "mapping.decode.nothing", "workload.nothing", "no_metric", "fidelity=guess", "dse no"]
)
def test_what_does_not_exist_is_noticed(span: str) -> None:
    assert not exists(span)


def test_every_term_stands_once_with_a_meaning_and_a_unit() -> None:
    terms = [row[0] for row in rows() if len(row) == 4]
    assert len(terms) == len({term.casefold() for term in terms})
    assert all(row[1].endswith(".") and row[2] for row in TERMS.values())


@pytest.mark.parametrize("older", OLDER)
def test_older_words_lead_to_terms(older: str) -> None:
    known = {part.strip().casefold() for term in TERMS for part in (term, *re.split(r",| \(", term))}
    assert {part.strip().casefold() for part in re.split(r", or |, | or ", OLDER[older])} <= known


def test_the_glossary_is_in_the_readme_and_in_the_site() -> None:
    assert "docs/glossary.md" in (ROOT / "README.md").read_text()
    assert "docs/glossary.md" in (ROOT / "docs/mkdocs.yml").read_text()


@pytest.mark.parametrize("folder", ["evaluators", "dse"])
def test_the_architecture_lists_the_folders_that_there_are(folder: str) -> None:
    part = FOLDERS.read_text().partition(f"## `{folder}/`\n")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `(\w+)/` \|", part, re.MULTILINE)
    packages = {path.parent.name for path in (ROOT / folder).glob("*/__init__.py") if not path.parent.is_symlink()}
    assert set(listed) == packages
    assert len(listed) == len(set(listed))


def test_replaced_words_are_not_terms() -> None:
    from tests.house.names import OLD_WORDS

    words = {word.casefold() for term in TERMS for word in re.split(r"\W+", term)}
    assert not words & set(OLD_WORDS)


def test_messages_are_read_where_users_see_them() -> None:
    from tests.house.names import message_texts

    source = """
def advice(rate):
    "Docstrings are no messages: played."
    return f"{rate} requests are played"

def refuse(name):
    raise DesignError(f"{name}: the reader has {name}")

HELP = Command("x", "played by the closed form")
SILENT = {"played": "played_by"}
"""
    texts = dict.fromkeys(text for node in ast.parse(source).body for text in message_texts(node))
    assert [*texts] == ["{} requests are played", "{}: the reader has {}", "played by the closed form"]

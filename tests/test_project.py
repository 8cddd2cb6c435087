"""What the project says of itself, in one place as in the other."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CITATION: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text())


@pytest.mark.parametrize("key", ["version", "license"])
def test_the_citation_says_what_the_package_says(key: str) -> None:
    assert CITATION[key] == PROJECT[key]


def test_the_citation_names_the_authors_and_the_place_of_the_package() -> None:
    named = {author["name"] for author in PROJECT["authors"]}
    assert ({author["name"] for author in CITATION["authors"]}, CITATION["url"]) == (named, PROJECT["urls"]["Homepage"])


def test_the_changelog_has_the_version() -> None:
    released = re.findall(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert released[0] == PROJECT["version"]


def test_every_dependency_has_a_lowest_version() -> None:
    assert not [line for line in PROJECT["dependencies"] if ">=" not in line]

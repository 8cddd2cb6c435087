"""The tutorials print what they say: each command is typed in order, and each figure of their prose is among what was printed.

Blocks of `text` quote lines of output; a figure is a number with a unit or a decimal point. Spaces and what
draws tables are passed over.
"""

import re
from pathlib import Path

import pytest

from tests.marks import slow_if
from tests.test_documents import ROOT, blocks, commands, typed

TUTORIALS = sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/tutorials").glob("*.md"))
FIGURE = re.compile(
    r"(?<![\w.\-/])\d[\d,]*(?:\.\d+)?(?:%| (?:token/s/mm2|requests/s|TB/s|GB/s|[kMG]B|m?s\b|mm2|W\b|token/s))|\d+\.\d+%?"
)


def plain(text: str) -> str:
    """A text without what draws tables, its words one space apart."""
    return " ".join(re.sub(r"[\u2500-\u257f]", " ", text).split())


def prose(document: str) -> str:
    """A document without its blocks, its code and its addresses of pages."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / document).read_text(), flags=re.MULTILINE | re.DOTALL)
    return plain(re.sub(r"`[^`]*`|\]\([^)]*\)", "", text))


@slow_if(lambda document: "serving_engineer" in document)
@pytest.mark.parametrize("document", TUTORIALS)
def test_a_tutorial_prints_what_it_says(document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "400")
    printed = ""
    for block in blocks(document):
        if block.language == "text":
            missing = [line for line in block.text.splitlines() if plain(line) not in plain(printed)]
            assert not missing, f"{block.place}: {missing}"
        elif block.file:
            path = tmp_path / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
            printed += block.text
        for words in commands(block.text) if block.language == "sh" else ():
            code, output = typed(words, monkeypatch)
            assert not code, f"dse {' '.join(words)}: {output}"
            printed += f"\n{' '.join(words)}\n{output}"
    figures = FIGURE.findall(prose(document))
    assert len(figures) > 10
    assert not [figure for figure in figures if figure not in plain(printed)]


def test_there_is_one_for_each_reader() -> None:
    assert TUTORIALS == ["docs/tutorials/chip_architect.md", "docs/tutorials/serving_engineer.md"]


def test_a_figure_is_found_in_prose() -> None:
    assert FIGURE.findall("at 2.5 ms, 15.54% or 64 MB, by 1,024 tokens of #2, 8 users") == ["2.5 ms", "15.54%", "64 MB"]

"""python -m tests.house.documents [PAGE...]       # prints how long sentences and stretches of each page of the documents are.

Counted is prose: paragraphs, list items and quotes. Fenced blocks, tables, headings, pictures and comments are left out.
A piece of inline code or a link is as many words as a reader sees; code counts as one word.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass

from tests.house.sources import ROOT

LEFT_OUT = re.compile(r"^```.*?^```$|<!--.*?-->|^\|[^\n]*$|^(?: {4}\S[^\n]*\n)+", re.MULTILINE | re.DOTALL)
"""Fenced and indented blocks, comments and lines of tables."""
HEADING = re.compile(r"^#{1,6} .*$", re.MULTILINE)
PARAGRAPHS = re.compile(r"\n\s*\n|^\s*(?:[-*]|\d+\.) +|^> ", re.MULTILINE)
SENTENCES = re.compile(r"(?<=[.!?])[)\"']*\s+(?=[A-Z`\"'(\[*_\d])")


@dataclass(frozen=True)
class Page:
    """The prose of one page in figures that say how hard it is to read.

    Attributes:
        words: words of prose, inline code as one word each
        mean: words of a sentence on average
        longest: words of the longest sentence
        stretch: most words of prose between two headings
        sentence: the longest sentence
    """

    words: int
    mean: float
    longest: int
    stretch: int
    sentence: str


def measure_page(text: str) -> Page:
    """The figures of a page's Markdown.

    >>> measure_page("# A title\\n\\nOne sentence here. Another one with `some code` in it.\\n").longest
    6
    """
    parts = [[*_sentences(part)] for part in HEADING.split(_prose(text))]
    sentences = [sentence for part in parts for sentence in part]
    longest = max(sentences, key=_words, default="")
    words = sum(map(_words, sentences))
    stretch = max(sum(map(_words, part)) for part in parts)
    return Page(words, words / max(1, len(sentences)), _words(longest), stretch, longest)


def pages() -> dict[str, Page]:
    """Figures of README.md, CONTRIBUTING.md and every page of docs/ that is written by hand, by path."""
    paths = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
    names = {path: path.relative_to(ROOT).as_posix() for path in paths}
    return {name: measure_page(path.read_text()) for path, name in names.items() if not name.startswith("docs/reference/")}


def _prose(text: str) -> str:
    """A page without what is no prose; code is one word, and a link its text."""
    text = re.sub(r"^!\[.*?\]\(.*?\)$", "", LEFT_OUT.sub("\n\n", text), flags=re.MULTILINE)
    text = re.sub(r"``[^`].*?``|`[^`]*`", "CODE", text, flags=re.DOTALL)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


def _sentences(text: str) -> Iterator[str]:
    for paragraph in PARAGRAPHS.split(text):
        for sentence in SENTENCES.split(" ".join(paragraph.split())):
            if _words(sentence):
                yield sentence


def _words(sentence: str) -> int:
    return len(re.findall(r"\S*\w\S*", sentence))


def print_table(only: list[str]) -> None:
    """A line a page, and its longest sentence where pages are named."""
    print(f"{'page':44}{'words':>7}{'mean':>7}{'longest':>9}{'stretch':>9}")
    found = {name: page for name, page in pages().items() if not only or any(word in name for word in only)}
    for name, page in found.items():
        print(f"{name:44}{page.words:7,}{page.mean:7.1f}{page.longest:9}{page.stretch:9,}")
        if only and page.longest > 25:
            text = (ROOT / name).read_text()
            long = (sentence for part in HEADING.split(_prose(text)) for sentence in _sentences(part) if _words(sentence) > 25)
            print(*(f"    {_words(sentence)}: {sentence}" for sentence in long), sep="\n")


if __name__ == "__main__":
    print_table(sys.argv[1:])

"""Pages of the documents have short sentences and many headings.

`python -m tests.house.documents PAGE` prints what to shorten.
"""

import pytest

from tests.house.documents import measure_page, pages

MEAN = 18.0
LONGEST = 25
STRETCH = 300
"""What a page may have: words of a sentence on average and at most, and words of prose between two headings."""

PAGES = pages()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_short_sentences_and_many_headings(name: str) -> None:
    page = PAGES[name]
    assert page.longest <= LONGEST, page.sentence
    assert page.mean <= MEAN
    assert page.stretch <= STRETCH


def test_code_tables_and_comments_are_no_prose() -> None:
    text = "# T\n\nTwo words.\n\n```sh\none two three four\n```\n| a b c d |\n<!-- five six seven eight -->\n"
    assert measure_page(text).words == 2


def test_a_list_item_is_a_sentence_and_code_a_word() -> None:
    page = measure_page("# T\n\nSee:\n\n- `dse run a b c` starts\n- [the page of it](x.md) says more\n\n## U\n\nIt ends.\n")
    assert (page.longest, page.stretch) == (6, 9)

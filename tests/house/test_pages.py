"""Pages of the documents have short sentences and many headings. Who makes a page easier to read writes its figures here."""

import pytest

from tests.house.documents import measure_page, pages

MEAN = 18.0
LONGEST = 25
STRETCH = 300
"""What a page may have: words of a sentence on average and at most, and words of prose between two headings."""

NOT_YET = {
    "docs/physics.md": (12.8, 41, 512),
}
"""Pages that are harder to read than that, with their mean, longest sentence and stretch. These may only fall."""

PAGES = pages()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_short_sentences_and_many_headings(name: str) -> None:
    page = PAGES[name]
    mean, longest, stretch = NOT_YET.get(name, (MEAN, LONGEST, STRETCH))
    assert page.longest <= longest, page.sentence
    assert page.mean <= mean
    assert page.stretch <= stretch


@pytest.mark.parametrize("name", NOT_YET)
def test_a_page_that_reads_easily_needs_no_figures_of_its_own(name: str) -> None:
    page = PAGES[name]
    assert page.longest > LONGEST or page.mean > MEAN or page.stretch > STRETCH, "remove it from NOT_YET"


def test_code_tables_and_comments_are_no_prose() -> None:
    text = "# T\n\nTwo words.\n\n```sh\none two three four\n```\n| a b c d |\n<!-- five six seven eight -->\n"
    assert measure_page(text).words == 2


def test_a_list_item_is_a_sentence_and_code_a_word() -> None:
    page = measure_page("# T\n\nSee:\n\n- `dse run a b c` starts\n- [the page of it](x.md) says more\n\n## U\n\nIt ends.\n")
    assert (page.longest, page.stretch) == (6, 9)

"""What people are shown: no passwords, and nothing that a terminal obeys."""

import unicodedata
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.space.errors import DesignError
from dse.space.safe_text import mask_passwords, mask_passwords_in, strip_control_codes

SECRET = st.text(min_size=8, max_size=20).map(lambda text: quote(f"<{text}>", safe="~/:"))


@settings(max_examples=40)
@given(SECRET, st.sampled_from(["store={}", "search.warm_start=[{},b]", "['{}', 'x']", "no store at {}: refused"]))
def test_no_password_of_a_url_is_shown(secret: str, text: str) -> None:
    for url in (f"postgresql://me:{secret}@host/db", f"postgresql+psycopg://me:{secret}@host:5432/db?x=1"):
        assert secret not in mask_passwords(text.format(url))
        assert "host" in mask_passwords(text.format(url))
    for key in ("password", "sslpassword", "token"):
        assert secret not in mask_passwords(text.format(f"postgresql://me@host/db?{key}={secret}&x=1"))


@pytest.mark.parametrize("password", ["open sesame", "a/b", "a:b", "a@b", "?", "'"])
def test_passwords_that_were_not_quoted_are_not_shown(password: str) -> None:
    assert mask_passwords(f"store=postgresql://me:{password}@host/db") == "store=postgresql://me:***@host/db"


@pytest.mark.parametrize(
    "text", ["sqlite:///runs/a.sqlite", "postgresql://host:5432/db", "file://a/b", "at 12:30, see x://y", "a@b"]
)
def test_what_has_no_password_is_shown_as_it_is(text: str) -> None:
    assert mask_passwords(text) == text


def test_every_text_of_a_value_is_masked() -> None:
    url, shown = "x://me:secret@host", "x://me:***@host"
    assert mask_passwords_in({"a": [url, {"b": (url, 1)}], url: None}) == {"a": [shown, {"b": [shown, 1]}], shown: None}


@given(st.text())
def test_a_terminal_obeys_nothing_that_is_shown(text: str) -> None:
    shown = strip_control_codes(text)
    assert not [letter for letter in shown if unicodedata.category(letter) in ("Cc", "Cs") and letter not in "\t\n"]
    assert strip_control_codes(shown) == shown
    plain = "".join(letter for letter in text if letter.isprintable())
    assert strip_control_codes(plain) == plain


@given(st.text())
def test_an_error_is_one_line_that_a_terminal_shows(text: str) -> None:
    error = str(DesignError(f"{text} postgresql://me:secret@host"))
    assert "\n" not in error
    assert "\x1b" not in error
    assert "secret@" not in error

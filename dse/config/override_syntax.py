"""Syntax of overrides: the word of a command line that Hydra cannot parse, and its correct form."""

import re
from collections.abc import Sequence

from dse.config.sweep_syntax import is_sweep
from dse.config.untrusted_files import SHIPPED_CONF

CHOICES = ("chip", "model", "mapping", "stack", "workload", "inference_engine", "space")
"""Groups whose presets people name without the group, the likeliest first."""

OPEN, CLOSED = "[{(", "]})"


def describe_unparsable_override(overrides: Sequence[str]) -> str:
    """First override that Hydra cannot parse as one value, and its correct form; else empty string.

    >>> describe_unparsable_override(["chip=a100", "workload.shapes=[8 x 8"])
    "workload.shapes: '[8 x 8' has a bracket that is not closed; spaces end a word: put the whole of it in quotes"
    >>> describe_unparsable_override(["chip=a100", "TB/s"])
    "'TB/s' is no override; write ADDRESS=VALUE, as in workload.batch=[1], in quotes where it has spaces"
    >>> describe_unparsable_override(["chip.cores=1,2"])
    'chip.cores: one value, not 1,2; a study tries several with +space.chip.cores=choice(1,2)'
    """
    for word in overrides:
        several = is_sweep(word)
        if several:
            return _several_chips_text(word)
        if several is None or word.startswith("="):
            return _open_bracket_text(word)
    return ""


def suggest_assignment(word: str) -> str:
    """Hint for a word that is the name of a preset: the override that chooses it; "" for others.

    >>> suggest_assignment("h100"), suggest_assignment("unheard_of")
    ('did you mean chip=h100?', '')
    """
    name = word.strip().lower()
    known = {group: {path.stem for path in (SHIPPED_CONF / group).glob("*.yaml")} for group in CHOICES}
    group = next((group for group, names in known.items() if name in names), "")
    return f"did you mean {group}={name}?" if group else ""


def _several_chips_text(word: str) -> str:
    address, _, value = word.lstrip("+~").partition("=")
    if re.fullmatch(r"\d+,\d+\s*[A-Za-zµμ%].*", value):
        return f"{address}: {value!r} has a comma; write a point, as in {value.replace(',', '.', 1)!r}"
    if address == "chip":
        return f"chip: one chip, not {value}; use dse compare chip=[{value}], or chips of a study"
    sweep = value if value.endswith(")") else f"choice({value})"
    return f"{address}: one value, not {value}; a study tries several with +space.{address}={sweep}"


def _open_bracket_text(word: str) -> str:
    key, equals, value = word.partition("=")
    if key.endswith("@_global_") and value == "study":
        return (
            f"study: {key[1:].partition('@')[0]!r} cannot be named on a command line; rename its folder, with letters of ASCII"
            ", digits, _ and -, a letter first"
        )
    if not equals or not key.lstrip("+~"):
        if suggestion := suggest_assignment(word):
            return f"{word!r} is no override; {suggestion}"
        if key.lstrip("+~") in CHOICES or word.startswith("="):
            return f"{word!r} is no override; write ADDRESS=VALUE in one word, without spaces around the =, as in chip=h100"
        return f"{word!r} is no override; write ADDRESS=VALUE, as in workload.batch=[1], in quotes where it has spaces"
    address = key.lstrip("+~")
    if not re.fullmatch(r"[\w.@/$-]+", address, re.ASCII):
        return f"{address!r} is no address; it has letters of ASCII, digits, _ and dots, as in workload.batch"
    unquoted = re.sub(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", "", value)
    if re.search("['\"]", unquoted):
        return f"{address}: {value!r} has a quote that is not closed"
    if sum(map(unquoted.count, OPEN)) > sum(map(unquoted.count, CLOSED)):
        return f"{address}: {value!r} has a bracket that is not closed; spaces end a word: put the whole of it in quotes"
    if sum(map(unquoted.count, OPEN)) < sum(map(unquoted.count, CLOSED)):
        return f"{address}: {value!r} has a bracket that is not open"
    odd = next((letter for letter in unquoted if not letter.isascii()), "")
    which = f" for {odd!r} in it" if odd else ""
    quoted = '["TEXT"]' if value.startswith("[") else '"TEXT"'
    return (
        f"{address}: {value!r} cannot be read{which}; text of any letters stands in quotes within quotes, '{address}={quoted}'"
    )

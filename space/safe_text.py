"""Text that is safe to print: without passwords and without terminal control codes."""

import re
from collections.abc import Mapping
from typing import Any

PASSWORD = re.compile(
    r"(://[^/@:\s]*:)(?:\S*@|[^@/\s][^@/]*@)|([?&]\w*(?:password|passwd|pwd|token|secret)=)[^&\s]*"
    r"|(://[^/@:\s\[]+:)(?!\d+(?![^/?#.,;\])'\"\s]))[^/@\s]+",
    re.IGNORECASE,
)
"""Parts of a URL that may hold a password: before the host, in the query, or in place of a port."""

CONTROL_CODES = re.compile(
    r"\x1b\[[0-?]*[ -/]*[@-~]|[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Control codes: escape sequences, control characters except tabs and line ends, text direction marks, surrogates."""


def mask_passwords(text: str) -> str:
    """Text with the passwords of its URLs masked.

    >>> mask_passwords("store=postgresql://me:secret@host/db")
    'store=postgresql://me:***@host/db'
    """
    return PASSWORD.sub(lambda match: f"{match[1]}***@" if match[1] else f"{match[2] or match[3]}***", text)


def mask_passwords_in(value: Any) -> Any:
    """The same nested values with passwords masked in every text."""
    if isinstance(value, str):
        return mask_passwords(value)
    if isinstance(value, dict):
        return {mask_passwords_in(key): mask_passwords_in(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [mask_passwords_in(entry) for entry in value]
    return value


def describe_left_out(by: Mapping[str, int], total: int, noun: str) -> str:
    """Count of designs left out of a search, with the count for each reason, most frequent first.

    >>> describe_left_out({"chip.hbm.capacity": 3, "mapping.decode.tp": 9}, 15, "deployment")
    '12 of 15 deployments left out: mapping.decode.tp 9, chip.hbm.capacity 3'
    >>> describe_left_out({}, 1, "design")
    '0 of 1 design left out'
    """
    each = ", ".join(f"{why} {count:,}" for why, count in sorted(by.items(), key=lambda pair: -pair[1]))
    return f"{sum(by.values()):,} of {count_text(total, noun)} left out" + (f": {each}" if each else "")


def count_text(number: int, noun: str) -> str:
    """A count and its noun as text, in the plural except for 1.

    >>> count_text(1, "case"), count_text(1200, "design"), count_text(0, "box")
    ('1 case', '1,200 designs', '0 boxes')
    """
    plural = f"{noun}es" if noun.endswith(("s", "x", "ch", "sh")) else f"{noun}s"
    return f"{number:,} {noun if number == 1 else plural}"


def strip_control_codes(text: str) -> str:
    r"""Text without terminal control codes.

    >>> strip_control_codes("\x1b[31mred\x07\x1b]0;title\x07")
    'red]0;title'
    """
    return CONTROL_CODES.sub("", text)

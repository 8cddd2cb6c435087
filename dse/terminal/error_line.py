"""Messages of errors that the user can fix: one line, the same for every command and tool."""

import errno
import os
import re

from dse.space.errors import DesignError

AGAIN = "free some space there and run the same command again: what is stored stays"
ELSEWHERE = "choose a place that can be written with run_dir=DIR, store=PATH, screen.folder=FOLDER or --out FILE"
PLACES = {
    errno.ENOSPC: AGAIN,
    errno.EDQUOT: AGAIN,
    errno.EFBIG: AGAIN,
    errno.ENAMETOOLONG: ELSEWHERE,
    errno.ELOOP: ELSEWHERE,
    errno.ENOENT: ELSEWHERE,
    errno.EROFS: ELSEWHERE,
    errno.EACCES: ELSEWHERE,
    errno.EPERM: ELSEWHERE,
    errno.EISDIR: ELSEWHERE,
    errno.ENOTDIR: ELSEWHERE,
}
"""What the system refuses a file for, and what to do about it."""


LONG = 400
"""Characters without a space from which on a word is named by its beginning: longer than paths are."""


def format_error_line(error: Exception) -> str:
    """One line on an error that the user can fix; empty string for any other.

    >>> format_error_line(DesignError("chip.cores: -1 is below 1"))
    'dse: chip.cores: -1 is below 1'
    >>> format_error_line(ValueError("a slip of ours"))
    ''
    """
    if isinstance(error, DesignError):
        return re.sub(rf"\S{{{LONG},}}", _shorten_word, f"dse: {error}")
    if isinstance(error, OSError) and error.errno in PLACES:
        where = f"{error.filename}: " if error.filename else ""
        return f"dse: {DesignError(f'{where}{os.strerror(error.errno)}')}; {PLACES[error.errno]}"
    return ""


def _shorten_word(word: re.Match[str]) -> str:
    """A long word by its beginning and its length."""
    return f"{word[0][: LONG // 10]}... ({len(word[0]):,} characters)"

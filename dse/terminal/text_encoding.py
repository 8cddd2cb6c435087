"""Output on ASCII-only terminals and locales, with paths that have other letters."""

import os
import sys


def make_output_printable() -> None:
    """Make every text printable and every path storable, whatever the locale.

    What a terminal has no sign for is written as its code. A locale of plain ASCII cannot say the names of files either: then
    this process starts anew in Python's UTF-8 mode, as Python itself does where nobody has forbidden it.
    """
    if (
        "utf" not in sys.getfilesystemencoding().lower()
        and not sys.flags.utf8_mode
        and sys.getfilesystemencodeerrors() != "strict"
    ):
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and "utf" not in (stream.encoding or "utf").lower():
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]

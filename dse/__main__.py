"""What the command ``dse`` and ``python -m dse`` start with: from here on a signal ends them in a line.

Nothing but that stands here, so that it holds while all else is imported; `dse.main` then puts things in order before it ends.
"""

import os
import signal
from types import FrameType

BEFORE = (signal.SIG_DFL, signal.default_int_handler)
"""What signals do as Python starts; any other wish of who started the process stays."""


def main() -> None:
    """Entry point of ``dse``."""
    for one in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", None)):  # Windows has no SIGHUP
        if one is not None and signal.getsignal(one) in BEFORE:
            signal.signal(one, _ended)
    from dse.main import main as command

    command()


def _ended(number: int, frame: FrameType | None) -> None:
    os.write(2, b"\ndse: stopped; what was stored stays\n")
    os._exit(128 + number)


if __name__ == "__main__":
    main()

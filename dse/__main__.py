"""Start of the command ``dse`` and of ``python -m dse``: from here on, a signal ends them in one line.

Nothing else stands here, so that signals are handled while libraries are imported; `dse.main` then cleans up before it ends.
"""

import os
import signal
from types import FrameType

BEFORE = (signal.SIG_DFL, signal.default_int_handler)
"""What signals do as Python starts; any other wish of who started the process stays."""


def main() -> None:
    """Entry point of the command ``dse``."""
    for signal_number in (signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", None)):  # Windows has no SIGHUP
        if signal_number is not None and signal.getsignal(signal_number) in BEFORE:
            signal.signal(signal_number, _end_process)
    from dse.main import main as command

    command()


def _end_process(number: int, frame: FrameType | None) -> None:
    os.write(2, b"\ndse: stopped; what was stored stays\n")
    os._exit(128 + number)


if __name__ == "__main__":
    main()

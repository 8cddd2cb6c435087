"""Signals that come while a library's callback runs, in which Python loses exceptions."""

import ctypes
import os
import signal
import time

import pytest

from dse.terminal.signals import StopRequested, handle_signals


def test_a_signal_that_a_callback_loses_comes_again_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    def end_itself() -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.01)  # where the exception is raised, and lost

    def run() -> None:
        with handle_signals():
            ctypes.CFUNCTYPE(None)(end_itself)()
            time.sleep(5)

    with pytest.raises(StopRequested) as stop:
        run()
    assert stop.value.status == 143
    assert not capsys.readouterr().err


def test_other_exceptions_of_a_callback_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[object] = []
    monkeypatch.setattr("sys.unraisablehook", lambda lost: shown.append(lost.exc_value))

    def fail() -> None:
        raise ValueError("of a library")

    with handle_signals():
        ctypes.CFUNCTYPE(None)(fail)()
    assert [str(error) for error in shown] == ["of a library"]

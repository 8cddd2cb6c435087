"""Tables lose no letter, whatever the width; where there is room they are as they were. And what is heard without a bar."""

import io
import json
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table

from dse import main as command_line
from dse.terminal.progress import COMPILES, CompileNotice, ProgressBar, SafeConsole

NAMES = ("deployment", "devices", "tokens/s a device", "a Mtoken", "TTFT", "missed next")
ROWS = (
    ("2 alike of TP 1, policy chunked", "2", "1.312e+04", "$0.01907", "963.1 ms", "ttft"),
    ("decode_throughput_per_system_mm2", "16", "90.42", "$123,456,789", "897 ms", "tpot"),
)


def table(names: tuple[str, ...] = NAMES, rows: tuple[tuple[str, ...], ...] = ROWS, header: bool = True) -> Table:
    table = Table(title="deployments", show_header=header)
    for place, name in enumerate(names):
        table.add_column(name if header else "", justify="right" if header and place else "left")
    for row in rows:
        table.add_row(*row)
    return table


def printed(what: Table, width: int) -> str:
    console = SafeConsole(file=io.StringIO(), width=width)
    console.print(what)
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= width
    return text


@pytest.mark.parametrize("width", [160, 100, 95, 80, 60])
def test_every_word_of_a_table_is_there_whole(width: int) -> None:
    words = " ".join([*NAMES, *(cell for row in ROWS for cell in row)]).split()
    text = printed(table(), width)
    assert [word for word in words if word not in text] == []
    assert "…" not in text


@pytest.mark.parametrize("width", [100, 95, 90, 60])
def test_a_number_and_its_unit_stay_together(width: int) -> None:
    assert "963.1 ms" in printed(table(), width)


@given(st.lists(st.text("ab ", max_size=30), min_size=3, max_size=3), st.integers(24, 90))
def test_no_letter_is_lost_where_columns_have_no_names(cells: list[str], width: int) -> None:
    text = printed(table(("", "", ""), (tuple(cells),), header=False), width)
    assert [text.count(letter) for letter in "ab"] == [("deployments" + "".join(cells)).count(letter) for letter in "ab"]


def test_where_there_is_room_nothing_is_wrapped() -> None:
    assert len(printed(table(), 160).splitlines()) == len(ROWS) + 5


def test_the_longest_words_of_the_one_column_leave_room_to_the_other() -> None:
    text = printed(table(("name", "what"), (("decode_throughput_per_die_mm2", "area of one die " * 8),)), 60)
    assert "decode_throughput_per_die_mm2" in text
    assert text.count("die") == 9


def test_a_closed_error_stream_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the shell closed it, Python has none."""
    monkeypatch.setattr("sys.stderr", None)
    with ProgressBar("search") as bar:
        bar.update(1, 2, "front 1")


def test_who_has_no_bar_hears_that_nothing_is_done_yet(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While the first design waits for its loops; and nothing more of that when it is done, or all is over."""
    monkeypatch.setattr("dse.terminal.progress.LINE_PERIOD_S", 0.05)
    heard = ""
    with ProgressBar("search") as bar:
        deadline = time.monotonic() + 30
        while heard.count("none done yet") < 2 and time.monotonic() < deadline:
            time.sleep(0.01)
            heard += capsys.readouterr().err
        bar.update(1, 4, "front 1")
        time.sleep(0.3)
    assert heard.startswith("  search: none done yet, 0 s; ")
    assert "none done" not in capsys.readouterr().err
    with ProgressBar("verify"):
        pass
    time.sleep(0.3)
    assert not capsys.readouterr().err


def test_who_waits_while_loops_are_compiled_hears_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once loops are, and until the answer is there or something else says how far it is."""
    monkeypatch.setattr("dse.terminal.progress.PATIENCE", 0.05)
    monkeypatch.setattr("dse.terminal.progress.OFTEN", 0.01)
    loops: list[int] = [1]  # compiled for an answer before
    heard = ""
    with CompileNotice("evaluate", lambda: len(loops)):
        time.sleep(0.3)
        assert not capsys.readouterr().err
        deadline = time.monotonic() + 30
        while heard.count("no answer yet") < 2 and time.monotonic() < deadline:
            loops.append(1)
            time.sleep(0.01)
            heard += capsys.readouterr().err
    assert heard.startswith(f"  evaluate: no answer yet, 0 s; {COMPILES}\n")
    for compiled in (lambda: 1, lambda: len(loops)):
        with CompileNotice("capacity", compiled), ProgressBar("capacity of h200"):
            loops.append(1)
            time.sleep(0.3)
    assert not capsys.readouterr().err


LINES = (
    ("evaluate", "--json", "workload=serving", "workload.requests=20"),
    ("compare", "--json", "chip=[h100,h200]"),
    ("capacity", "--json", "chip=h200", "devices=1", "workload.requests=50", "workload.ttft='40 ms'"),
)


@pytest.mark.parametrize("words", LINES, ids=lambda words: words[0])
def test_commands_that_answer_say_what_they_wait_for_beside_what_machines_read(
    words: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dse.terminal.progress.PATIENCE", -1.0)
    monkeypatch.setattr("dse.terminal.progress.OFTEN", 0.001)
    counts = iter(range(1_000_000))
    monkeypatch.setattr("dse.evaluators.machine.compile_counter.count_compilations_started", lambda: next(counts))
    monkeypatch.setattr(sys, "argv", ["dse", *words])
    with pytest.raises(SystemExit) as status:
        command_line.main()
    captured_output = capsys.readouterr()
    assert status.value.code == 0
    assert json.loads(captured_output.out)
    assert captured_output.err.startswith(f"  {words[0]}: no answer yet, 0 s; {COMPILES}\n")

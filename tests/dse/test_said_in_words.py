"""Counts and endings that people read: one of something, a page that cannot be written, whoever reads has gone."""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import dse
from dse.accuracy.validate import read_rows
from dse.analysis.capacity import find_capacity
from dse.commands.capacity_output import _answer_text
from dse.config.overrides import find_study_paths
from dse.space.errors import DesignError
from dse.terminal.atomic_files import write_atomically
from dse.terminal.error_line import format_error_line
from tests.samples import asked

Typed = Callable[..., tuple[int, str, str]]


def test_one_request_and_those_that_come_at_once_have_no_rate() -> None:
    served = ("chip=h200", "model=llama3_8b", "workload=serving")
    for words, ending in (
        (("workload.requests=1",), "1 request at once"),
        (("workload.requests=10", "workload.arrivals=offline"), "10 requests at once"),
        (("workload.requests=2", "workload.rate=[5 Hz]", "workload.arrivals=constant"), "2 requests at 5 Hz, drawn 5 a second"),
    ):
        (case,) = asked(*served, *words).workload.cases
        assert case.label.endswith(ending)


def test_what_capacity_found_is_said_where_its_page_cannot_be_written(
    typed: Typed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").write_text("no folder")
    words = ("chip=h200", "model=llama3_8b", "devices=1", "disaggregated=false", "workload.ttft=1 s", "workload.tpot=30 ms")
    code, out, err = typed(
        "capacity",
        *words,
        "workload.requests=500",
        "mapping.serving.max_batch_size=64",
        "mapping.serving.max_batched_tokens=512",
    )
    assert code == 2
    assert "requests/s" in out
    assert "runs" in err.splitlines()[-1]


def test_a_command_whose_reader_has_gone_ends_as_others_do() -> None:
    command = [sys.executable, "-m", "dse.main", "evaluate", "chip=a100", "workload.batch=[1]"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        output = process.stderr.read()
        assert process.wait() == 141
    assert output == b""


def test_a_folder_that_is_called_like_a_study_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "studies/odd/study.yaml").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert "odd" not in find_study_paths()


HEADER = "id,where,overrides,baseline,metric,value,unit,role,note"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("where,overrides\n", "column 'id' is missing"),
        (f"id,{HEADER}\n", "column 'id' stands 2 times"),
        (f"{HEADER}\n\n", "no rows below its header"),
    ],
)
def test_a_file_of_figures_without_them_says_what_is_missing(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "mine.csv").write_text(text)
    with pytest.raises(DesignError, match=message):
        list(read_rows(tmp_path / "mine.csv"))


def test_a_bound_that_breaks_with_another_breaks_in_the_plural() -> None:
    words = ("chip=h200", "model=llama3_8b", "devices=1", "disaggregated=false", "workload.ttft='1 s'", "workload.tpot='30 ms'")
    (side,) = find_capacity(
        (*words, "workload.requests=500", "mapping.serving.max_batch_size=64", "mapping.serving.max_batched_tokens=512")
    )
    for broken, sentence in (("ttft", "that rate ttft is missed"), ("ttft and tpot", "that rate ttft and tpot are missed")):
        assert sentence in _answer_text(replace(side, curve=tuple((*point[:4], broken) for point in side.curve)))
    with pytest.raises(DesignError, match="deployments on 1 device fits"):
        find_capacity(("chip=h200", "model=llama3_405b", "devices=1", "disaggregated=false", *words[-2:]))


def test_a_device_is_written_to_and_a_link_leads_to_its_file(tmp_path: Path) -> None:
    """Replaced by a file, `/dev/null` would be gone for whoever may write there."""
    pipe, file, link = tmp_path / "pipe", tmp_path / "file", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(file)
    with subprocess.Popen(["cat", pipe], stdout=subprocess.PIPE) as reader:
        with write_atomically(pipe) as place:
            place.write_text("to a pipe")
        assert reader.communicate()[0] == b"to a pipe"
    assert pipe.is_fifo()
    for text in ("new", "again"):
        with write_atomically(link) as place:
            place.write_text(text)
        assert link.is_symlink()
        assert file.read_text() == text
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "link", "pipe"]


def test_a_place_that_cannot_be_made_is_refused_in_a_line() -> None:
    assert format_error_line(FileNotFoundError(2, "No such file or directory", "/proc/x.html")).startswith(
        "dse: /proc/x.html: No such file"
    )


def test_a_word_longer_than_any_path_is_named_by_its_beginning() -> None:
    with pytest.raises(DesignError) as refused:
        dse.evaluate("x" * 100_000)
    line = format_error_line(refused.value)
    assert line.startswith("dse: 'xxx")
    assert "100,002 characters" in line
    assert len(line) < 300
    path = f"/{'folder/' * 40}file.yaml"
    assert format_error_line(DesignError(f"{path}: no such file")) == f"dse: {path}: no such file"

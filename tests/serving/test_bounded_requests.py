"""Requests are bounded: what would take more memory than a gigabyte is refused in a line, before anything is read or drawn."""

import tracemalloc
from pathlib import Path

import pytest

from dse.config.compose import compose, find_study_folder
from dse.config.question import build_question
from dse.config.workloads import MAX_REQUESTS
from dse.evaluators.serving.traces import MOST_BYTES, MOST_TEXTS, read_trace
from dse.space.errors import DesignError
from dse.space.requests import make_requests


def _refused(words: list[str], message: str) -> int:
    """Most bytes that were taken until the refusal."""
    tracemalloc.start()
    try:
        config = compose(["chip=h200", "workload=serving", *words])
        with pytest.raises(DesignError, match=message):
            build_question({**config, "space": {}}, find_study_folder(config))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("times", [1.000001, 15, 1e6])
def test_more_requests_than_memory_has_room_for_are_refused_before_they_are_drawn(times: float) -> None:
    count = int(MAX_REQUESTS * times) + 1
    taken = _refused([f"workload.requests={count}"], r"^workload\.requests: at most 2,000,000, .* got [\d,]+; set fewer")
    assert taken < 100e6


@pytest.mark.parametrize(("begin", "most"), [("", MOST_BYTES), ("arrival,prompt,output\n", MOST_BYTES), ("[", MOST_TEXTS)])
def test_a_file_that_is_too_large_is_refused_before_it_is_read(tmp_path: Path, begin: str, most: int) -> None:
    """Sparse ones, whose sizes no disk has to hold."""
    trace = tmp_path / "trace.csv"
    with trace.open("w") as file:
        file.write(begin)
        if begin == "[":
            file.write("\n")
        file.truncate(most + 1)
    tracemalloc.start()
    with pytest.raises(DesignError, match=r"trace\.csv: the file has \d+ MB; at most \d+ MB are read: "):
        read_trace(trace)
    assert tracemalloc.get_traced_memory()[1] < 10e6
    tracemalloc.stop()


@pytest.mark.parametrize("lengths", [(1e12, 8), (8, 2**31), (0, 8), (8, -1), (float("nan"), 8)])
def test_lengths_that_no_request_has_are_refused(lengths: tuple[float, float]) -> None:
    with pytest.raises(DesignError, match=r"^requests: a length of \S+ tokens; expected 1 to 2,147,483,647$"):
        make_requests([(8, 8), lengths])

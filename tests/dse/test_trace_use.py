"""A trace that has times is replayed, all of it; what is cut, drawn or scaled stands in the label, whatever the format."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.config.compose import compose
from dse.config.question import build_question
from dse.evaluators.serving.traces import TRACE_FORMATS, read_trace
from dse.space.workload import ServingLoad

COUNT = 1400
"""Requests of a file: more than are drawn where there is none."""


def written(folder: Path, kind: str, count: int, seed: int) -> Path:
    """A trace of a format, with random lengths and, where the format has a column for them, times."""
    trace_format, rng = TRACE_FORMATS[kind], np.random.default_rng(seed)
    times = np.cumsum(rng.integers(1, 9, count))
    names = [name for name in (trace_format.arrival, trace_format.prompt, trace_format.output) if name]
    rows = []
    for time in times.tolist():
        row: dict[str, Any] = {trace_format.prompt: int(rng.integers(1, 900)), trace_format.output: int(rng.integers(1, 90))}
        if trace_format.arrival and trace_format.unit:
            row[trace_format.arrival] = time if trace_format.unit == 1.0 else round(time / trace_format.unit)
        elif trace_format.arrival:
            row[trace_format.arrival] = (
                f"2024-05-{10 + time // 86400} {time // 3600 % 24:02}:{time // 60 % 60:02}:{time % 60:02}"
            )
        rows.append(row)
    path = folder / f"{kind}.{trace_format.lines}"
    if trace_format.lines == "jsonl":
        more = {trace_format.hashes: []} if trace_format.hashes else {}
        lines = [json.dumps({**more, **{name: row[name] for name in names}}) for row in rows]
    else:
        lines = [",".join(names), *(",".join(str(row[name]) for name in names) for row in rows)]
    path.write_text("\n".join(lines) + "\n")
    return path


def asked(folder: Path, *words: str) -> ServingLoad:
    config = compose(["chip=h100", "workload=serving", *words])
    (load,) = build_question(config, folder).workload.cases
    assert isinstance(load, ServingLoad)
    return load


@pytest.mark.parametrize("kind", TRACE_FORMATS)
def test_a_file_with_times_is_replayed_as_a_whole(kind: str, tmp_path: Path) -> None:
    path = written(tmp_path, kind, COUNT, 7)
    load, whole = asked(tmp_path, f"workload.trace={path}"), read_trace(path)
    assert len(load.requests) == COUNT
    assert load.trace is not None
    assert f"{COUNT:,} requests, all of {path.name}" in load.label
    if whole.has_times:
        assert load.requests.arrival.tolist() == whole.arrival.tolist()
        assert load.said == 0
        assert (load.trace.times, "replayed at" in load.label) == ("replayed", True)
    else:
        assert load.said == 2.0
        assert load.trace.times == "drawn"
        assert "times drawn (poisson; the file has no times)" in load.label


@given(
    st.sampled_from([kind for kind, trace_format in TRACE_FORMATS.items() if trace_format.arrival]),
    st.integers(2, 60),
    st.integers(1, 80) | st.none(),
    st.sampled_from([(), ("workload.rate_scale=3",), ("workload.rate=5 Hz",), ("workload.arrivals=constant",)]),
    st.booleans(),
)
@settings(max_examples=25, deadline=None)
def test_what_is_cut_drawn_or_scaled_stands_in_the_label(
    tmp_path_factory: pytest.TempPathFactory, kind: str, count: int, wanted: int | None, how: tuple[str, ...], shuffled: bool
) -> None:
    folder = tmp_path_factory.mktemp("trace")
    path = written(folder, kind, count, count)
    words = [f"workload.trace={path}", *how, *(["workload.shuffle=true"] if shuffled else [])]
    load = asked(folder, *words, *([] if wanted is None else [f"workload.requests={wanted}"]))
    kept, whole = min(count, wanted or count), read_trace(path)
    assert len(load.requests) == kept
    cut = kept < count
    assert load.requests.truncated == cut
    part = ("some" if shuffled else "the first") if cut else "all"
    assert f", {part} of {path.name}" in load.label
    assert (" (in another order)" in load.label) == shuffled
    drawn = how in (("workload.rate=5 Hz",), ("workload.arrivals=constant",))
    assert ("the file's times are not used" in load.label) == drawn
    assert ("3 times its rate" in load.label) == (how == ("workload.rate_scale=3",))
    if not drawn:
        factor = 3 if how else 1
        assert load.requests.arrival == pytest.approx(whole.arrival[:kept] / factor)
        assert ", replayed at" in load.label


def test_every_answer_says_what_it_has_of_a_trace(tmp_path: Path, typed: Callable[..., tuple[int, str, str]]) -> None:
    path = written(tmp_path, "plain", 350, 3)
    words = ("model=qwen3_1b7", f"workload.trace={path}", "workload.requests=300", "space=empty", "mapping.both.tp=1")
    part = f"300 requests, the first of {path.name}, replayed"
    chip, serving, out = "chip=h100", "workload=serving", ("--out", str(tmp_path / "page.html"))
    for command, own in {"evaluate": (chip, serving), "compare": ("chip=[h100]", serving), "capacity": (chip, *out)}.items():
        more = ("devices=1", "workload.ttft=20 ms") if command == "capacity" else ()
        code, shown, err = typed(command, *own, *words, *more)
        assert code == 0, err
        assert part in " ".join(shown.split())
        data = json.loads(typed(command, "--json", *own, *words, *more)[1])
        trace_use = {
            "evaluate": lambda document: document["cases"][0]["trace"],
            "compare": lambda document: document["cases"][0],
            "capacity": lambda document: document["chips"][0]["requests"]["trace"],
        }[command](data)
        if command == "compare":
            assert part in trace_use
        else:
            assert trace_use == {"file": path.name, "part": f"the first of {path.name}", "times": "replayed", "process": None}


def test_a_study_says_what_its_study_has_of_a_trace(
    tmp_path: Path, typed: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, "plain", 40, 3)
    (tmp_path / "studies" / "cut").mkdir(parents=True)
    (tmp_path / "studies" / "cut" / "study.yaml").write_text(
        "defaults: [override /chip: h100, override /model: qwen3_1b7, override /workload: serving, override /search: none]\n"
        f"workload: {{trace: {path}, requests: 30}}\nspace: {{mapping: {{both: {{tp: 'choice(1, 2)'}}}}}}\n"
        "objectives: {ttft: min}\n"
    )
    monkeypatch.chdir(tmp_path)
    code, shown, err = typed("show", "--full", "cut")
    assert code == 0, err
    assert f"30 requests, the first of {path.name}, replayed" in " ".join(f"{shown} {err}".split())

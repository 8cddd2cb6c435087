"""What a search leaves out, and why, is a line of every capacity, comparison and study; counts add up."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

SEARCH = ("chip=[h100,rtx4090]", "model=qwen3_32b", "workload.batch=[8]", "workload.sequence=[2048]")


def said(counts: dict[str, int], total: int, noun: str) -> str:
    each = ", ".join(f"{why} {count:,}" for why, count in sorted(counts.items(), key=lambda pair: -pair[1]))
    return f"{sum(counts.values()):,} of {total:,} {noun} left out: {each}"


def test_a_capacity_says_what_it_left_out(tmp_path: Path, typed: Callable[..., tuple[int, str, str]]) -> None:
    words = (
        "chip=h100",
        "model=qwen3_32b",
        "inference_engine=none",  # which has no kernels for 32 bits
        "devices=2",
        "workload.requests=200",
        "workload.ttft=150 ms",
        "disaggregated=false",
    )
    knobs = (
        "+space.mapping.both.tp=choice(1,2)",
        "+space.mapping.serving.max_batch_size=choice(16,64)",
        "--out",
        str(tmp_path / "page.html"),
    )
    own = ("mapping.precision.weights=fp32", "mapping.precision.activations=fp32", "mapping.precision.kv=fp32")
    code, out, err = typed("capacity", "--full", *words, *knobs, *own)
    assert code == 0, err
    (chip,) = json.loads(typed("capacity", "--json", *words, *knobs, *own)[1])["chips"]
    looked = chip["looked_at"]
    assert looked["refused_by"]["chip.hbm.capacity"] == 2, "one device has no room for 32 billion numbers of 32 bits"
    line = said(looked["refused_by"], looked["fit"] + sum(looked["refused_by"].values()), "deployments")
    assert looked["left_out"] == line
    assert line in " ".join(out.split())


def test_a_comparison_says_what_it_left_out(typed: Callable[..., tuple[int, str, str]]) -> None:
    code, out, err = typed("compare", "--full", *SEARCH)
    assert code == 0, err
    sides = json.loads(typed("compare", "--json", *SEARCH)[1])["chips"]
    counts = [side["looked_at"] for side in sides]
    assert any(count["refused_by"] for count in counts)
    for count in counts:
        left, whole = sum(count["refused_by"].values()), count["feasible"] + sum(count["refused_by"].values())
        assert count["feasible"] <= count["designs"] <= whole
        assert count["left_out"].startswith(f"{left} of {whole} mappings left out")
    assert "left out: chip.hbm.capacity" in " ".join(out.replace("│", " ").split())


@pytest.mark.parametrize("keep", ["all", "front"])
def test_a_study_says_what_it_left_out(
    keep: str, tmp_path: Path, typed: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "studies" / "few").mkdir(parents=True)
    (tmp_path / "studies" / "few" / "study.yaml").write_text(
        "defaults:\n- override /chip: npu_dse\n- override /model: llama3_70b\n- override /search: random\n"
        "- override /workers: serial\n"
        "workload: {batch: [8], sequence: [2048]}\nobjectives: {tpot: min}\nconstraints: {ttft: '<= 300 ms'}\n"
        "space: {mapping: {both: {tp: 'choice(1, 2, 4, 8, 16)'}}, chip: {hbm: {capacity: 'tag(GB, choice(20, 40))'}}}\n"
        f"screen: {{keep: {keep}}}\nsearch: {{budget: 6}}\n"
    )
    monkeypatch.chdir(tmp_path)
    code, out, err = typed("run", "study=few")
    assert code == 0, err
    lines = [line for line in (out + err).splitlines() if "left out" in line]
    (screen,) = (line for line in lines if "screen:" in line)
    counts = {part.rsplit(" ", 1)[0].strip(): int(part.rsplit(" ", 1)[1]) for part in screen.split("left out: ")[1].split(",")}
    assert set(counts) == {"chip.hbm.capacity", "ttft <= 300 ms"}
    feasible = next(
        int(line.split(" feasible")[0].rsplit(" ", 1)[1]) for line in (out + err).splitlines() if " feasible;" in line
    )
    assert f"{sum(counts.values())} of 10 designs left out" in screen
    assert sum(counts.values()) + feasible == 10
    assert any("search:" in line for line in lines)

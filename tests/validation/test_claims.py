"""Claims of papers: verdicts follow simulated values, files that cannot be judged are refused, and what ships still holds."""

import csv
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from zlib import crc32

import jsonschema
import numpy as np
import pytest

import dse
from dse.accuracy import claims, validate
from dse.accuracy.claims import COLUMNS, CONTRADICTED, REPRODUCED, UNDECIDABLE, Claim, decide_claim, find_claims
from dse.accuracy.validate import ValidationRow, compare_row, score_rows
from dse.commands.claim_output import claims_record
from dse.documents import build_schema
from dse.main import main
from dse.report.page_parts import unpack_text
from dse.report.standalone_pages import build_claims_page
from dse.studies.write import WITH_VERDICTS, line, written_document
from tests.dse.test_report_page import browser

__all__ = ["browser"]

ROOT = Path(__file__).resolve().parents[2]
CHIP = "chip=npu_dse workload.batch=[1] workload.output=16"
PROMPTS = (128, 256, 512)


def prefill_time(prompt: int) -> float:
    """[ms]"""
    return 1e3 * float(dse.evaluate(*CHIP.split(), f"workload.prompt={prompt}").metrics["ttft"])


@pytest.fixture(scope="module")
def times() -> dict[int, float]:
    return {prompt: prefill_time(prompt) for prompt in PROMPTS}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of studies with one published row, in which papers' claims are looked for."""
    (tmp_path / "claims").mkdir()
    (tmp_path / "alpha").mkdir()
    row = ["a-one", "here", f"{CHIP} workload.prompt=128", "", "ttft", "3", "ms", "check", ""]
    write_table(tmp_path / "alpha" / "published.csv", validate.COLUMNS, [dict(zip(validate.COLUMNS, row, strict=True))])
    monkeypatch.setattr(claims, "STUDIES", tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write_table(path: Path, columns: tuple[str, ...], rows: list[dict[str, str]]) -> None:
    with path.open("w", newline="") as file:
        table = csv.DictWriter(file, columns, restval="", lineterminator="\n")
        table.writeheader()
        table.writerows(rows)


def row(name: str = "c-1", **cells: str) -> dict[str, str]:
    """A claim about the time to first token of 128 tokens."""
    usual = {"where": f"table 1, {name}", "claim": "Prefill is quick", "overrides": f"{CHIP} workload.prompt=128"}
    return {"id": name, **usual, "metric": "ttft", "value": "3", "unit": "ms", "tolerance": "0.1", **cells}


def typed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["dse", "validate", "--claims", *words])
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


def test_a_verdict_follows_the_tolerance_or_the_range(folder: Path, times: dict[int, float]) -> None:
    draws, rows, expected = np.random.default_rng(50), [], {}
    for place in range(24):
        off, name = float(draws.choice([0.5, 0.9, 1.1, 1.6]) * draws.choice([-1, 1]) * 0.2), f"c-{place}"
        value = times[128] / (1 + off)
        if place % 2:
            rows.append(row(name, value=f"{value:.9g}", tolerance="0.2", mechanism="made"))
            expected[name] = REPRODUCED if abs(off) <= 0.2 else CONTRADICTED
        else:
            rows.append(row(name, value=f"{value * 0.8:.9g}..{value * 1.2:.9g}", tolerance="", mechanism="made"))
            expected[name] = REPRODUCED if 0.8 <= 1 + off <= 1.2 else CONTRADICTED
    write_table(folder / "claims" / "beta.csv", COLUMNS, rows)
    decisions = [decide_claim(claim) for claim in find_claims(())]
    assert {decision.claim.id: decision.verdict for decision in decisions} == expected
    assert set(expected.values()) == {REPRODUCED, CONTRADICTED}
    (tally,) = claims.tally_papers(decisions)
    ranges = [decision for decision in decisions if decision.claim.is_range]
    assert (tally.held, tally.ranges) == (sum(row.verdict == REPRODUCED for row in ranges), len(ranges))
    assert len(tally.errors) == len(rows) - len(ranges)
    assert 0.0 not in tally.errors  # a range that holds is no number without an error


def test_a_sweep_decides_where_all_points_agree_and_names_those_that_hold(folder: Path, times: dict[int, float]) -> None:
    sweep = {"sweep": "workload.prompt={128,256,512}", "missing": "length of the prompt", "tolerance": "", "mechanism": "made"}
    least, middle, most = sorted(times.values())
    ends = {"all": (least * 0.9, most * 1.1), "none": (most * 1.1, most * 1.2), "some": ((least + middle) / 2, most * 1.1)}
    write_table(
        folder / "claims" / "beta.csv", COLUMNS, [row(name, value=f"{a}..{b}", **sweep) for name, (a, b) in ends.items()]
    )
    decisions = {decision.claim.id: decision for decision in map(decide_claim, find_claims(("beta",)))}
    assert {name: decision.verdict for name, decision in decisions.items()} == {
        "all": REPRODUCED,
        "none": CONTRADICTED,
        "some": UNDECIDABLE,
    }
    holding = [f"workload.prompt={prompt}" for prompt in PROMPTS if times[prompt] > (least + middle) / 2]
    assert decisions["some"].holds_at == "; ".join(holding)
    assert decisions["some"].span == pytest.approx((least, most))


def test_a_sweep_goes_over_a_whole_baseline_and_over_the_address_that_another_sets(
    folder: Path, times: dict[int, float]
) -> None:
    """A baseline without a chip follows the design, but for what it says itself."""
    how = {"sweep": "workload.prompt={128,512}", "missing": "length", "value": "1", "unit": "ratio"}
    whole = row("whole", baseline=f"{CHIP} workload.prompt=256", **how)
    change = row("change", baseline="workload.output=32", **how)
    write_table(folder / "claims" / "beta.csv", COLUMNS, [whole, change])
    for claim in find_claims(()):
        values = [claim.compare_at(words).simulated for words in claim.points]
        assert values == pytest.approx([1.0, 1.0], rel=1e-3)
    alone = replace(find_claims(("beta/whole",))[0], sweep=())
    assert alone.compare_at(()).simulated == pytest.approx(times[128] / times[256])


def test_a_sweep_may_go_over_the_baseline_alone(folder: Path, times: dict[int, float]) -> None:
    ratio = {"metric": "ttft", "unit": "ratio", "baseline": f"{CHIP} workload.prompt=128", "missing": "length"}
    swept = row(value=f"{times[128] / times[512]:.6g}", sweep="baseline:workload.prompt={256,512}", **ratio)
    write_table(folder / "claims" / "beta.csv", COLUMNS, [swept])
    (decision,) = map(decide_claim, find_claims(()))
    simulated = [point.compared.simulated for point in decision.points]
    assert simulated == [pytest.approx(times[128] / times[prompt], rel=1e-3) for prompt in (256, 512)]
    assert decision.holds_at == "baseline:workload.prompt=512"


def test_a_design_is_simulated_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row(f"c-{place}", metric=("ttft", "tpot")[place % 2], tolerance="1") for place in range(6)]
    write_table(folder / "claims" / "beta.csv", COLUMNS, [{**row, "overrides": f"{row['overrides']} seed=31"} for row in rows])
    count = []
    evaluate = validate.evaluate
    monkeypatch.setattr(validate, "evaluate", lambda *a, **k: (count.append(a), evaluate(*a, **k))[1])
    validate._evaluate_overrides.cache_clear()
    validate.simulate_metric.cache_clear()
    for claim in find_claims(()):
        decide_claim(claim)
    assert len(count) == 1


def test_what_cannot_be_simulated_is_undecidable(folder: Path) -> None:
    plain = {"overrides": "", "metric": "", "tolerance": "", "missing": "a compiler that is not published"}
    write_table(folder / "claims" / "beta.csv", COLUMNS, [row(**plain)])
    (decision,) = map(decide_claim, find_claims(()))
    assert (decision.verdict, decision.simulated_text, decision.problem) == (UNDECIDABLE, "", "")


@pytest.mark.parametrize("role", ["calibration", "check"])
def test_a_claim_of_a_published_row_asks_what_the_row_asks(folder: Path, role: str) -> None:
    """And says where constants were fitted on the row, so that nobody takes it for a confirmation."""
    (cells,) = [cells for _, cells in validate.read_rows(folder / "alpha" / "published.csv")]
    write_table(folder / "alpha" / "published.csv", validate.COLUMNS, [cells | {"role": role, "value": "1..1000"}])
    blank = dict.fromkeys(("overrides", "metric", "value", "unit", "tolerance"), "")
    write_table(
        folder / "claims" / "beta.csv", COLUMNS, [row(row="alpha/a-one", **blank), row("c-2", value="1..1000", tolerance="")]
    )
    decisions = [decide_claim(claim) for claim in find_claims(())]
    assert [decision.span for decision in decisions] == [(pytest.approx(compare_row(cells).simulated),) * 2] * 2
    (tally,) = claims.tally_papers(decisions)
    assert (tally.counts[REPRODUCED], tally.fitted) == (2, role == "calibration")


@pytest.mark.parametrize(
    ("cells", "line"),
    [
        ({"id": ""}, "column id: is blank; a claim has an id, a place"),
        ({"tolerance": ""}, "column tolerance: is blank; set the largest relative error of the number"),
        ({"tolerance": "7"}, "column tolerance: '7' is not above 0 and at most 1"),
        ({"value": "1..2"}, "is a range, which holds or does not; leave it blank"),
        ({"value": "many"}, "column value: 'many' is not a number above 0"),
        ({"metric": ""}, "column metric: is blank; name the metric to compare"),
        (
            {"sweep": "workload.prompt={1,2}"},
            "column missing: a sweep covers what the paper leaves out; name that there",
        ),
        ({"sweep": "workload.prompt=1", "missing": "x"}, "'workload.prompt=1' is no ADDRESS={VALUE,VALUE}"),
        ({"sweep": "a={1,2} a={3,4}", "missing": "x"}, "an address is twice"),
        ({"sweep": "a={1,2,3,4,5} b={1,2,3,4,5}", "missing": "x"}, "25 combinations, at most 24 are simulated"),
        ({"row": "alpha/a-one"}, "column overrides: comes from the row alpha/a-one; leave it blank"),
        ({"row": "alpha/a-two", "overrides": "", "metric": "", "value": "", "unit": ""}, "did you mean 'a-one'?"),
        ({"row": "alhpa/a-one", "overrides": "", "metric": "", "value": "", "unit": ""}, "did you mean 'alpha'?"),
        (
            {"overrides": "", "metric": "", "tolerance": ""},
            "column missing: a claim without overrides or row cannot be simulated",
        ),
        ({"overrides": "", "missing": "x"}, "column metric: without overrides nothing is simulated; leave it blank"),
        ({"reader": "fidelity='events"}, "column reader:"),
        ({"sweep": "baseline:workload.prompt={1,2}", "missing": "x"}, "column sweep: baseline: needs a baseline"),
    ],
)
def test_a_claim_that_cannot_be_judged_is_refused_in_one_line(
    cells: dict[str, str], line: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write_table(folder / "claims" / "beta.csv", COLUMNS, [row() | cells])
    code, _, err = typed(monkeypatch, capsys, "beta")
    assert code == 2
    assert line in err
    assert err.count("\n") == 1
    assert "beta.csv, row 2" in err


def test_files_and_names_that_are_wrong_are_refused_in_one_line(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / "claims" / "beta.csv"

    def refused(line: str, *words: str) -> None:
        code, _, err = typed(monkeypatch, capsys, *words)
        assert (code, err.count("\n")) == (2, 1)
        assert line in err

    write_table(file, COLUMNS, [row("c-1"), row("c-2", where="Table 1, c-1")])
    refused("row 3 (c-2): column where: 'Table 1, c-1' is in row 2 too; a place names one claim")
    write_table(file, COLUMNS, [row("c-1"), row("c-1", where="table 2")])
    refused("row 3 (c-1): column id: 'c-1' is in row 2 too; give one of them another")
    write_table(file, (*COLUMNS, "verdict"), [row() | {"verdict": "reproduced"}])
    refused("row 1: column 'verdict': a verdict is computed, never typed; remove the column")
    write_table(file, (*COLUMNS, "reeder"), [row()])
    refused("row 1: no column 'reeder' in a file of claims; did you mean 'reader'?")
    write_table(file, COLUMNS[:-1], [row()])
    refused("row 1: column 'mechanism' is missing")
    write_table(file, COLUMNS, [row()])
    refused("no paper 'betta'; did you mean 'beta'?", "betta")
    refused("beta has no claim 'c-2'; did you mean 'c-1'?", "beta/c-2")
    refused("no file mine.csv", "mine.csv")


def test_a_contradiction_needs_a_mechanism_that_a_second_model_does_not_refute(
    folder: Path, times: dict[int, float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, far = folder / "claims" / "beta.csv", f"{times[512]:.9g}"
    write_table(file, COLUMNS, [row(value=far)])
    code, out, _ = typed(monkeypatch, capsys)
    output = " ".join(out.split())
    assert code == 1
    assert "row 2 (c-1): contradicted" in output
    assert "state the reason in the column mechanism" in output
    write_table(file, COLUMNS, [row(value=far, mechanism="made", reader="workload.prompt=512")])
    code, out, _ = typed(monkeypatch, capsys)
    output = " ".join(out.split())
    assert code == 1
    assert "contradicted, yet workload.prompt=512 gives" in output
    write_table(file, COLUMNS, [row(value=far, mechanism="made", reader="workload.prompt=256")])
    code, out, _ = typed(monkeypatch, capsys)
    assert code == 0
    assert "beta: 1 of 1 claims decided, 0 reproduced" in out


def test_json_and_page_have_every_claim(
    folder: Path, times: dict[int, float], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = {"overrides": "", "metric": "", "tolerance": "", "missing": "x"}
    swept = row("c-2", sweep="workload.prompt={128,512}", missing="length", value=f"{times[128]:.6g}", claim="a <b>")
    write_table(folder / "claims" / "beta.csv", COLUMNS, [row("c-1", mechanism="made"), swept, row("c-3", **plain)])
    code, out, _ = typed(monkeypatch, capsys, "--json", "--out", "there/page.html")
    data = json.loads(out)
    assert code == 0
    jsonschema.Draft202012Validator(build_schema("claims")).validate(data)
    assert [claim["id"] for claim in data["claims"]] == ["c-1", "c-2", "c-3"]
    text = (folder / "there/page.html").read_text()
    inner = json.loads(unpack_text(text.partition('id="data">')[2].partition("</script>")[0]))
    assert inner["claims"] == data["claims"]
    assert "a <b>" not in text


def test_the_page_fits_a_phone_and_a_screen_and_hides_what_is_not_asked_for(browser: Any, folder: Path, tmp_path: Path) -> None:
    plain = {"overrides": "", "metric": "", "tolerance": "", "value": "2..3", "missing": "what is not published " * 20}
    write_table(folder / "claims" / "beta.csv", COLUMNS, [row("c-1", mechanism="made"), row("c-2", **plain)])
    data = claims_record([decide_claim(claim) for claim in find_claims(())], Path("page.html"))
    (tmp_path / "page.html").write_text(build_claims_page(data), encoding="utf-8")
    grounds = set()
    for width, scheme in ((390, "dark"), (1366, "light")):
        page = browser.new_page(viewport={"width": width, "height": 800}, color_scheme=scheme)
        complaints: list[str] = []
        page.on("pageerror", lambda error, to=complaints: to.append(str(error)))
        page.goto((tmp_path / "page.html").as_uri())
        for button in page.query_selector_all("summary"):
            button.click()
        assert page.evaluate("[innerWidth, document.documentElement.scrollWidth]") == [width, width]
        grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
        assert page.locator("tbody tr:visible").count() == 2
        page.get_by_role("button", name="contradicted").click()
        assert page.locator("tbody tr:visible").count() == 1
        page.close()
        assert complaints == []
    assert len(grounds) == 2


def test_numbers_and_ranges_are_scored_apart() -> None:
    draws = np.random.default_rng(5)
    single_row = compare_row({"role": "check", "note": "", "baseline": "", **row()})
    for _ in range(20):
        rows: list[ValidationRow] = []
        for error in draws.choice([0.0, 0.1, 0.3], draws.integers(1, 12)):
            rows.append(replace(single_row, published=str(draws.choice(["3", "2..4"])), error=float(error)))
        score = score_rows(
            [*rows, replace(single_row, published="3", error=None), replace(single_row, published="2..4", error=None)]
        )
        numbers = [row.error for row in rows if row.published == "3"]
        ranges = [row.error for row in rows if row.published == "2..4"]
        assert score.errors == tuple(sorted(numbers))
        assert (score.held, score.ranges) == (ranges.count(0.0), len(ranges) + 1)
        if numbers:
            assert f"median error {np.median(numbers):.1%}" in str(score)
        cells = line("paper", [row for row in rows if row.role == "check"])[4:7]
        assert cells == [
            str(len(numbers)) if numbers else "",
            score.error_text,
            f"{score.held} of {len(ranges)}" if ranges else "",
        ]


ALL = os.environ.get("FINDINGS") == "all"
MOST = 20
"""Claims of a paper that are always simulated again; the others with FINDINGS=all."""


def asked_always(shipped: list[Claim]) -> Iterator[Claim]:
    """Of each paper some quick claims, chosen by their ids alone."""
    for paper in {claim.paper for claim in shipped}:
        quick = [claim for claim in shipped if claim.paper == paper and claim.is_quick]
        yield from sorted(quick, key=lambda claim: crc32(claim.id.encode()))[:MOST]


def test_the_verdicts_that_ship_are_what_comes_out() -> None:
    shipped, known = find_claims(()), claims.read_verdicts()
    assert {(claim.paper, claim.id) for claim in shipped} == set(known), "run python -m dse.studies.write claims"
    for claim in shipped if ALL else asked_always(shipped):
        decision = decide_claim(claim)
        assert claims.decision_row(decision) == known[claim.paper, claim.id], "run python -m dse.studies.write claims"
        assert not decision.problem


def test_the_readme_has_a_line_a_paper() -> None:
    """From the verdicts that ship, without a simulation."""
    assert WITH_VERDICTS["claims"] == ("verdicts", "claims")
    old, new = written_document("claims")
    assert old == new, "run python -m dse.studies.write claims"
    known = claims.read_verdicts()
    for tally in claims.tally_verdicts((claim, known[claim.paper, claim.id]) for claim in find_claims(())):
        assert f"- {tally}\n" in (ROOT / "README.md").read_text(), "run python -m dse.studies.write README"

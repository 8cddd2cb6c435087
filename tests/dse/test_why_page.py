"""Why a design is on the front, as a reader of the report has it in a real browser."""

from collections.abc import Callable
from typing import Any

import pytest

from dse.commands.notebook_api import StoredStudy
from dse.commands.run_study import run_study
from dse.report.payload import ReportedStudy, report_payload
from tests.dse.test_report import rows_of
from tests.dse.test_report_page import browser, open_design, opened, settle
from tests.dse.toy import toy

__all__ = ["browser", "opened"]


@pytest.fixture(scope="module")
def part(tmp_path_factory: pytest.TempPathFactory) -> ReportedStudy:
    study = toy(
        tmp_path_factory.mktemp("page"),
        "model=llama3_70b",
        "+space.chip.hbm.capacity='tag(GB, choice(64, 80))'",
        "++constraints.ttft='<= 1 s'",
        "screen.run=true",
        "screen.limit=512",
        "search.sampler=none",
    )
    run_study(study)
    return StoredStudy(study).part()


@pytest.mark.slow
def test_why_is_in_the_card_of_a_front_design_and_remarks_are_below(opened: Callable[..., Any], part: ReportedStudy) -> None:
    page = opened(part)
    (study,) = report_payload([part])["studies"]
    for row in ("0", "2"):
        page.evaluate(f"openDesign({row})")
        settle(page)
        why = study["why"]["designs"][row]
        assert page.locator("#design .steps tr.step").count() == len(why["steps"])
        text = page.inner_text("#design")
        assert "ONE STEP OF EACH KNOB" in text.upper()
        assert page.locator("#design .steps tr.reason").count() == sum(bool(step[4]) for step in why["steps"])
        assert page.locator("#design .prices li").count() == len(why["prices"])
        near = why["faster"] or why["cheaper"]
        assert near is not None
        page.locator("#design .sides button").last.click()
        assert open_design(page) == f"Design {rows_of(part)['design'].iloc[near['row']]}"
    assert study["why"]["prices"]
    assert page.locator("#cards .prices li").count() == len(study["why"]["prices"])
    texts = page.locator("#cards .remarks li").evaluate_all(
        "lines => lines.map(line => { line.querySelectorAll('.metric').forEach("
        "one => (one.textContent = one.title.split(':')[0])); return line.innerText })"
    )
    assert texts == [" ".join(remark["text"].split()) for remark in study["why"]["remarks"]]
    assert texts
    page.evaluate("designs.studies[0].why.designs[1].steps = null; openDesign(1)")
    settle(page)
    assert f"dse explain {part.study.name} --design {rows_of(part)['design'].iloc[1]}" in page.inner_text("#design")

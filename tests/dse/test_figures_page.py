"""Figures in the report, as drawn in a browser: of the study, and of the open design."""

from collections.abc import Callable
from typing import Any

import pytest

from dse.report.figures import build_figure
from dse.report.payload import ReportedStudy
from tests.dse.test_report import rows_of
from tests.dse.test_report_page import browser, open_design, opened, part, settle, wait_open

__all__ = ["browser", "opened", "part"]

CARD = "Throughput per mm² against tokens/s of a user"


def card(page: Any, title: str) -> Any:
    found = page.locator("section.card", has=page.locator("h2", has_text=title))
    found.first.locator(".js-plotly-plot .main-svg").first.wait_for(timeout=60_000)
    return found


def test_every_point_of_throughput_per_user_is_drawn(opened: Callable[..., Any], part: ReportedStudy) -> None:
    page = opened(part)
    spec = build_figure(part, "throughput_per_user")
    settle(page)
    drawn = card(page, CARD).locator(".scatterlayer .trace")
    counts = [drawn.nth(place).locator(".point").count() for place in range(drawn.count())]
    assert counts == [len(trace["x"]) for trace in spec.panels[0].traces]


def test_another_resource_draws_its_figure(opened: Callable[..., Any], part: ReportedStudy) -> None:
    page = opened(part)
    card(page, CARD).get_by_role("button", name="per dollar").click()
    assert card(page, "Throughput per dollar against tokens/s of a user").count() == 1


def test_the_roofline_is_of_the_open_design(opened: Callable[..., Any], part: ReportedStudy) -> None:
    page = opened(part)
    first = open_design(page).removeprefix("Design ")
    assert card(page, f"Roofline of design {first}").count() == 1
    page.get_by_title("The next on the front").click()
    page.wait_for_function("text => document.querySelector('#design h2')?.textContent !== text", arg=f"Design {first}")
    assert card(page, f"Roofline of design {open_design(page).removeprefix('Design ')}").count() == 1


@pytest.mark.parametrize(("width", "scheme"), [(390, "light"), (1366, "dark")])
def test_no_figure_is_wider_than_the_page(opened: Callable[..., Any], part: ReportedStudy, width: int, scheme: str) -> None:
    page = opened(part, width=width, color_scheme=scheme)
    card(page, "Area, power and price by block")
    settle(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_a_linked_design_has_its_roofline(opened: Callable[..., Any], part: ReportedStudy) -> None:
    page, name = opened(part), str(rows_of(part)["design"].iloc[1])
    page.evaluate("name => { location.hash = `design=${name}`; }", name)
    wait_open(page, f"{name}")
    settle(page)
    assert card(page, f"Roofline of design {name}").count() == 1

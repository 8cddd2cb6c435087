"""Machines that exist: roles by a rule, rows that are simulated, pairs of unlike machines, and what comparisons say of them."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.accuracy.machine_order import count_pairs, order_text
from dse.analysis.compare import collect_comparison_notes, compare_best_mappings
from dse.studies.engines.rows import closed_loop, simulate_rows
from dse.studies.machines import finding
from dse.studies.machines.pairs import TIE, find_pairs, is_near, measured_ratio, near_pairs, read_pairs
from dse.studies.machines.rows import FITTED, UNFIT_CHIPS, all_rows, calibration_lines, of_vendor, own_rows


def test_rows_of_one_run_have_one_role_and_every_third_run_is_a_check() -> None:
    roles: dict[tuple[str, ...], set[str]] = {}
    for row in (row for row in own_rows() if row.is_simulated):
        roles.setdefault(row.deployment, set()).add(row.role)
    assert all(len(own) == 1 for own in roles.values())
    trainium = [next(iter(role)) for deployment, role in roles.items() if deployment[1] == "trainium1" and role != {"report"}]
    assert [place for place, role in enumerate(trainium) if role == "check"] == list(range(2, len(trainium), 3))


def test_unfit_rows_are_reports_and_chips_without_a_fit_are_checked_only() -> None:
    assert {row.role for row in own_rows() if row.row.chip in UNFIT_CHIPS} == {"report"}
    assert {row.row.chip for row in own_rows() if row.role == "calibration"} == set(FITTED)
    assert all(row.role == "report" for row in all_rows() if row.row.chip == "groq")
    assert all(row.role == "report" for row in own_rows() if not row.is_simulated)


def test_a_vendors_rows_are_handed_to_the_calibration_with_their_roles() -> None:
    lines = calibration_lines("aws")
    assert Counter(line[7] for line in lines) == Counter(row.role for row in of_vendor("aws"))
    assert len({line[0] for line in lines}) == len(lines)
    assert all("stack=" not in line[2] for line in lines)


@pytest.mark.parametrize(("vendor", "most"), [("aws", 0.1), ("google", 0.2)])
def test_rows_that_were_not_fitted_come_out_near(vendor: str, most: float) -> None:
    rows = [row.row for row in of_vendor(vendor, own_rows()) if row.role == "check"]
    errors = np.abs(np.array(simulate_rows(rows)) - 1)
    assert np.median(errors) < most


def test_more_users_are_served_faster_in_all_and_slower_each() -> None:
    rows = {(row.row.requests, row.row.metric): row.row for row in of_vendor("google", own_rows()) if row.row.chip == "tpu_v6e"}
    few, many = rows[64, "throughput"], rows[128, "throughput"]
    rates = [ratio * row.value for ratio, row in zip(simulate_rows([few, many]), (few, many), strict=True)]
    assert rates[1] > rates[0]
    assert "mapping.serving.max_batch_size=64" in few.overrides()
    assert f"workload.requests={10 * 64}" in closed_loop(1000, 1000, 64)


def test_pairs_are_of_unlike_machines_on_one_model_and_say_an_order() -> None:
    for first, second in near_pairs(all_rows()):
        assert first.vendor != second.vendor
        assert is_near(first.row, second.row)
        assert is_near(second.row, first.row)
        assert measured_ratio(first.row, second.row) > TIE
    assert len(read_pairs()) == len(near_pairs(all_rows()))


@given(st.integers(0, len(all_rows()) - 1), st.integers(0, len(all_rows()) - 1))
def test_nearness_is_of_both_and_a_ratio_is_the_inverse_the_other_way(place: int, other: int) -> None:
    first, second = all_rows()[place].row, all_rows()[other].row
    assert is_near(first, second) == is_near(second, first)
    assert is_near(first, first)
    if first.unit == second.unit:
        assert measured_ratio(first, second) * measured_ratio(second, first) == pytest.approx(1.0)


def test_stored_pairs_are_those_that_are_simulated_now() -> None:
    stored, new = read_pairs(), find_pairs()
    assert [pair[:4] for pair in stored] == [pair[:4] for pair in new]
    assert [pair.simulated for pair in stored] == pytest.approx([pair.simulated for pair in new], rel=2e-3)
    assert count_pairs() == (sum(pair.is_right for pair in new), len(new))


def test_a_comparison_says_how_many_measured_pairs_were_right() -> None:
    words = ["model=llama3_8b", "workload.batch=[8]", "workload.prompt=128", "workload.output=8", "mapping.both.tp=1"]
    two = compare_best_mappings(["chip=[h100,mi300x]", *words], "throughput")
    assert order_text() in collect_comparison_notes(two)
    assert "measured pairs" not in collect_comparison_notes(two[:1])
    right, pairs = count_pairs()
    assert f"{right} of {pairs} measured pairs right" in order_text()


def test_bands_count_rows_of_stacks_that_print_one() -> None:
    logs = np.log([1.0, 2.0, 1.0])
    assert finding.share_in_band(logs, [(0.8, 1.2), (0.8, 1.2), (np.nan, np.nan)]) == "50%"
    assert finding.share_in_band(logs[:1], [(np.nan, np.nan)]) == ""
    assert finding.printed_band("unfitted") == (0.6, 1.65)

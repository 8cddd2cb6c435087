"""Bands of answers: the rows nearest in kind, whichever way up a metric is; what is said where none are, or old ones."""

import csv
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dse
from dse.accuracy import residuals
from dse.accuracy.residuals import ENOUGH_ROWS, SCORED_ROLES, Residual, estimate_error_bands, find_nearest_rows
from dse.accuracy.result_kind import MEASURES, ResultKind, result_kind
from dse.accuracy.validate import ROLES
from dse.analysis.evaluation_screen import band_text
from dse.evaluators import METRICS
from dse.evaluators.evaluation import PHYSICS_VERSION

KINDS = st.builds(
    ResultKind,
    st.sampled_from(["wse2", "a100"]),
    st.sampled_from(["waferllm", "t10", "ladder"]),
    st.just("static"),
    st.sampled_from(["prefill", "decode"]),
    st.just("time"),
    st.sampled_from(["analytical", "events"]),
)
ROWS = st.lists(
    st.builds(Residual, st.just("s"), st.just("i"), st.sampled_from(ROLES), KINDS, st.booleans(), st.floats(-0.9, 2)),
    max_size=12,
)


def test_every_measure_is_of_a_metric() -> None:
    assert set(MEASURES) <= set(METRICS)


@pytest.mark.parametrize("name", [name for name, measure in MEASURES.items() if measure.what == "time"])
def test_a_measure_of_time_falls_where_the_metric_is_better_the_larger(name: str) -> None:
    assert MEASURES[name].sign == (1 if METRICS[name].better == "min" else -1)


@given(KINDS, ROWS)
def test_no_row_that_is_left_out_is_nearer(kind: ResultKind, rows: list[Residual]) -> None:
    nearest, _ = find_nearest_rows(kind, rows)
    near = [row for row in rows if (row.kind.chip, row.kind.phase) == (kind.chip, kind.phase)]
    assert bool(nearest) == bool(near)

    def unlike(row: Residual) -> tuple[bool, ...]:
        own = row.kind
        return own.software != kind.software, row.compares, row.role not in SCORED_ROLES, own.fidelity != kind.fidelity

    for row in near:
        assert (row in nearest) == (unlike(row) == min(map(unlike, near)))


def with_rows(monkeypatch: pytest.MonkeyPatch, rows: list[Residual], version: int = PHYSICS_VERSION) -> None:
    monkeypatch.setattr(residuals, "_read_residuals_file", lambda: (version, tuple(rows)))


def test_a_band_is_what_the_rows_were_off_by_and_times_and_rates_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    draws = np.random.default_rng(3)
    for many in (1, 3, ENOUGH_ROWS, 60):
        kind = result_kind({"chip": "wse2", "mapping": "waferllm"}, "", "static", "tpot", "analytical")
        errors = draws.uniform(-0.3, 0.4, many)
        with_rows(monkeypatch, [Residual("s", "i", "check", kind, False, float(error)) for error in errors])
        spent = float(draws.uniform(1e-4, 1e-1))
        (time,) = (
            error_band
            for error_band in estimate_error_bands(
                {"tpot": spent}, {"chip": "wse2", "mapping": "waferllm"}, "", "static", "analytical"
            )
        )
        ends = (0.05, 0.95) if many >= ENOUGH_ROWS else (0, 1)
        assert (time.low, time.high) == pytest.approx(tuple(np.quantile(errors, ends)))
        rate = residuals.estimate_error_band(kind, "tokens_per_s_per_user", 1 / spent)
        assert time.measured_range is not None
        assert rate.measured_range is not None
        if many < ENOUGH_ROWS:  # quantiles between rows do not turn over exactly
            assert rate.measured_range == pytest.approx((1 / time.measured_range[1], 1 / time.measured_range[0]))
        inside = [spent / (1 + error) for error in errors if time.low <= error <= time.high]
        assert min(inside) >= time.measured_range[0] * (1 - 1e-9)
        assert max(inside) <= time.measured_range[1] * (1 + 1e-9)
        assert f"({many} row{'s' * (many > 1)} of chip=wse2, decode, waferllm)" in str(time)


def test_no_row_near_is_said_and_old_rows_are(monkeypatch: pytest.MonkeyPatch) -> None:
    with_rows(monkeypatch, [])
    evaluation = dse.evaluate("chip=wse2", "workload.batch=[1]")
    assert {band.metric for band in evaluation.bands} == {"ttft", "tpot", "latency"}
    assert {str(band) for band in evaluation.bands} == {"no measured row of this kind"}
    kind = result_kind(evaluation.names, "", "static", "tpot", "analytical")
    with_rows(monkeypatch, [Residual("s", "i", "calibration", kind, False, 0.1)], PHYSICS_VERSION - 1)
    (band,) = (band for band in dse.evaluate("chip=wse2", "workload.batch=[1]").bands if band.rows)
    assert band.stale
    assert f"simulated at physics version {PHYSICS_VERSION - 1}, now {PHYSICS_VERSION}: stale" in str(band)
    assert "1 fitted on" in str(band)
    assert not replace(band, physics=PHYSICS_VERSION).stale


def test_another_chip_than_the_measured_one_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = result_kind({"chip": "wse2", "mapping": "waferllm"}, "", "static", "tpot", "analytical")
    with_rows(monkeypatch, [Residual("s", "i", "check", kind, False, 0.1)])
    (band,) = (band for band in dse.evaluate("chip=wse2", "chip.clock=1 GHz", "workload.batch=[1]").bands if band.rows)
    assert "the unchanged chip" in str(band)


def test_comparisons_say_nothing_of_a_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    kind = result_kind({"chip": "wse2", "mapping": "waferllm"}, "", "static", "tpot", "analytical")
    with_rows(monkeypatch, [Residual("s", "i", "check", kind, True, 0.1), Residual("s", "j", "check", kind, True, -0.1)])
    band = residuals.estimate_error_band(kind, "tpot", 1e-3)
    assert band.measured_range is None
    assert "2 comparisons of" in str(band)


def test_the_file_that_ships_is_of_this_physics_and_of_kinds_that_answers_have() -> None:
    with residuals.FILE.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert tuple(rows[0]) == residuals.COLUMNS
    assert {row["role"] for row in rows} <= set(ROLES)
    evaluation = dse.evaluate("chip=wse2", "model=llama3_8b", "workload.batch=[1]", "mapping.simulated_layers=4")
    decode = next(band for band in evaluation.bands if band.metric == "tpot")
    own = [row for row in rows if (row["chip"], row["software"], row["phase"]) == ("wse2", "waferllm", "decode")]
    own = [row for row in own if (row["measure"], row["compares"]) == ("time", "0") and row["role"] in SCORED_ROLES]
    assert decode.rows == len(own) > 3
    assert band_text(decode) in " ".join(repr(evaluation).split())

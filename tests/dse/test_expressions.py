"""Metrics made of others: their values and units against Python's own arithmetic and pint, wherever metrics are read."""

import contextlib
import math
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dse
from dse.commands.notebook_api import StoredStudy, find_study
from dse.commands.run_study import run_study
from dse.config.metric_expressions import LABELLED, derive_metrics, input_metrics, parse_metric_expressions
from dse.evaluators import METRICS
from dse.evaluators.accounting.metrics import COLUMNS
from dse.execution.metric_checks import refuse_missing_metrics
from dse.execution.result_frame import report_order
from dse.report.payload import report_payload
from dse.space.errors import DesignError
from dse.store.store import Store
from tests.dse.toy import design_ids, searched, toy

Typed = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def as_they_were() -> Iterator[None]:
    """What tests define is forgotten."""
    yield
    for name in LABELLED:
        METRICS.pop(name, None)
    LABELLED.clear()


def worth(text: str, values: dict[str, Any]) -> Any:
    (result,) = derive_metrics(values, parse_metric_expressions({"metrics": {"mine": text}})).values()
    return result


NAMES = ("ttft", "tpot", "latency")
LEAVES = st.sampled_from(NAMES) | st.floats(0.1, 9).map(lambda number: f"{number:.3g}*ttft")
TREES = st.recursive(
    LEAVES, lambda inner: st.tuples(inner, st.sampled_from("+-"), inner).map(lambda part: f"({part[0]} {part[1]} {part[2]})")
)


@given(TREES, st.integers(0, 2**32 - 1))
@settings(max_examples=60)
def test_an_expression_is_worth_what_python_makes_of_it(text: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = {name: rng.uniform(0.1, 2, 5) for name in NAMES}
    assert worth(text, values) == pytest.approx(eval(text, {}, values))
    single = {name: float(column[2]) for name, column in values.items()}
    assert float(worth(f"-({text}) * 2 / power**2", {**single, "power": 3.0})) == pytest.approx(-eval(text, {}, single) * 2 / 9)


@pytest.mark.parametrize("sign", ["+", "-"])
def test_terms_in_other_prefixes_are_those_in_one(sign: str) -> None:
    values = {"ttft": np.array([0.5, 2.0]), "energy": np.array([3.0, 4.0])}
    ttft, energy = (worth(f"{name} {sign} '250 {unit}'", values) for name, unit in (("ttft", "ms"), ("energy", "uW*h")))
    turn = 1 if sign == "+" else -1
    assert ttft == pytest.approx(values["ttft"] + turn * 0.25)
    assert energy == pytest.approx(values["energy"] + turn * 250e-6 * 3600)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("goodput / power", "Hz/W"),
        ("throughput_per_system_mm2 * system_mm2", "token/s"),
        ("throughput * tpot", "token"),
        ("energy / energy_per_token", "token"),
        ("ttft / tpot", "1"),
        ("2 * ttft", "s"),
        ("(ttft + latency) * power - energy", "s*W"),
        ("tpot**2", "s**2"),
        ("system_mm2**-1", "1/mm2"),
    ],
)
def test_its_unit_comes_of_theirs(text: str, unit: str) -> None:
    assert parse_metric_expressions({"metrics": {"mine": text}})["mine"].unit == unit
    assert METRICS["mine"].unit == unit


def test_expressions_may_be_made_of_one_another() -> None:
    texts = {"a": "b * 2", "b": "c + ttft", "c": "tpot / 2"}
    metric_expressions = parse_metric_expressions({"metrics": texts, "objectives": {"b": "min"}})
    assert metric_expressions["a"].inputs == {"ttft", "tpot"}
    assert derive_metrics({"ttft": 1.0, "tpot": 4.0}, metric_expressions) == {"a": 6.0, "b": 3.0, "c": 2.0}
    assert set(input_metrics(["a", "power"], metric_expressions)) == {"ttft", "tpot", "power"}
    assert (METRICS["a"].better, METRICS["b"].better) == ("max", "min")


def test_what_comes_to_nothing_is_not_a_number() -> None:
    result = worth("ttft / preemptions", {"ttft": np.array([1.0, 0.0, 2.0]), "preemptions": np.array([0.0, 0.0, 4.0])})
    assert [math.isnan(value) for value in result] == [True, True, False]
    assert derive_metrics({"ttft": 1.0}, parse_metric_expressions({"metrics": {"mine": "ttft / power"}})) == {}


@pytest.mark.parametrize(
    ("metrics", "why"),
    [
        ({"mine": "goodputt / power"}, r"metrics.mine: no metric 'goodputt'; did you mean 'goodput'\? valid: "),
        ({"mine": "ttft + power"}, "metrics.mine: units do not fit, s \\+ W; both sides need the same"),
        ({"mine": "ttft - tpot * power"}, "units do not fit, s - s\\*W"),
        ({"mine": "load_status + 1"}, "load_status is a verdict"),
        ({"mine": "2 * 3"}, "is the same for all designs"),
        ({"mine": "ttft +"}, "is no expression; write names of metrics"),
        ({"mine": "__import__('os').getcwd()"}, "not allowed in an expression"),
        ({"mine": "[ttft for x in y]"}, "not allowed in an expression"),
        ({"mine": "ttft if power else tpot"}, "not allowed in an expression"),
        ({"mine": "ttft**tpot"}, "a power is a whole number up to 8"),
        ({"mine": "ttft**99"}, "a power is a whole number up to 8"),
        ({"mine": "(" * 400 + "ttft" + ")" * 400}, "is no expression"),
        ({"mine": None}, "is no expression"),
        ({"tpot": "ttft"}, "metrics.tpot: is a metric already"),
        *(({name: "ttft"}, f"metrics.{name}: tables of designs have a column of that name; give") for name in COLUMNS),
        ({"my metric": "ttft"}, "names have letters"),
        ({"a": "b", "b": "a + ttft"}, "metrics.a: depends on itself by b"),
        ({"a": "a + ttft"}, "metrics.a: depends on itself by itself"),
        (["ttft"], "is not expressions by name"),
    ],
)
def test_what_is_no_expression_is_refused_with_what_is_valid(metrics: Any, why: str) -> None:
    with pytest.raises(DesignError, match=why) as error:
        parse_metric_expressions({"metrics": metrics})
    assert len(str(error.value).splitlines()) == 1


def test_what_tables_have_beside_knobs_and_metrics_no_metric_is_named(tmp_path: Path) -> None:
    study = toy(
        tmp_path,
    )
    searched(study, budget=20)
    frame = report_order(study, StoredStudy(study).frame())
    knobs = {knob.address for knob in study.question.space.knobs}
    others = set(frame.columns) - knobs - METRICS.keys()
    assert others <= set(COLUMNS)
    assert {"search_order", "stage", "feasible", "front", "limit", "place"} <= others


PIECES = (
    "ttft",
    "tpot",
    "power",
    " ",
    "+",
    "-",
    "*",
    "/",
    "**",
    "(",
    ")",
    "2",
    "1e999",
    "9" * 400,
    "if",
    "is",
    "'a'",
    "[",
    "\n",
    "\0",
    "µ",
    "x.y",
    ",",
)


@pytest.mark.sampled
@given(st.lists(st.sampled_from(PIECES), max_size=9).map("".join) | st.text(max_size=20))
@settings(max_examples=150)
def test_any_text_is_an_expression_or_refused_in_a_line(text: str) -> None:
    given_error = ""
    try:
        (expression,) = parse_metric_expressions({"metrics": {"mine": text}}).values()
    except DesignError as error:
        given_error = str(error)
    assert given_error[:14] in ("", "metrics.mine: ")
    if not given_error:
        assert expression.inputs <= set(METRICS)
        assert np.shape(expression.worth(dict.fromkeys(expression.inputs, np.float64(2.0)))) == ()


def test_one_design_has_it_in_every_case_and_at_the_terminal(typed: Typed) -> None:
    line = ["chip=npu_dse", "workload.batch=[1,8]", "+metrics.per_joule='throughput / power'"]
    evaluation = dse.evaluate(line)
    assert evaluation.metrics["per_joule"] == pytest.approx(evaluation.metrics["throughput"] / evaluation.metrics["power"])
    for case in evaluation.cases:
        assert case.metrics["per_joule"] == pytest.approx(case.metrics["throughput"] / case.metrics["power"])
    _, out, _ = typed("evaluate", "--full", *line)
    assert "token/s/W" in out
    assert "per_joule" not in dse.evaluate(line[:2]).metrics
    code, _, err = typed("evaluate", "--full", line[0], "+metrics.mine='ttft + power'")
    assert (code, len(err.splitlines())) == (2, 1)


MINE = ("+metrics.per_dollar='throughput / system_price'", "~objectives", "+objectives={per_dollar: max, tpot: min}")


def test_a_study_screens_searches_and_shows_it(tmp_path: Path) -> None:
    bound = "+constraints.per_dollar='>= 0.002 token/USD/s'"
    study = toy(tmp_path, *MINE, bound, "screen.run=true", "screen.limit=128", "search.budget=60", "search=local")
    run_study(study)
    loaded = StoredStudy(study)
    frame = loaded.frame()
    good = frame[frame["feasible"]]
    assert set(frame["stage"]) == {"screen", "search"}
    rate = good["throughput"] / good["system_price"]
    assert np.allclose(good["per_dollar"][rate.notna()], rate[rate.notna()])
    assert good["per_dollar"].min() >= 0.002
    (column,) = [column for column in report_payload([loaded.part()])["columns"] if column["name"] == "per_dollar"]
    assert column["unit"] == "token/USD/s"
    why = loaded.why(design_ids(loaded)[0])
    assert "per_dollar" in why.changes[0].change
    assert loaded.whynot("chip.cores=300").point.metrics["per_dollar"] > 0


@pytest.mark.parametrize(
    ("metric", "why"),
    [
        ("tbt_p99", r"objectives\.x: is computed from tbt_p99, which belongs to served requests, got static batches"),
        ("cores", r"objectives\.x: it is computed from cores, and .* has no cores; it has"),
    ],
)
def test_what_no_design_has_is_refused_before_anything_is_evaluated_or_written(tmp_path: Path, metric: str, why: str) -> None:
    words = (f"+metrics.x='2 * {metric}'", "~objectives", "+objectives={x: min}", "screen.run=true")
    with pytest.raises(DesignError, match=why):
        run_study(toy(tmp_path / "none", *words))
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (
            ("fidelity=steady_state", "++objectives.x=min"),
            r"objectives\.x: .* no latency_p99 at fidelity=steady_state.* set fidelity=analytical",
        ),
        (
            ("screen.fidelity=steady_state", "+constraints.x='<= 9 s'"),
            r"constraints\.x: .*that of the screen.* set screen\.run=false",
        ),
        (("screen.fidelity=steady_state", "screen.run=false", "++objectives.x=min"), ""),
        (("fidelity=steady_state", "++objectives.y=min"), ""),
    ],
)
def test_what_the_steady_state_has_not_is_refused_where_it_screens(words: tuple[str, ...], why: str, tmp_path: Path) -> None:
    """And what it has, or what the loop will play, is not."""
    both = ("+metrics={x: 2 * latency_p99, y: tbt_p99 + ttft}", "screen.run=true", "workload.requests=20")
    study = find_study("npu_serving", *both, *words, f"run_dir={tmp_path}")
    with pytest.raises(DesignError, match=why) if why else contextlib.nullcontext():
        refuse_missing_metrics(study)


def test_an_expression_that_comes_to_no_number_is_refused_as_such(tmp_path: Path) -> None:
    study = toy(tmp_path, "+metrics.x='throughput / (ttft - ttft)'", "+objectives.x=max")
    with pytest.raises(DesignError, match=r"objectives\.x: 'throughput / \(ttft - ttft\)' is no finite number"):
        refuse_missing_metrics(study)


def test_stored_results_do_not_know_it_so_that_another_meaning_uses_them(tmp_path: Path) -> None:
    study = toy(tmp_path, *MINE)
    searched(study, budget=30)
    with closing(Store(study.store, create=False)) as store:
        known = store.results(study.context)
    assert known
    assert not any("per_dollar" in result.metrics for result in known.values())
    other = toy(tmp_path, "+metrics.per_dollar='decode_throughput / system_price'", *MINE[1:], "name=other")
    results = searched(other, budget=30)
    with closing(Store(study.store, create=False)) as store:
        assert set(store.results(study.context)) >= set(known)
    result = next(iter(known.values()))
    for _, _, key, (worth, _) in results:
        if key in known:
            result = known[key]
            assert worth is None or "decode_throughput" in result.metrics
    frame = StoredStudy(other).frame()
    assert np.allclose(frame["per_dollar"], frame["decode_throughput"] / frame["system_price"])
    assert study.identity() != replace(other, config=study.config).identity()


def test_one_page_has_no_two_meanings_of_a_name(tmp_path: Path) -> None:
    study = toy(tmp_path / "one", *MINE)
    two = toy(tmp_path / "two", "+metrics.per_dollar='decode_throughput / system_price'", *MINE[1:])
    for wanted_study in (study, two):
        searched(wanted_study, budget=10)
    with pytest.raises(DesignError, match=r"metrics.per_dollar: .* rename one of them"):
        report_payload([StoredStudy(study).part(), StoredStudy(two).part()])

"""Metrics in rows are the same numbers as in dictionaries, in results, in the store and in the table of a search."""

import json
import pickle
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.config.metric_expressions import extend_with_derived_metrics
from dse.evaluators import METRICS
from dse.execution.ask_tell import read_stored_asks
from dse.execution.result_frame import KEY, SEARCH_ORDER, search_frame
from dse.search.samplers import Ask
from dse.space.knobs import ChoiceKnob
from dse.store.metric_row import MetricRow, pack_metrics
from dse.store.store import DesignResult, ResultContext, Store
from tests.dse.toy import toy

NAMES = st.sampled_from(["tpot", "latency", "die_mm2", "cycles"])


@given(st.dictionaries(NAMES, st.floats(), min_size=1))
def test_a_row_is_the_dictionary_that_it_was_made_of(metrics: dict[str, float]) -> None:
    row = pack_metrics(metrics)
    assert isinstance(row, MetricRow)
    again = pickle.loads(pickle.dumps(row))
    for packed in (row, again):
        assert list(packed) == list(metrics)
        np.testing.assert_array_equal([*packed.values()], [*metrics.values()])
    assert json.dumps(dict(row)) == json.dumps(metrics)
    assert all(name in row for name in metrics)
    assert "none" not in row
    with pytest.raises(KeyError):
        row["none"]


@pytest.mark.parametrize("metrics", [{}, {"tpot": 1}, {"tpot": None, "latency": 1.0}])
def test_what_is_no_row_of_floats_stays_as_it_is(metrics: dict[str, float]) -> None:
    assert pack_metrics(metrics) is metrics


def test_a_result_in_a_row_is_stored_as_it_was(tmp_path: Path) -> None:
    context, metrics = ResultContext("w", "analytical", 1), {"tpot": 0.1, "latency": 3.0}
    result = DesignResult("d" * 32, {"chip.cores": 3}, pack_metrics(metrics))
    with closing(Store(str(tmp_path / "s.sqlite"))) as store:
        store.append("s", context, ("b", "{}"), [], [result])
        again = store.results(context)[result.key]
    assert isinstance(again.metrics, MetricRow)
    assert again == result == DesignResult("d" * 32, {"chip.cores": 3}, metrics)


def test_the_table_of_a_search_is_that_of_its_dictionaries(tmp_path: Path) -> None:
    study = toy(tmp_path)
    knobs = study.question.space.knobs
    results: dict[int, tuple[Ask, DesignResult]] = {}
    for number in range(40):
        drawn = (knob.values[number % len(knob.values)] if isinstance(knob, ChoiceKnob) else 1.5 * number for knob in knobs)
        values = dict(list(zip((knob.address for knob in knobs), drawn, strict=True))[number % 2 :])
        metrics = {name: 1.0 + number * place for place, name in enumerate([*METRICS][: 1 + number % 9])}
        limit = ("chip.die.reticle", 2.0, 1.0) if number % 3 == 0 else ("", 0.0, 0.0)
        error = "fails" if number % 7 == 0 else ""
        result = DesignResult(f"{number % 30:032x}", values, {} if error else metrics, *limit, 0.1, error)
        results[number] = (Ask(number, values), result)
    seen: dict[str, dict[str, object]] = {}
    for number, (ask, result) in results.items():
        excess = result.need / result.have - 1 if result.limit and result.have else 0.0
        metrics = dict(extend_with_derived_metrics(result.metrics, study.question.defined))
        row = {KEY: result.key, SEARCH_ORDER: number, **ask.values, **metrics}
        seen.setdefault(result.key, row | {"limit": result.limit or None, "excess": excess, "error": result.error or None})
    columns = [KEY, SEARCH_ORDER, *(knob.address for knob in knobs), *METRICS, "limit", "excess", "error"]
    expected = pd.DataFrame([*seen.values()], columns=columns)
    packed = {
        number: (ask, DesignResult(result.key, result.values, pack_metrics(result.metrics), *list_rest(result)))
        for number, (ask, result) in results.items()
    }
    pd.testing.assert_frame_equal(search_frame(study, results), expected)
    pd.testing.assert_frame_equal(search_frame(study, packed), expected)


def list_rest(result: DesignResult) -> list[object]:
    return [result.limit, result.need, result.have, result.seconds, result.error]


def test_asks_that_are_read_share_the_values_of_their_results(tmp_path: Path) -> None:
    study = toy(tmp_path)
    ask, values = Ask(0, {"chip.cores": 3, "mapping.both.tp": 4}), {"mapping.both.tp": 4, "chip.cores": 3}
    other = Ask(1, {"mapping.both.tp": 4, "chip.cores": 3})
    with closing(Store(study.store)) as store:
        result = DesignResult("d" * 32, values, {"tpot": 0.1})
        store.append("toy", study.context, ("b", "{}"), [(ask, result.key), (other, result.key)], [result])
        asks = read_stored_asks(study, store)
    assert [list(asks[number][0].values) for number in asks] == [list(ask.values), list(other.values)]
    assert asks[1][0].values is asks[1][1].values

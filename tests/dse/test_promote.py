"""Search by two fidelities: what is asked, what is stored of whom, and that it goes on as it was."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from dse.commands.api import study_of
from dse.commands.loop import run_study
from dse.running.study import Study
from dse.search.acquisition import Below, Known, Lower, Promise
from dse.search.encoding import Places
from dse.space.errors import DesignError
from dse.space.knobs import Interval, Space
from dse.store.store import Store
from tests.samples import asked

PRODUCT = (
    "fidelity=events",
    "workload.shapes=[64x96x64]",
    "space.mapping.rows='range(4,17,4)'",
    "+space.mapping.cols='range(4,17,4)'",
    "+space.chip.core.sram='tag(KiB, choice(8,16,32))'",
    "+objectives.die_mm2=min",
    "search=auto",
    "search.promote=closed",
    "search.window=4",
    "verify=none",
    "workers=serial",
)


def product(folder: Path, *overrides: str) -> Study:
    """Products on small meshes by events, promoted from the closed form."""
    return study_of("waferllm_gemm", *PRODUCT, f"run_dir={folder}", *overrides)


def asks(study: Study) -> list[dict[str, object]]:
    """What a study asked at its fidelity, in order."""
    with closing(Store(study.store)) as store:
        name = store.search(study.name, study.identity())
        return [ask.values for ask, _ in store.asks(name, study.context.physics)]


@pytest.mark.parametrize("screened", ["screen.run=true", "screen.run=false"])
def test_a_search_that_goes_on_promotes_what_it_would_have_at_once(tmp_path: Path, screened: str) -> None:
    whole, parts = (product(tmp_path / name, screened, "search.budget=24") for name in ("whole", "parts"))
    run_study(whole)
    for budget in (7, 15):
        run_study(product(tmp_path / "parts", screened, f"search.budget={budget}"))
    run_study(parts)
    assert asks(parts) == asks(whole)
    assert len(asks(whole)) == 24


def test_every_row_says_at_which_fidelity_it_was_evaluated(tmp_path: Path) -> None:
    study = product(tmp_path, "screen.run=false", "search.budget=10")
    run_study(study)
    with closing(Store(study.store)) as store:
        dear, cheap = store.results(study.context), store.results(study.context_at("closed"))
    assert len(dear) == 10
    assert dear.keys() < cheap.keys()  # the lower fidelity prices designs before they are promoted
    assert all("latency" in result.metrics for result in dear.values())


def test_the_first_to_be_promoted_are_of_the_lower_fidelitys_front(tmp_path: Path) -> None:
    study = product(tmp_path, "search.budget=4")
    run_study(study)
    closed = study_of("waferllm_gemm", *PRODUCT[1:6], "verify=none", f"run_dir={tmp_path / 'closed'}")
    run_study(closed)
    from dse.running.screen import screen

    front = screen(closed, lambda done, total, size: None).front
    names = [knob.address for knob in closed.question.space.knobs]
    members = {tuple(row[name] for name in names) for row in front.to_dict("records")}
    assert {tuple(values[name] for name in names) for values in asks(study)} <= members


def test_a_discrepancy_that_is_known_leaves_nothing_to_doubt() -> None:
    """The dear fidelity takes 1.3 times the lower one's square root: a model of both learns it from few."""
    base = asked("chip=npu_dse").base
    space = Space(base, (Interval("chip.l2.size", 1.0, 2.0), Interval("chip.hbm.bandwidth", 1.0, 2.0)))
    rng = np.random.default_rng(0)

    def low(rows: np.ndarray) -> np.ndarray:
        return np.stack([np.exp(np.sin(9 * rows[:, 0]) + np.cos(7 * rows[:, 1])), 2 + rows[:, 1]], axis=1)

    def high(rows: np.ndarray) -> np.ndarray:
        return np.asarray(1.3 * np.sqrt(low(rows)))

    rows, others, none = rng.random((14, 2)), rng.random((200, 2)), np.zeros((0, 2))
    known = Known(rows, high(rows), np.zeros(14), [0, 1], none, np.zeros(0))
    below = Below(Lower(low(rows), np.zeros(14)), Lower(low(others), np.zeros(200)))
    errors = []
    for of in (None, below):
        means, _ = Promise(Places(space))._predicted(known, others, of)
        errors.append(float(np.abs(means - np.log(high(others))).mean()))
    assert errors[1] < errors[0] / 3


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (("search.promote=events",), "search.promote: no 'events'; say closed, steady, or null for one fidelity"),
        (("fidelity=closed",), "search.promote: closed is not below fidelity=closed of this chip for this workload"),
        (
            ("search.promote=steady",),
            "search.promote: steady is not below fidelity=events of this chip for this workload; say closed",
        ),
        (("search=nsga2",), "search.promote: search.sampler=nsga2 asks by one fidelity; say auto or local"),
    ],
)
def test_what_nobody_can_promote_is_refused(tmp_path: Path, overrides: tuple[str, ...], message: str) -> None:
    words = [word for word in PRODUCT if word.partition("=")[0] not in {one.partition("=")[0] for one in overrides}]
    with pytest.raises(DesignError) as refused:
        study_of("waferllm_gemm", *words, f"run_dir={tmp_path}", *overrides)
    assert str(refused.value).startswith(message)

"""Fits of library parts: what is fitted is what is evaluated, constants come back, and files that ship say what they do."""

from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dse.accuracy.validate import compose_question, simulate_metric
from dse.evaluators.kernels import library
from dse.space.errors import DesignError
from dse.space.number_formats import BYTES_BY_FORMAT
from dse.studies.gpu_measured import fit
from dse.studies.gpu_measured.measured import EVERY, EVERY_OF_GROUP, FittedPart, die_of, spread
from tests.published.drawn_tables import tables

TABLES = Path(__file__).resolve().parents[3] / "shared" / "validation" / "silicon"


def parts(kind: str, folder: Path) -> list[FittedPart]:
    parts: list[FittedPart] = import_module(f"dse.studies.gpu_measured.{kind}").parts(folder)
    return parts


def shipped(part: FittedPart) -> Any:
    """The constants that conf has of a part."""
    question = compose_question((f"chip={part.chip}", f"stack={part.stack}")).question
    return getattr(question.base.mapping.stack, part.kind)


@pytest.mark.slow
@pytest.mark.parametrize("kind", fit.KINDS)
def test_what_is_fitted_is_what_is_evaluated(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forms by themselves: drawn rows lie outside measured ranges too, where answers are limited."""
    monkeypatch.setattr(library, "extrapolate", lambda form, *_: form)
    for part in parts(kind, tables(tmp_path)):
        constants, silicon = shipped(part), die_of(part.chip)
        for row in part.rows:
            sizes = {name: np.array([value]) for name, value in row.sizes.items()}
            expected = float(part.seconds(sizes, row.sort, constants, silicon)[0])
            if not row.words:  # exchanges with experts are no workload by themselves
                assert part.kind == "moe_all_to_all"
                continue
            words = (f"chip={part.chip}", f"stack={part.stack}", *row.words.split())
            assert simulate_metric(words, "latency", strict=False) == pytest.approx(expected, rel=1e-9), row.words


def test_numbers_that_rows_were_made_with_come_back(tmp_path: Path) -> None:
    part = next(part for part in parts("products", tables(tmp_path)) if part.stack == "eager_a100")
    drawn = np.random.default_rng(5)
    true = np.array([drawn.uniform(low + 0.2 * (high - low), high) for low, high in zip(part.low, part.high, strict=True)])
    true = np.where(np.array(part.names) == "start", true / 10, true)
    sizes = [
        {"m": 2.0 ** drawn.integers(0, 14), "k": 1024.0 * drawn.integers(1, 9), "n": 1024.0 * drawn.integers(1, 9)}
        for _ in range(40)
    ]
    rows = [replace(part.rows[0], sizes=size | {"quantised": 0.0}, seconds=1.0) for size in sizes]
    seconds = replace(part, rows=tuple(rows)).simulated_seconds(true, np.arange(len(rows)))
    rows = [replace(row, seconds=float(value)) for row, value in zip(rows, seconds, strict=True)]
    refit = fit.fit_part(replace(part, rows=tuple(rows)))
    assert spread(refit.errors)[2] < 0.02
    assert spread(refit.held_out)[1] < 0.05


def test_no_part_has_more_numbers_than_are_fitted_at_most(tmp_path: Path) -> None:
    for kind in fit.KINDS:
        for part in parts(kind, tables(tmp_path)):
            assert len(part.names) <= fit.MAX_NUMBERS
            fitted = {name for name, _ in part.constants(np.array(part.start)).items()} - set(part.said)
            assert fitted == set(part.names)


def test_what_follows_another_part_has_its_number(tmp_path: Path) -> None:
    """Both kernels of attention over latents convert at one rate, which is fitted on prompts."""
    prompts, steps = parts("latent", tables(tmp_path))
    assert shipped(prompts).convert == shipped(steps).convert
    with pytest.raises(DesignError, match="fit that before"):
        fit.fit_part(steps)
    with pytest.raises(DesignError, match="mla_prefill_attention, which is not fitted yet"):
        steps.with_known_parts({})
    values = np.array(prompts.start)
    values[prompts.names.index("convert")] = rate = np.random.default_rng(22).uniform(0.5, 2.0)
    after = steps.with_known_parts({(prompts.kind, prompts.stack): prompts.record(values)})
    assert after.record(np.array(steps.start)).convert == rate
    assert np.isfinite(fit.fit_part(after).errors).all()


def test_without_tables_it_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fit.main([str(tmp_path / "nowhere")]) == 1
    assert "skipped" in capsys.readouterr().err
    with pytest.raises(DesignError, match=r"has no aic_gemm\.csv"):
        fit.main([str(tmp_path), str(tmp_path / "out"), str(tmp_path / "pages")])


MOST = {
    "products": (0.08, 0.19),
    "experts": (0.065, 0.18),
    "elementwise": (0.075, 0.23),
    "attention": (0.06, 0.2),
    "latent": (0.06, 0.14),
    "collectives": (0.06, 0.15),
    "engines": (0.075, 0.25),
    "dispatch": (0.08, 0.2),
}
"""Median and 90 % of absolute errors over all given rows of any stack."""


@pytest.mark.skipif(not TABLES.exists(), reason="the measured tables are not beside this checkout")
@pytest.mark.parametrize("kind", fit.KINDS)
def test_files_that_ship_come_as_near_as_they_say(kind: str) -> None:
    for part in parts(kind, TABLES):
        constants, silicon = shipped(part), die_of(part.chip)
        errors = []
        for row in part.rows:
            sizes = {name: np.array([value]) for name, value in row.sizes.items()}
            errors.append(np.log(part.seconds(sizes, row.sort, constants, silicon)[0] / row.seconds))
        median, most, _ = spread(np.array(errors))
        assert median < MOST[kind][0], part.stack
        assert most < MOST[kind][1], part.stack


def test_formats_of_tables_are_formats() -> None:
    from dse.studies.gpu_measured.products import FORMATS

    assert {name for weights, act, _ in FORMATS.values() for name in (weights, act)} <= set(BYTES_BY_FORMAT)


def test_roles_of_added_rows_leave_others_as_they_are(tmp_path: Path) -> None:
    """Each fifth of the given rows is a check, and each second of a group, whatever their order."""
    part = next(part for part in parts("products", tables(tmp_path)) if part.stack == "trtllm_h100")
    given = tuple(row for row in part.rows if not row.group)
    checks, alone = part.checks(), replace(part, rows=given).checks()
    assert np.array_equal(checks[: len(given)], alone)
    for group, places in part.groups().items():
        every = EVERY_OF_GROUP if group else EVERY
        assert np.array_equal(checks[places], np.arange(len(places)) % every == every - 1)

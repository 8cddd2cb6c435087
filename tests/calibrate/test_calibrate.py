"""Constants come back from rows that a known chip made with noise; what rows do not say is named; bad input is one line."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dse.accuracy.calibrate import Calibration, calibrate
from dse.accuracy.least_squares import ConstantBounds, fit_with_statistics, log_ratios, start_vectors
from dse.commands.calibrate_output import calibration_record, describe_determination, format_constants_yaml, write_calibration
from dse.config.compose import compose
from dse.space.errors import DesignError
from tests.calibrate.rows import CHIP, SAMPLE, TRUTH, rows

FIT = f"fit=[{','.join(TRUTH)}]"


@pytest.fixture(scope="module")
def sample() -> Calibration:
    return calibrate(SAMPLE, [*CHIP, FIT])


def test_the_sample_is_what_its_program_writes() -> None:
    assert SAMPLE.read_text() == rows(TRUTH, 0.03, 1)


def test_known_constants_come_back_within_their_intervals(sample: Calibration) -> None:
    for constant, (low, high), truth in zip(sample.constants, sample.fitted.interval, TRUTH.values(), strict=True):
        assert low <= truth <= high, constant.address
    after = np.abs(sample.errors("check", sample.after))
    assert np.median(after) < 0.06 < np.median(np.abs(sample.errors("check", sample.before)))
    assert sample.held_out is not None
    assert np.median(np.abs(sample.held_out)) < 0.06


@pytest.mark.slow
def test_the_same_seed_gives_the_same(sample: Calibration) -> None:
    assert calibration_record(calibrate(SAMPLE, [*CHIP, FIT])) == calibration_record(sample)


def test_what_is_written_composes(sample: Calibration, tmp_path: Path) -> None:
    write_calibration(sample, tmp_path / "mine" / "calibration.yaml", as_json=True)
    config = compose(["--config-dir", str(tmp_path), "+mine@_global_=calibration", *CHIP])
    entry = config["mapping"]["stack"]["hbm_efficiency"]
    assert (entry["source"], entry["fitted_on"]) == ("fitted", ["a100"])
    assert entry["value"] == pytest.approx(sample.fitted.values[1], rel=1e-3)
    assert "Measured and simulated" in (tmp_path / "mine" / "calibration.html").read_text()


def test_what_rows_do_not_say_is_named() -> None:
    calibration = calibrate(
        SAMPLE, [*CHIP, "folds=2", "fit=[chip.network.nodes.bandwidth,chip.hbm.bandwidth,mapping.stack.hbm_efficiency]"]
    )
    assert "no row depends on it" in describe_determination(calibration, 0)
    assert "chip.hbm.bandwidth" in describe_determination(calibration, 2)
    assert "nodes" not in format_constants_yaml(calibration, Path("x/y.yaml"))


@settings(max_examples=25, deadline=None)
@given(st.floats(1e-6, 5e-5), st.floats(0.2, 1.0), st.integers(0, 1000))
def test_random_constants_come_back(overhead: float, share: float, seed: int) -> None:
    work = np.geomspace(1e-7, 1e-2, 24)
    truth = np.array([overhead, share])

    def model(vectors: np.ndarray) -> np.ndarray:
        return np.asarray(vectors[:, :1] + work / vectors[:, 1:])

    measured = model(truth[None])[0]
    bounds = ConstantBounds(np.array([1e-5, 0.5]), np.array([0.0, 1e-3]), np.array([np.inf, 1.0]), np.array([1e-5, 0.5]))
    result = fit_with_statistics(model, measured, measured, bounds, start_vectors(model, bounds, seed))
    assert result.values == pytest.approx(truth, rel=1e-3)
    assert np.abs(log_ratios(model(result.values[None]), measured, measured)).max() < 1e-3


def test_a_constant_comes_back_where_a_schedule_has_steps() -> None:
    """Times with steps of 6 % every percent of the constant: descents alone end between two of them."""
    truth = 0.6

    def model(vectors: np.ndarray) -> np.ndarray:
        steps = np.random.default_rng(1).random(200)[(vectors * 120).astype(int) % 200]
        return np.concatenate([1 / vectors, (1 + 0.06 * steps) / vectors**0.2], axis=1)

    measured = model(np.array([[truth]]))[0]
    bounds = ConstantBounds(np.array([0.82]), np.array([1e-3]), np.array([1.0]), np.array([0.82]), 0.02, 1e-4, scanned=True)
    begun = start_vectors(model, bounds, 0, 8)
    assert fit_with_statistics(model, measured, measured, bounds, begun).values == pytest.approx([truth], rel=1e-4)
    rough = fit_with_statistics(model, measured, measured, replace(bounds, scanned=False), begun)
    assert rough.values != pytest.approx([truth], rel=1e-3)


def test_two_constants_come_back_where_a_schedule_has_steps() -> None:
    work = np.geomspace(0.1, 10.0, 6)

    def model(vectors: np.ndarray) -> np.ndarray:
        steps = np.random.default_rng(1).random(200)[(vectors[:, 1:] * 40).astype(int) % 200]
        return np.asarray(vectors[:, :1] + work / vectors[:, 1:] * (1 + 0.06 * steps))

    truth = np.array([0.3, 0.6])
    measured = model(truth[None])[0]
    start, low = np.array([0.9, 0.82]), np.array([0.0, 1e-3])
    bounds = ConstantBounds(start, low, np.array([2.0, 1.0]), start, 0.02, 1e-4, scanned=True)
    result = fit_with_statistics(model, measured, measured, bounds, start_vectors(model, bounds, 0, 8))
    assert result.values == pytest.approx(truth, rel=1e-3)


def test_errors_before_are_those_of_the_present_constant(tmp_path: Path) -> None:
    """A range that leaves the present value out does not move what it is compared with."""
    path = tmp_path / "rows.csv"
    path.write_text(HEAD + "".join(f"{each},,{GEMM},,latency,{each},us,calibration,\n" for each in (4, 5)))
    words = (*CHIP, "folds=2")
    inside, outside = (
        calibrate(path, [*words, f"fit=[mapping.stack.operator_launch={bounds}]"]) for bounds in ("0..50 us", "20..50 us")
    )
    assert outside.constants[0].before < outside.constants[0].low
    assert outside.before == pytest.approx(inside.before)


def test_a_constant_that_matters_where_it_began_is_not_put_back_there() -> None:
    """A rate whose best place is so high that rows no longer say it: back where it began they would be twice as slow."""
    sizes = np.arange(1.0, 21.0)

    def model(vectors: np.ndarray) -> np.ndarray:
        return vectors[:, :1] * sizes + sizes / vectors[:, 1:]

    measured = sizes.copy()
    bounds = ConstantBounds(np.array([0.5, 1.0]), np.array([0.0, 0.1]), np.array([10.0, 1e6]), np.array([0.5, 1.0]))
    begun = (np.array([[1.0, 9e5]]), model(np.array([[1.0, 9e5]])))
    result = fit_with_statistics(model, measured, measured, bounds, begun)
    assert np.abs(log_ratios(model(result.values[None]), measured, measured)).max() < 1e-3
    assert not result.unmoved
    assert result.values[1] > 100


HEAD = "id,where,overrides,baseline,metric,value,unit,role,note\n"
GEMM = "mapping=tensor_parallel workload=gemm workload.shapes=[1x512x512]"


@pytest.mark.parametrize(
    ("text", "word", "hint"),
    [
        (f"a,,{GEMM},,latency,5,us,fitted,\n", FIT, "row 2 (a): column role: no role 'fitted'"),
        (f"a,,{GEMM},,latency,-5,us,calibration,\n", FIT, "row 2 (a): column value: '-5' is not a number above 0"),
        (f"a,,{GEMM},,latency,5,B,calibration,\n", FIT, "row 2 (a): column unit: '1 B' is a quantity of B, expected one of s"),
        (f"a,,{GEMM},,latncy,5,us,calibration,\n", FIT, "column metric: "),
        ("a,,workload=gem,,latency,5,us,calibration,\n", FIT, "column overrides: workload: no option 'gem'"),
        (f"a,,{GEMM},,latency,5,us,calibration,\n", FIT, "1 rows of role calibration for 3 constants"),
        (f"a,,{GEMM},,latency,5,us,calibration,\n", "fit=[chip.hbm.capacityy]", "did you mean 'capacity'"),
        (f"a,,{GEMM},,latency,5,us,calibration,\n", "fit=[chip.cores]", "chip.cores: 108 is a whole number of things"),
        (
            f"a,,{GEMM},,latency,5,us,calibration,\n",
            "fit=[chip.hbm.strided_row_overhead]",
            "give a range, as in chip.hbm.strided_row_overhead=0..20 s",
        ),
        (
            f"a,,{GEMM},,latency,5,us,calibration,\n",
            "fit=[chip.hbm.strided_row_overhead=9..2 ns]",
            "is not a range, low end first, within",
        ),
        (f"a,,{GEMM},,latency,5,us,calibration,\n", "fit=[]", "name the constants to fit"),
    ],
)
def test_bad_input_is_refused_in_one_line(text: str, word: str, hint: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(HEAD + text)
    with pytest.raises(DesignError) as error:
        calibrate(path, [*CHIP, word])
    assert hint in str(error.value)
    assert len(str(error.value).splitlines()) == 1

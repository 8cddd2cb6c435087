"""Published optima that lie on a plateau, values from which on a metric stays, means of ratios, and ratios of ratios."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.accuracy.validate import FLAT, ValidationRow, _plateau_bounds, compare_file
from dse.space.errors import DesignError

HEAD = "id,where,overrides,baseline,metric,value,unit,role,note\n"
SPACE = "study=preserve_l2 space=l2 model=[llama3_8b] workload.batch=[8] workload.sequence=[4096]"


@given(st.lists(st.floats(0.9, 2.0), min_size=1, max_size=20))
def test_the_plateau_is_around_the_best_and_all_behind_the_end_is_settled(losses: list[float]) -> None:
    values, given_ = np.arange(len(losses)) * 8.0, np.array(losses)
    ends = _plateau_bounds(values, given_, "knob")
    first, settled, last = (len(losses) if np.isnan(end) else int(end / 8) for end in ends)
    limit = given_.min() + FLAT * given_.min()
    assert first <= int(given_.argmin()) <= last
    assert (given_[first : last + 1] <= limit).all()
    assert first == 0 or given_[first - 1] > limit
    assert last == len(losses) - 1 or given_[last + 1] > limit
    assert (given_[settled:] <= limit).all()
    assert settled == 0 or given_[settled - 1] > limit


@given(st.permutations(list(range(8))))
def test_the_order_of_designs_does_not_matter(order: list[int]) -> None:
    losses = np.array([3.0, 2.0, 1.5, 1.005, 1.0, 1.008, 1.02, 1.001])
    place = np.array(order)
    assert _plateau_bounds(place * 1.0, losses[place], "knob") == (3.0, 7.0, 5.0)


def rows(folder: Path, *metrics: str) -> list[ValidationRow]:
    path = folder / "published.csv"
    path.write_text(HEAD + "".join(f'{number},x,{SPACE},,"{row}",MB,report,\n' for number, row in enumerate(metrics)))
    return compare_file(path)


def test_a_published_value_on_the_plateau_is_right_and_one_beside_it_is_off_by_the_way_there(tmp_path: Path) -> None:
    best = "(chip.l2.size, decode_throughput_per_die_mm2)"
    peak, wide, *others = rows(
        tmp_path, *(f'{kind}{best}","{value}' for kind, value in (("at_peak", 1), ("plateau", 1), ("plateau", 1000)))
    )
    assert peak.simulated == wide.simulated == others[0].simulated
    assert wide.error is not None
    assert peak.error is not None
    assert others[0].error is not None
    assert 0 <= wide.error <= peak.error
    assert others[0].error < 0
    row = rows(tmp_path, f'plateau{best}","{peak.simulated}')[0]
    assert row.error == 0


@pytest.mark.parametrize("what", ["reached(latency)", "plateau(latency)", "peak(chip.l2.size, latency)"])
def test_a_metric_that_names_too_little_or_too_much_is_refused(tmp_path: Path, what: str) -> None:
    with pytest.raises(DesignError, match="expected peak"):
        rows(tmp_path, f'{what}","8')


def test_a_mean_of_ratios_is_of_each_case_by_itself(tmp_path: Path) -> None:
    words = "chip=npu64 model=qwen3_1b7 workload.batch=[1] workload.output=1 mapping.prefill.partition="
    lengths = [64, 700, 3000]
    lines = [
        f'{number},x,"{words}mn workload.prompt={str(prompts).replace(" ", "")}",{base},{metric},1,ratio,report,'
        for number, (prompts, metric, base) in enumerate(
            [
                (lengths, "each(ttft)", "mapping.prefill.partition=k"),
                *(([length], "ttft", "mapping.prefill.partition=k") for length in lengths),
            ]
        )
    ]
    path = tmp_path / "published.csv"
    path.write_text(HEAD + "\n".join(lines) + "\n")
    mean, *each = (row.simulated for row in compare_file(path))
    assert mean == pytest.approx(np.mean([gain for gain in each if gain is not None]))


def test_a_mean_of_ratios_needs_what_they_are_to(tmp_path: Path) -> None:
    with pytest.raises(DesignError, match=r"each\(latency\) is a ratio; set the column baseline"):
        rows(tmp_path, 'each(latency)","8')


PAIR = "chip=npu_dse model=llama3_8b mapping.prefill.tp=8 workload.batch=[4]"
GAIN = "ratio(mapping.prefill.prefetch=none, tokens_per_s_per_user)"


def simulated(folder: Path, *lines: str) -> list[float]:
    path = folder / "published.csv"
    path.write_text(HEAD + "".join(f"{number},x,{line}\n" for number, line in enumerate(lines)))
    return [row.simulated or 0.0 for row in compare_file(path)]


@pytest.mark.parametrize("other", ["workload.sequence=[1024]", "mapping.both.tp=2", "model=qwen2_7b"])
def test_a_ratio_of_ratios_is_that_of_its_four_figures(tmp_path: Path, other: str) -> None:
    plain = [f"{PAIR} {words},,tokens_per_s_per_user,1,token/s,report," for words in ("mapping.prefill.prefetch=whole", other)]
    without = [
        f"{PAIR} mapping.prefill.prefetch=none {words},,tokens_per_s_per_user,1,token/s,report," for words in ("", other)
    ]
    lines = f'{PAIR},,"{GAIN}",1,ratio,report,', f'{PAIR},{other},"{GAIN}",1,ratio,report,'
    near_value, far_value, off, off_there, gain, gains = simulated(tmp_path, *plain, *without, *lines)
    assert gain == pytest.approx(near_value / off)
    assert gains == pytest.approx(near_value / off / (far_value / off_there))
    assert gain > 1


@pytest.mark.parametrize("what", ["ratio(tokens_per_s_per_user)", "ratio(mapping.prefill.prefetch=none)", "ratio(a=b, c, d)"])
def test_a_ratio_that_names_no_override_or_no_metric_is_refused(tmp_path: Path, what: str) -> None:
    with pytest.raises(DesignError):
        simulated(tmp_path, f'{PAIR},,"{what}",1,ratio,report,')


def test_a_ratio_has_no_unit(tmp_path: Path) -> None:
    with pytest.raises(DesignError):
        simulated(tmp_path, f'{PAIR},,"{GAIN}",1,s,report,')

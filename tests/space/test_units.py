import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dse.space.errors import DesignError
from dse.space.units import DEFINITIONS, choose_display_unit, format_quantity, parse_quantity


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("48 KiB", "B", 48 * 1024),
        ("64 MB", "B", 64e6),
        ("1.84 TB/s", "B/s", 1.84e12),
        ("200 Gbit/s", "B/s", 25e9),
        ("25 us", "s", 25e-6),
        ("0.36 mm2/MB", "mm2/B", 0.36e-6),
        ("1.84 Top/s", "op/s", 1.84e12),
    ],
)
def test_a_quantity_is_read_in_si(text: str, unit: str, value: float) -> None:
    assert parse_quantity(text, unit) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "unit"), [("64", "B"), ("64 us", "B"), ("64 MBB", "B"), ("", "s"), ("MB MB", "B"), ("8 op/s", "B/s")]
)
def test_what_is_no_quantity_of_that_unit_is_refused(text: str, unit: str) -> None:
    with pytest.raises(DesignError):
        parse_quantity(text, unit)


@pytest.mark.parametrize(("value", "unit"), [(104e6, "B"), (2.5e-5, "s"), (12e12, "B/s"), (3.0, "1"), (5e-9, "s")])
def test_what_is_shown_reads_back(value: float, unit: str) -> None:
    assert parse_quantity(format_quantity(value, unit, digits=12), unit) == pytest.approx(value)


@given(st.floats(1e-6, 1e6), st.sampled_from(["/cm2", " /cm2", "1/cm2", " 1/cm2"]))
def test_a_number_keeps_its_digits_before_a_unit_that_begins_with_one(number: float, unit: str) -> None:
    text = f"{number!r}{unit}"
    if unit == "1/cm2":  # its 1 is the last digit of a number
        assert parse_quantity(text, "1/cm2") == float(f"{number!r}1")
    else:
        assert parse_quantity(text, "1/cm2") == number


def test_an_axis_divisor_and_its_label_agree() -> None:
    divisor, label = choose_display_unit(256e6, "B")
    assert 256e6 / divisor == pytest.approx(256e6 / parse_quantity(f"1 {label}", "B"))


def test_every_unit_is_defined_once_and_read_with_every_prefix() -> None:
    names = [name for line in DEFINITIONS.splitlines() for name in line.split(" = ")[::2] if name]
    assert len(names) == len(set(names))
    assert parse_quantity("1 Mbit/s", "B/s") == parse_quantity("1e6 bit/s", "B/s") == 125e3
    assert parse_quantity("1 MiB", "B") == 2**20
    assert parse_quantity("1 EB", "B") == 1e18
    assert parse_quantity("3 min", "s") == 180
    assert parse_quantity("5 USD/mm2", "USD/mm2") == 5


def test_nothing_is_kept_of_the_units_and_a_home_is_not_needed(tmp_path: Path) -> None:
    """What reads right because an earlier run left a cache is wrong on a new machine."""
    code = (
        "from dse.space.units import parse_quantity; "
        "print(parse_quantity('2 Mbit/s', 'B/s'), parse_quantity('1.84 Top/s', 'op/s'))"
    )
    for home in (tmp_path, Path("/nonexistent")):
        environment = {**os.environ, "HOME": str(home), "XDG_CACHE_HOME": str(home / ".cache")}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
        assert done.stdout == "250000.0 1840000000000.0\n", done.stderr
    assert not list(tmp_path.iterdir())

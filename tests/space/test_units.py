import pytest

from space.errors import DesignError
from space.units import display, parse, show


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
    assert parse(text, unit) == pytest.approx(value, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "unit"), [("64", "B"), ("64 us", "B"), ("64 MBB", "B"), ("", "s"), ("MB MB", "B"), ("8 op/s", "B/s")]
)
def test_what_is_no_quantity_of_that_unit_is_refused(text: str, unit: str) -> None:
    with pytest.raises(DesignError):
        parse(text, unit)


@pytest.mark.parametrize(("value", "unit"), [(104e6, "B"), (2.5e-5, "s"), (12e12, "B/s"), (3.0, "1"), (5e-9, "s")])
def test_what_is_shown_reads_back(value: float, unit: str) -> None:
    assert parse(show(value, unit, digits=12), unit) == pytest.approx(value)


def test_an_axis_divisor_and_its_label_agree() -> None:
    divisor, label = display(256e6, "B")
    assert 256e6 / divisor == pytest.approx(256e6 / parse(f"1 {label}", "B"))

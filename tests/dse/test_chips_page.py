"""The report of a study of several chips, in a real browser: a colour for each chip, and the chip with every design."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dse
from dse.space.multi_chip_space import CHIP_KNOB
from tests.dse.test_chips import FP16, GOALS, KNOBS, SIZES
from tests.dse.test_report_page import browser, opened, settle

__all__ = ["browser", "opened"]

LEGEND = """() => [...document.querySelectorAll("#front .legend .traces")].map(entry => ({
  name: entry.querySelector(".legendtext").textContent,
  colour: getComputedStyle(entry.querySelector(".legendpoints path")).fill,
  box: entry.getBoundingClientRect().toJSON(),
}))"""


@pytest.mark.slow
def test_each_chip_has_its_colour_in_the_legend_and_stands_with_every_design(
    opened: Callable[..., Any], tmp_path: Path, monkeypatch: Any
) -> None:
    (tmp_path / "studies/four").mkdir(parents=True)
    (tmp_path / "studies/four/study.yaml").write_text("chips: [a100, npu64, wse2, npu_dse]\n")
    monkeypatch.chdir(tmp_path)
    part = dse.run("four", FP16, *KNOBS, *GOALS, *SIZES).part()
    page = opened(part, width=1000)
    settle(page)
    legend = page.evaluate(LEGEND)
    names = {entry["name"].partition(" (")[0]: entry for entry in legend}
    assert set(names) == {"a100", "npu64", "wse2", "npu_dse"}
    assert len({entry["colour"] for entry in legend}) == 4
    for entry in legend:  # and none lies on another
        for other in legend:
            x, y = (
                min(entry["box"][b], other["box"][b]) - max(entry["box"][a], other["box"][a])
                for a, b in (("left", "right"), ("top", "bottom"))
            )
            assert entry is other or x <= 1 or y <= 1
    front = part.frame[part.frame["front"]]
    for name, count in front[CHIP_KNOB].value_counts().items():
        assert names[str(name)]["name"] == f"{name} ({count} on the front)"
    assert "npu_dse (tensor_parallel), all in fp16" in page.inner_text("#head")
    page.evaluate("openDesign(0)")
    first = part.frame.sort_values("throughput_per_system_mm2").iloc[-1]
    assert re.search(rf"chip\s+{first[CHIP_KNOB]}", page.inner_text("#design"))
    line = shlex.split(page.evaluate("evaluateLine(0)"))[2:]
    assert dse.evaluate(line).metrics["tpot"] == pytest.approx(first["tpot"], rel=1e-6)

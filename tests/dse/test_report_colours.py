"""What can be seen and pressed in the report: contrast of its palette, texts and marks, and sizes of targets, by WCAG."""

import re
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import dse.report
from dse.report.payload import ReportedStudy
from tests.dse.test_report_page import browser, opened, part, settle

__all__ = ["browser", "opened", "part"]

TEXT, GRAPHICS = 4.5, 3.0
"""Least ratios of WCAG 2.1: 1.4.3 for text, 1.4.11 for marks, and 3 for text from 24 px, or 18.66 px where it is bold."""

WORDS = ("ink", "soft", "faint", "accent", "warm", "mark", "good", "bad", "doubt")
GROUNDS = ("ground", "paper", "raised", "accent-wash", "doubt-wash")
MARKS = ("dot", "scale-low", "scale-middle", "scale-high", *(f"s{number}" for number in range(1, 9)))

DRAWN = """() => {
  const pen = new OffscreenCanvas(1, 1).getContext("2d", {willReadFrequently: true});
  const seen = new Map();
  const rgba = colour => {
    if (!seen.has(colour)) {
      pen.clearRect(0, 0, 1, 1);
      pen.fillStyle = colour;
      pen.fillRect(0, 0, 1, 1);
      const [r, g, b, a] = pen.getImageData(0, 0, 1, 1).data;
      seen.set(colour, [r, g, b, a / 255]);
    }
    return seen.get(colour);
  };
  const over = ([r, g, b, a], below) => [r, g, b].map((v, i) => v * a + below[i] * (1 - a));
  const behind = element => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) layers.unshift(rgba(getComputedStyle(e).backgroundColor));
    return layers.reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const opaque = element => {
    let all = 1;
    for (let e = element; e; e = e.parentElement) all *= Number(getComputedStyle(e).opacity);
    return all;
  };
  const texts = [], walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement, text = walk.currentNode.textContent.trim();
    if (!text || /^(SCRIPT|STYLE|NOSCRIPT|OPTION)$/.test(element.tagName)) continue;
    if (!element.checkVisibility({visibilityProperty: true})) continue;
    const style = getComputedStyle(element), ground = behind(element);
    const [r, g, b, a] = rgba(element instanceof SVGElement ? style.fill : style.color);
    const size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
    texts.push([text.slice(0, 40), large, over([r, g, b, a * opaque(element)], ground), ground]);
  }
  return texts;
}"""

MARKED = """() => {
  const plot = document.querySelector("#front .plot");
  return plot._fullData
    .filter(trace => trace.mode === "markers" && trace.name && !trace.name.startsWith("filtered out"))
    .map(({name, opacity, marker}) => [name, opacity, marker.colorscale?.map(([, colour]) => colour) ?? [marker.color]]);
}"""


def luminance(colour: Any) -> float:
    """Relative luminance of an sRGB colour in 0 to 255: WCAG 2.1's definition."""
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in (part / 255 for part in colour)]
    return float(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])


def contrast(colour: Any, other: Any) -> float:
    """From 1, alike, to 21, black on white."""
    low, high = sorted((luminance(colour), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def rgb(text: str) -> list[int]:
    """Of #rrggbb."""
    return [int(text[at : at + 2], 16) for at in (1, 3, 5)]


def palettes() -> list[dict[str, str]]:
    """The variables of each theme."""
    css = (Path(dse.report.__file__).parent / "page.css").read_text()
    return [dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", block)) for block in re.findall(r":root[^{]*\{(.*?)\}", css, re.S)]


def test_contrast_is_that_of_the_standard() -> None:
    assert contrast((0, 0, 0), (255, 255, 255)) == pytest.approx(21)
    assert contrast(rgb("#767676"), rgb("#ffffff")) == pytest.approx(4.54, abs=0.005)  # the lightest grey that passes on white


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_the_palette_keeps_contrast(theme: int) -> None:
    palette = palettes()[theme]
    texts = {(word, ground): contrast(rgb(palette[word]), rgb(palette[ground])) for word, ground in product(WORDS, GROUNDS)}
    assert {pair: ratio for pair, ratio in texts.items() if ratio < TEXT} == {}
    marks = {
        (mark, ground): contrast(rgb(palette[mark]), rgb(palette[ground]))
        for mark, ground in product(MARKS, ("paper", "raised"))
    }
    assert {pair: ratio for pair, ratio in marks.items() if ratio < GRAPHICS} == {}


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_and_mark_stands_out_as_it_is_drawn(opened: Callable[..., Any], part: ReportedStudy, scheme: str) -> None:
    page = opened(part, color_scheme=scheme)
    page.click('#bar button[data-value="all"]')
    page.evaluate("view.marked = new Set([0, 1]); setRange('tpot', extent(columnOf('tpot'))); openDesign(0)")
    settle(page)
    texts = page.evaluate(DRAWN)
    assert len(texts) > 300
    weak = {
        text: round(contrast(*drawn), 2) for text, large, *drawn in texts if contrast(*drawn) < (GRAPHICS if large else TEXT)
    }
    assert weak == {}
    paper = rgb(palettes()[scheme == "dark"]["paper"])
    for colour in ("", "tpot"):
        page.evaluate(f"view.colour = '{colour}'; refresh()")
        settle(page)
        marks = page.evaluate(MARKED)
        assert len(marks) >= 2
        for name, opacity, colours in marks:
            for single_rgb in map(rgb, colours):
                blended = [opacity * mine + (1 - opacity) * below for mine, below in zip(single_rgb, paper, strict=True)]
                assert contrast(blended, paper) >= GRAPHICS, (name, colours)


PRESSED = """root => {
  const cut = one => {  // rows that are scrolled out of sight
    const room = one.closest(".scroll")?.getBoundingClientRect(), box = one.getBoundingClientRect();
    return room && (box.top < room.top || box.bottom > room.bottom || box.left < room.left || box.right > room.right);
  };
  const every = [...document.querySelector(root).querySelectorAll("button, select, input, summary")];
  const seen = every.filter(one => one.checkVisibility() && !cut(one)).map(one => one.closest("label") ?? one);
  const boxes = seen.map(one => [one, one.getBoundingClientRect()]).filter(([, box]) => box.width > 0);
  const low = box => box.width < 24 || box.height < 24;
  const middle = box => [box.left + box.width / 2, box.top + box.height / 2];
  const within = (low, value, high) => Math.min(Math.max(value, low), high);
  const away = ([x, y], box) => Math.hypot(x - within(box.left, x, box.right), y - within(box.top, y, box.bottom));
  const apart = (mine, other) => {
    const [x, y] = middle(mine), [u, v] = middle(other);
    return low(other) ? Math.hypot(x - u, y - v) >= 24 : away([x, y], other) >= 12;
  };
  const small = boxes.filter(([one, box]) => low(box) && !boxes.every(([other, its]) => other === one || apart(box, its)));
  const near = (one, box) => boxes.filter(([other, its]) => other !== one && !apart(box, its)).map(([other]) => named(other));
  const named = one => `${one.tagName.toLowerCase()}.${one.className} ${(one.title || one.textContent).slice(0, 30)}`;
  const said = ([one, box]) => `${named(one)}, ${box.width} x ${box.height}, near ${near(one, box).join(" and ")}`;
  return [boxes.length, small.map(said)];
}"""
"""How many there are that are pressed, and those below 24 CSS pixels round which a circle of that width meets another."""


@pytest.mark.parametrize("width", [1366, 390])
def test_whatever_is_pressed_is_large_enough(opened: Callable[..., Any], part: ReportedStudy, width: int) -> None:
    """WCAG 2.2, 2.5.8, target size (minimum): 24 by 24 CSS pixels, or as far from others; the theme and Copy in any case."""
    page = opened(part, width=width, height=844)
    for root, least in (("body", 20), ("#design", 5)):  # which lies over the others
        count, small = page.evaluate(PRESSED, root)
        assert count >= least
        assert small == []
        page.evaluate("openDesign(0)")
        settle(page)
    for element in page.locator(".title .segments button, .copy").all():
        assert element.bounding_box()["height"] >= 24

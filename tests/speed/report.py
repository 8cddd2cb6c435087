"""The report of a million screened designs, of which the page holds 20,000: its size, and how long a reader waits."""

import gzip
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

from dse.commands.notebook_api import StoredStudy
from dse.config.compose import compose
from dse.execution.screen import run_screen
from dse.execution.study import build_study
from dse.report.page_parts import BUNDLES
from dse.report.study_page import write_page

FIRST = "document.querySelector('#parallel canvas')?.dataset.painted"
FRONT = "document.querySelector('#front .cloud, #front .scatterlayer .point')"
ALONE = "window.Plotly && document.querySelector('.main-svg')"
BARE = """<!doctype html><meta charset="utf-8"><div id="plot"></div><script>{}</script>
<script>Plotly.newPlot("plot", [{{x: [1, 2], y: [1, 2]}}])</script>"""


def report_page(overrides: tuple[str, ...]) -> list[tuple[str, str, str]]:
    """Lines of the speed table."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        study = build_study(compose([*overrides, "search.sampler=none", f"run_dir={folder}"]), folder)
        run_screen(study, lambda done, total, size: None)
        part = StoredStudy(study).part()
        start = time.process_time()
        path = write_page([part], folder / "report.html")
        seconds, size, rows = time.process_time() - start, path.stat().st_size / 1e6, len(part.frame)
        lines = [(f"report of {rows:,} designs, written", f"{seconds:.1f} s CPU", f"{size:.1f} MB")]
        chromium = shutil.which("chromium")
        if chromium is None:
            return lines
        bare = folder / "bare.html"
        bundle = gzip.decompress((BUNDLES / "plotly-basic.min.js.gz").read_bytes()).decode()
        bare.write_text(BARE.format(bundle), encoding="utf-8")
        first, front, alone = waits(chromium, {path: (FIRST, FRONT), bare: (ALONE,)})
    beside = f"{alone[0]:.1f} s wall, {alone[1]:.1f} s CPU Plotly alone with two points"
    return [
        *lines,
        ("report, first plot after navigation", f"{first[0]:.1f} s wall, {first[1]:.1f} s CPU", beside),
        ("report, front after navigation", f"{front[0]:.1f} s wall, {front[1]:.1f} s CPU", beside),
    ]


def waits(chromium: str, pages: dict[Path, tuple[str, ...]]) -> list[tuple[float, float]]:
    """Seconds until each condition holds on its page, by the wall and of the browser's processes, the least of three visits."""
    from playwright.sync_api import sync_playwright

    shortest: dict[Any, tuple[float, float]] = {}
    with sync_playwright() as player:
        browser = player.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(3):
            for path, conditions in pages.items():
                page = browser.new_page(viewport={"width": 1366, "height": 768})
                start, spent = time.perf_counter(), children_cpu()
                page.goto(path.as_uri(), wait_until="commit")
                for condition in conditions:
                    page.wait_for_function(condition, timeout=120_000)
                    now = time.perf_counter() - start, children_cpu() - spent
                    shortest[condition] = min(shortest[condition], now) if condition in shortest else now
                page.close()
        browser.close()
    return list(shortest.values())


def children_cpu() -> float:
    """CPU seconds of the processes below this one that are running, to a hundredth."""
    parents, times = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended meanwhile
            continue
        number = int(stat.parent.name)
        parents[number], times[number] = int(fields[1]), int(fields[11]) + int(fields[12])
    below, seconds = {os.getpid()}, 0
    while new := {number for number, parent in parents.items() if parent in below} - below:
        below |= new
        seconds += sum(times[number] for number in new)
    return seconds / os.sysconf("SC_CLK_TCK")

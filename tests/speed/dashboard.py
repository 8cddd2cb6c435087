"""How long optuna-dashboard takes to open an export: python -m tests.speed.dashboard [DESIGNS] [--all]

A screen of the quickstart study has so many designs (20,000), and a search 200 more. The export is opened by optuna-dashboard
in headless Chromium. The page is open when its data has come, its plots are drawn and the browser answers again.
"""

import contextlib
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from dse.commands.export import export_study
from dse.commands.notebook_api import find_study
from dse.commands.run_study import run_study

FLAGS = (
    "--no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking --disable-component-update "
    "--disable-sync"
)
"""Of Chromium, which otherwise calls servers of its maker."""


@contextlib.contextmanager
def served(path: Path) -> Iterator[str]:
    """Address of a dashboard of a journal."""
    program = shutil.which("optuna-dashboard", path=str(Path(sys.executable).parent)) or shutil.which("optuna-dashboard")
    assert program, "pip install 'mesh-dse[test]'"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [program, "--host", "127.0.0.1", "--port", str(port), str(path)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
                break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def fetch(url: str) -> tuple[float, int]:
    """Seconds and bytes of an answer."""
    start = time.perf_counter()
    with urllib.request.urlopen(url, timeout=300) as answer:
        size = len(answer.read())
    return time.perf_counter() - start, size


def open_page(url: str) -> tuple[float, float]:
    """Seconds until the page of the first study has its plots, in a browser that has started: wall, and CPU of its thread."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=os.environ.get("BROWSER_PATH", "/usr/bin/chromium"), args=FLAGS.split())
        page = browser.new_page()
        tools = page.context.new_cdp_session(page)
        tools.send("Performance.enable", {"timeDomain": "threadTicks"})
        start = time.perf_counter()
        with page.expect_response(lambda answer: "/api/studies/0?" in answer.url, timeout=300_000) as data:
            page.goto(f"{url}/dashboard/studies/0", timeout=300_000)
        data.value.finished()
        page.wait_for_selector(".js-plotly-plot .main-svg", timeout=300_000)
        page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done, 0)))")
        seconds = time.perf_counter() - start
        metrics = {entry["name"]: entry["value"] for entry in tools.send("Performance.getMetrics")["metrics"]}
        browser.close()
        return seconds, metrics["TaskDuration"]


def main(designs: int, *, everything: bool) -> None:
    """Print what each step takes."""
    with tempfile.TemporaryDirectory() as folder:
        words = (f"run_dir={folder}/run", f"screen.limit={designs}", "search=local", "search.budget=200")
        run_study(find_study("quickstart", *words))
        path = Path(folder) / "out.journal"
        start = time.process_time()
        export_study("quickstart", "optuna", str(path), *words, everything=everything)
        print(f"export: {time.process_time() - start:.1f} s CPU, {path.stat().st_size / 1e6:.1f} MB")
        start = time.perf_counter()
        with served(path) as url:
            ready = time.perf_counter() - start
            first, size = fetch(f"{url}/api/studies/0?after=0")
        print(f"dashboard: starts in {ready:.1f} s wall; {size / 1e6:.1f} MB of JSON in {first:.1f} s")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        with served(path) as url:
            wall, cpu = open_page(url)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        server = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        print(f"page: {wall:.1f} s wall, {cpu:.1f} s CPU in the browser, {server:.1f} s in the dashboard with its start")


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:] if word != "--all"]
    main(numbers[0] if numbers else 20_000, everything="--all" in sys.argv)

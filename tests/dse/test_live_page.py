"""The page of a running study: new designs arrive by events, and the whole page comes when the run has ended."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dse.commands.notebook_api import StoredStudy
from dse.commands.run_study import run_study
from dse.report.live_page import LiveServer, serve
from dse.store.store import Store
from tests.dse.test_report import append, wait_for
from tests.dse.test_report_page import browser
from tests.dse.toy import toy

__all__ = ["browser"]


class HalfRun:
    """A study of which half of the designs are stored, and the rest to append."""

    def __init__(self, folder: Path) -> None:
        self.study, full = toy(folder / "runs/toy", "search.budget=40"), toy(folder / "other", "search.budget=40")
        run_study(full)
        source = Store(full.store)
        self.asks, self.known = source.asks("toy", full.context.physics), source.results(full.context)
        self.store = Store(self.study.store)
        self.run = self.store.begin(
            "toy", self.study.identity(), {"overrides": list(self.study.overrides), "host": "elsewhere"}
        )
        append(self.store, self.study, self.asks[:20], self.known)

    def finish(self) -> None:
        """Append the other half."""
        append(self.store, self.study, self.asks[20:], self.known)

    def rows(self, asks: Any) -> int:
        """Number of different designs."""
        return len({key for _, key in asks})


@pytest.fixture
def half(tmp_path: Path) -> HalfRun:
    return HalfRun(tmp_path)


@pytest.fixture
def server(half: HalfRun) -> Iterator[LiveServer]:
    live = serve(StoredStudy(half.study), 0.05)
    wait_for(lambda: live.data is not None)
    yield live
    live.close()


def read(url: str, **headers: str) -> str:
    return str(urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=60).read().decode())


def test_designs_arrive_as_events_and_the_whole_page_at_the_end(half: HalfRun, server: LiveServer) -> None:
    assert server.data is not None
    first = server.data["rows"]
    assert first == half.rows(half.asks[:20])
    assert server.url.startswith("http://127.0.0.1:")
    half.finish()
    wait_for(lambda: bool(server._events))
    half.store.end(half.run, "done", {})
    server.wait()
    events = [
        dict(line.split(": ", 1) for line in text.splitlines()) for text in read(server.url + "events").split("\n\n") if text
    ]
    assert [event["event"] for event in events][-1] == "done"
    arrived = [json.loads(event["data"]) for event in events[:-1]]
    whole = half.rows(half.asks)
    assert first + sum(event["rows"] for event in arrived) == whole == server.data["rows"]
    part = StoredStudy(half.study).part()
    assert set(arrived[-1]["front"]) == set(part.frame.loc[part.frame["front"], "design"])
    assert json.loads(read(server.url + "data"))["rows"] == whole
    assert len(read(server.url + "events", **{"Last-Event-ID": "1"}).split("\n\n")) == len(events)  # without the first
    assert f'data-live="events?after={len(events) - 1}"' in read(server.url)  # a later reader has the others


def test_a_name_that_leads_here_from_elsewhere_is_refused(server: LiveServer) -> None:
    with pytest.raises(urllib.error.HTTPError, match="403"):
        read(server.url, Host="evil.example")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        read(server.url + "results.sqlite")


def test_an_open_page_takes_designs_without_being_loaded_again(browser: Any, half: HalfRun, server: LiveServer) -> None:
    page = browser.new_page(viewport={"width": 1366, "height": 768})
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(server.url)
    page.wait_for_function("designs.rows > 0 && document.querySelector('#front .scatterlayer .point')", timeout=60_000)
    page.evaluate("window.same = true")
    half.finish()
    whole = half.rows(half.asks)
    page.wait_for_function(f"designs.rows === {whole}", timeout=60_000)
    part = StoredStudy(half.study).part()
    front = set(part.frame.loc[part.frame["front"], "design"])
    assert set(page.evaluate("frontOf(designs.studies[0]).map(designId)")) == front
    values = page.evaluate("Object.fromEntries(columnOf('design').values.map((id, row) => [id, valueOf('tpot', row)]))")
    tpot = dict(zip(part.frame["design"], part.frame["tpot"], strict=True))
    assert values == {name: pytest.approx(value, rel=1e-6, nan_ok=True) for name, value in tpot.items() if name in values}
    assert page.inner_text("#live") == "live"
    half.store.end(half.run, "done", {})
    page.wait_for_function("document.getElementById('live').textContent === 'finished'", timeout=60_000)
    assert page.evaluate("[designs.rows, window.same]") == [whole, True]
    page.close()
    assert complaints == []

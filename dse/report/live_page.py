"""Report on a local address while its study runs: new designs arrive as server-sent events.

The server listens on 127.0.0.1 alone, on a free port, and reads the study's store; it evaluates nothing but the pages' own.
"""

import contextlib
import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol

import pandas as pd

from dse.execution.result_frame import DESIGN, SEARCH_ORDER
from dse.execution.screen import list_stored_block_files
from dse.execution.study import Study
from dse.report.packed_columns import pack_columns
from dse.report.page_parts import embed_json
from dse.report.payload import report_payload
from dse.report.reported_study import ReportedStudy
from dse.report.study_page import render_page
from dse.space.errors import DesignError
from dse.store.store import Store

PERIOD_S = 2.0
"""Seconds between two looks at a store."""

KEEPALIVE_S = 10.0
"""Seconds of silence after which an open page hears that the server is there."""

HOST = "127.0.0.1"


class LiveSource(Protocol):
    """A study with its store, as `dse.load` returns one."""

    @property
    def study(self) -> Study:
        """The study whose results the page shows."""

    def part(self) -> ReportedStudy:
        """Results of the study as a report shows them.

        Raises:
            DesignError: there are none yet.
        """

    def runs(self) -> list[dict[str, Any]]:
        """Runs of the study, oldest first."""


def is_running(source: LiveSource) -> bool:
    """Whether the last run of a study has not ended."""
    runs = source.runs()
    return bool(runs) and runs[-1]["state"] == "running"


def study_state(source: LiveSource) -> Any:
    """What changes when a study has something new to show."""
    study = source.study
    with contextlib.closing(Store(study.store, create=False)) as store:
        progress = store.ask_count(study.name, study.context.physics)
        verified = store.result_count(study.context_at(study.higher)) if study.higher else 0
    return progress, verified, list_stored_block_files(study), [run["state"] for run in source.runs()]


def serve(source: LiveSource, period: float = PERIOD_S) -> "LiveServer":
    """Serve the page of a study while it runs, from threads of their own.

    ``url`` of the server is its address; ``wait`` returns when the study has ended.

    Args:
        source: the study; it may have no results yet.
        period: seconds between two looks at its store.
    """
    return LiveServer(source, period)


class LiveServer:
    """A study's page on a local address, with the events that its open copies follow.

    Attributes:
        url: address of the page.
    """

    def __init__(self, source: LiveSource, period: float = PERIOD_S) -> None:
        self._source, self._period = source, period
        self._news, self._stopped = threading.Condition(), threading.Event()
        self._data: dict[str, Any] | None = None
        self._known: set[str] = set()
        self._events: list[str] = []
        self._base = 0  # events that the whole page has already
        self._done = False
        self._server = ThreadingHTTPServer((HOST, 0), BaseHTTPRequestHandler)
        self._server.daemon_threads = True
        self.url = f"http://{HOST}:{self._server.server_address[1]}/"
        self._server.RequestHandlerClass = _make_handler(self)
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        for thread in (threading.Thread(target=self._server.serve_forever, daemon=True), self._watcher):
            thread.start()

    @property
    def data(self) -> dict[str, Any] | None:
        """Data of the newest whole page; None while the study has nothing to show."""
        return self._data

    def wait(self) -> None:
        """Wait until the study has ended and open pages have the whole of it."""
        self._watcher.join()

    def close(self) -> None:
        """Stop the server; open pages stay as they are and say that it stopped."""
        self._stopped.set()
        self._watcher.join()
        with self._news:
            self._done = True
            self._news.notify_all()
        self._server.shutdown()
        self._server.server_close()

    def page(self) -> str:
        """The page as HTML; one that waits where the study has nothing to show yet."""
        with self._news:
            data, base = self._data, self._base
        if data is None:
            return '<!doctype html><meta http-equiv="refresh" content="2"><title>mesh-dse</title>No design is evaluated yet.'
        return render_page(data, live=f"events?after={base}")

    def read_events(self, after: int, write: Callable[[str], None]) -> None:
        """Write events as they come until the last one.

        Args:
            after: number of events that the reader has already.
            write: takes text in the format of server-sent events.
        """
        while True:
            with self._news:
                if len(self._events) <= after and not self._done:
                    self._news.wait(KEEPALIVE_S)
                news, done = self._events[after:], self._done
            for text in news or ([] if done else [": still here\n\n"]):
                write(text)
            after += len(news)
            if done and not news:
                return

    def _watch(self) -> None:
        """Publish what is new until the study has ended; then the whole page once more."""
        seen = None
        while not self._stopped.is_set():
            running = is_running(self._source)
            with contextlib.suppress(DesignError):  # nothing to show yet
                if (state := study_state(self._source)) != seen:
                    self._publish_news()
                    seen = state
            if not running:
                with contextlib.suppress(DesignError):
                    self._publish_end()
                return
            self._stopped.wait(self._period)

    def _publish_news(self) -> None:
        part = self._source.part()
        if self._data is None:
            data = report_payload([part], explained=False)  # explanations would take longer than the first designs
            with self._news:
                self._data, self._known = data, set(part.frame[DESIGN])
            return
        fresh = part.frame[~part.frame[DESIGN].isin(self._known)].reset_index(drop=True)
        self._known.update(fresh[DESIGN])
        self._publish("designs", _designs_event(part, fresh))

    def _publish_end(self) -> None:
        data = report_payload([self._source.part()])
        with self._news:
            self._data, self._base = data, len(self._events)
        self._publish("done", {"rows": data["rows"]})
        with self._news:
            self._done = True
            self._news.notify_all()

    def _publish(self, kind: str, value: Any) -> None:
        with self._news:
            number = len(self._events) + 1
            self._events.append(f"id: {number}\nevent: {kind}\ndata: {embed_json(value)}\n\n")
            self._news.notify_all()


def _designs_event(part: ReportedStudy, fresh: pd.DataFrame) -> dict[str, Any]:
    """New designs of a study in columns, and the ids of its front as it is with them."""
    frame, screened = part.frame, part.screened
    return {
        "rows": len(fresh),
        "columns": pack_columns([part.study], [fresh]) if len(fresh) else [],
        "front": list(frame.loc[frame["front"], DESIGN]),
        "searched": int(frame[SEARCH_ORDER].notna().sum()),
        "screened": {"rows": screened.rows, "feasible": screened.feasible, "exact": screened.exact} if screened else None,
    }


def _make_handler(live: LiveServer) -> type[BaseHTTPRequestHandler]:
    """Handler of a server's requests: the page, its data, and its events."""
    hosts = [live.url.removeprefix("http://").rstrip("/")]

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.headers.get("Host") not in hosts:  # a name that leads here from elsewhere
                self.send_error(HTTPStatus.FORBIDDEN)
            elif self.path == "/":
                self._send("text/html; charset=utf-8", live.page())
            elif self.path == "/data" and live.data is not None:
                self._send("application/json", embed_json(live.data))
            elif self.path.partition("?")[0] == "/events":
                self._send_events()
            else:
                self.send_error(HTTPStatus.NOT_FOUND)

        def _send(self, kind: str, text: str) -> None:
            content = text.encode()
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)

        def _send_events(self) -> None:
            self.send_response(HTTPStatus.OK)
            self.send_header("Content-Type", "text/event-stream")
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            last = self.headers.get("Last-Event-ID") or self.path.partition("after=")[2]
            with contextlib.suppress(OSError):  # the page was closed
                live.read_events(int(last) if last.isdigit() else 0, self._write)

        def _write(self, text: str) -> None:
            self.wfile.write(text.encode())
            self.wfile.flush()

        def log_message(self, *_: Any) -> None:
            """Print nothing: the terminal is the study's."""

    return Handler

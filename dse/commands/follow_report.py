"""A report that is updated while studies run; it reads their stores and evaluates nothing."""

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from dse.commands.notebook_api import StoredStudy, load
from dse.report.live_page import PERIOD_S, is_running, serve, study_state
from dse.report.payload import report_payload
from dse.report.study_page import LivePage, report_path, write_page
from dse.space.errors import DesignError
from dse.store.database import store_exists
from dse.terminal.progress import say


def follow_studies(
    names: list[str], out: str = "", overrides: Sequence[str] = (), *, period: float = PERIOD_S, trust: bool = False
) -> int:
    """Update the report of studies until all have ended or Ctrl-C; returns the exit status.

    The page of a single study is served on a local address, too, where new designs arrive without a new page.
    """
    loaded = [load(name, *overrides, trust=trust) for name in names]
    for study in loaded:
        if not store_exists(study.study.store):
            raise DesignError(
                f"study {study.study.name!r} has no results in {study.study.run_dir}; "
                f"run it first: dse run study={study.study.name}"
            )
    path = Path(out).resolve() if out else report_path([study.study for study in loaded])
    if len(loaded) == 1:
        return serve_study(loaded[0], path, period)
    return follow_files(loaded, names, path, period)


def serve_study(study: StoredStudy, path: Path, period: float) -> int:
    """Serve the page of one study until its run has ended or Ctrl-C; its file is written then."""
    server = serve(study, period)
    say(f"live    {server.url} is updated while the study runs; Ctrl-C stops the page, not the study")
    with contextlib.suppress(KeyboardInterrupt):
        server.wait()
        time.sleep(2 * period)  # for pages that are open to fetch the whole
    server.close()
    if server.data is None:
        raise DesignError(f"study {study.study.name!r} ended and left no results")
    write_page([study.part()], path)
    say(f"report  {escape(str(path))}")
    return 0


def follow_files(loaded: list[StoredStudy], names: list[str], path: Path, period: float) -> int:
    """Update the file of a page on several studies, and the files beside it that open copies poll."""
    page, seen, data = LivePage(path), None, None
    say(f"report  {escape(str(path))} is updated while the study runs; Ctrl-C stops the updates, not the study")
    try:
        while True:
            running = [study for study in loaded if is_running(study)]
            now, begun = [study_state(study) for study in loaded], time.monotonic()
            if now != seen:
                data, seen = _page_content(loaded) or data, now
                if data is not None:
                    page.write(data)
            spent = time.monotonic() - begun
            if not running:
                break
            time.sleep(max(period, 2 * spent))
    except KeyboardInterrupt:
        running = []
    if data is None:
        raise DesignError(f"study {names[0]!r} ended and left no results")
    page.close(data)
    with contextlib.suppress(KeyboardInterrupt):
        time.sleep(2 * period)  # for pages that are open to hear of it
    page.remove()
    say(f"report  {escape(str(path))}")
    return 0


def _page_content(loaded: list[StoredStudy]) -> dict[str, Any] | None:
    """The page's data, None while a study has nothing to show."""
    try:
        return report_payload([study.part() for study in loaded])
    except DesignError:
        return None

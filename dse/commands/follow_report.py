"""A report that is updated while studies run; it reads their stores and evaluates nothing."""

import contextlib
import time
from pathlib import Path
from typing import Any

from rich.markup import escape

from dse.commands.notebook_api import StoredStudy, load
from dse.execution.screen import list_stored_block_files
from dse.report.payload import report_payload
from dse.report.study_page import LivePage, report_path
from dse.space.errors import DesignError
from dse.store.database import store_exists
from dse.store.store import Store
from dse.terminal.progress import say

PERIOD_S = 2.0
"""Seconds between two looks at a store."""


def follow_studies(names: list[str], out: str = "", *, period: float = PERIOD_S, trust: bool = False) -> int:
    """Update the report of studies until all have ended or Ctrl-C; returns the exit status."""
    loaded = [load(name, trust=trust) for name in names]
    for study in loaded:
        if not store_exists(study.study.store):
            raise DesignError(
                f"study {study.study.name!r} has no results in {study.study.run_dir}; "
                f"run it first: dse run study={study.study.name}"
            )
    path = Path(out).resolve() if out else report_path([study.study for study in loaded])
    page, seen, data = LivePage(path), None, None
    say(f"report  {escape(str(path))} is updated while the study runs; Ctrl-C stops the updates, not the study")
    try:
        while True:
            running = [study for study in loaded if _is_running(study)]
            now, begun = [_study_state(study) for study in loaded], time.monotonic()
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


def _is_running(study: StoredStudy) -> bool:
    runs = study.runs()
    return bool(runs) and runs[-1]["state"] == "running"


def _study_state(study: StoredStudy) -> Any:
    """What changes when there is something new to show."""
    with contextlib.closing(Store(study.study.store, create=False)) as store:
        progress = store.ask_count(study.study.name, study.study.context.physics)
        verified = store.result_count(study.study.context_at(study.study.higher)) if study.study.higher else 0
    return progress, verified, list_stored_block_files(study.study), [run["state"] for run in study.runs()]


def _page_content(loaded: list[StoredStudy]) -> dict[str, Any] | None:
    """The page's data, None while a study has nothing to show."""
    try:
        return report_payload([study.part() for study in loaded])
    except DesignError:
        return None

"""A study's results in the formats of others."""

from collections.abc import Callable
from pathlib import Path

import pandas as pd

from dse.api import load
from dse.progress import say
from dse.study import Study
from space.errors import DesignError


def export(name: str, to: str, out: str) -> int:
    """Writes a study's results to a file."""
    loaded = load(name)
    asked = loaded.study
    if not asked.run_dir.exists():
        raise DesignError(f"study {name!r} has no results in {asked.run_dir}; run it first: dse run study={name}")
    path = Path(out) if out else asked.run_dir / f"{name}.{SUFFIX[to]}"
    frame = loaded.frame()
    FORMATS[to](asked, frame, path)
    say(f"{len(frame):,} designs written to {path}")
    return 0


def _parquet(asked: Study, frame: pd.DataFrame, path: Path) -> None:
    frame.to_parquet(path)


def _csv(asked: Study, frame: pd.DataFrame, path: Path) -> None:
    frame.to_csv(path, index=False)


def _json(asked: Study, frame: pd.DataFrame, path: Path) -> None:
    frame.to_json(path, orient="records", indent=1)


def _optuna(asked: Study, frame: pd.DataFrame, path: Path) -> None:
    from dse.search import write_optuna

    path.unlink(missing_ok=True)
    write_optuna(asked.name, asked.objectives, asked.question.space, frame, path)


FORMATS: dict[str, Callable[[Study, pd.DataFrame, Path], None]] = {
    "parquet": _parquet,
    "csv": _csv,
    "json": _json,
    "optuna": _optuna,
}
SUFFIX = {"parquet": "parquet", "csv": "csv", "json": "json", "optuna": "journal"}

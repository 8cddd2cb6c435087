"""Simulate a throughput benchmark from a file that states what a benchmark's script is given.

    python -m dse.studies.engines.bench FILE.yaml [OVERRIDE ...]

The file is YAML. `bench: offline` sends all requests at once and counts output tokens over the whole time; `bench: static`
runs one batch. Further keys: chip, model, weights, kv, prompt, output, tp, ep, version, requests, and the measured value.
"""

import sys
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

from dse.analysis.evaluation import evaluate_config
from dse.analysis.withheld_metrics import computed_metrics
from dse.config.compose import compose
from dse.space.errors import DesignError, suggest_nearest
from dse.studies.engines.rows import EngineRow

BENCHES = ("offline", "static")
REQUIRED = ("bench", "chip", "model", "prompt", "output")
"""Keys that a file must have."""

DEFAULTS: dict[str, Any] = {
    "place": "file", "version": "", "weights": "fp16", "kv": "fp16", "tp": 1, "ep": 1, "requests": 0, "metric": "throughput",
    "value": float("nan"), "unit": "token/s",
}  # fmt: skip
COUNTS = ("prompt", "output", "tp", "ep", "requests")


def read_bench(path: Path) -> EngineRow:
    """Benchmark of a file as a row, whose value is NaN where the file states no measurement.

    Raises:
        DesignError: a key that is missing or unknown, or a length or count that is no whole number, with the file.
    """
    document = yaml.safe_load(path.read_text())
    if not isinstance(document, dict):
        raise DesignError(f"{path}: expected keys and values, as in 'bench: offline'")
    known = [field.name for field in fields(EngineRow)]
    for key in document:
        if key not in known:
            raise DesignError(f"{path}: no key {key!r}; {suggest_nearest(str(key), known)}")
    missing = [key for key in REQUIRED if document.get(key) is None]
    if missing:
        raise DesignError(f"{path}: a benchmark needs {', '.join(missing)}; add {missing[0]}: VALUE")
    if document["bench"] not in BENCHES:
        raise DesignError(f"{path}: bench: expected {' or '.join(BENCHES)}, got {document['bench']!r}")
    for key in COUNTS:
        value = document.get(key, 1)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise DesignError(f"{path}: {key}: expected a whole number from 1, got {value!r}")
    return EngineRow(**(DEFAULTS | document))


def main(words: Sequence[str]) -> None:
    """Print the simulated rate of a file's benchmark, its band, and its ratio to a measured one."""
    if not words:
        raise SystemExit("python -m dse.studies.engines.bench FILE.yaml [OVERRIDE ...]")
    row = read_bench(Path(words[0]))
    stack = [] if any(word.startswith("stack=") for word in words[1:]) else row.stack_overrides()
    overrides = [*row.overrides(), *stack, *words[1:]]
    evaluation = evaluate_config(compose(overrides))
    if evaluation.infeasible is not None:
        raise DesignError(str(evaluation.infeasible))
    rate = float(computed_metrics(evaluation.metrics)[row.metric])
    print(
        f"{row.metric} {rate:,.4g} {row.unit}" + (f", measured {row.value:,.4g}: {rate / row.value - 1:+.1%}" * (row.value > 0))
    )
    if evaluation.rate_band and row.metric == "throughput":
        print(f"band {evaluation.rate_band}")
    print("as dse evaluate " + " ".join(f"'{word}'" if " " in word else word for word in overrides))


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except (DesignError, OSError, yaml.YAMLError) as error:
        raise SystemExit(f"bench: {' '.join(str(error).split())}") from None

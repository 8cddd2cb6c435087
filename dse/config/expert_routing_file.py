"""Expert loads from a file: tokens per expert and layer."""

import csv
import math
from pathlib import Path

from dse.space.errors import DesignError
from dse.space.layers import MOE, layers
from dse.space.model import ExpertLayers, Model

COLUMNS = ("layer", "expert", "tokens")


def read_expert_shares(path: Path, model: Model, experts: ExpertLayers) -> tuple[tuple[float, ...], ...]:
    """Shares of tokens per expert, layer by layer; those of a layer add up to `top_k`. [-]

    Args:
        path: a CSV file with the columns layer, expert and tokens; layers are any names, experts are counted from 0.
        model, experts: whose.

    Raises:
        DesignError: other columns, a row that says no number, more layers or experts than there are, or a layer without tokens.
    """
    tokens_by_layer: dict[str, list[float]] = {}
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file, strict=True)
            if not set(COLUMNS) <= set(rows.fieldnames or ()):
                raise _routing_error(path, f"has no columns {', '.join(COLUMNS)}")
            for row in rows:
                expert, tokens = (
                    _parse_number(path, rows.line_num, row, "expert"),
                    _parse_number(path, rows.line_num, row, "tokens"),
                )
                if expert != int(expert) or expert >= experts.count:
                    raise _routing_error(
                        path, f"line {rows.line_num}: no expert {row['expert']}; {model.name} has {experts.count}"
                    )
                tokens_by_layer.setdefault(str(row["layer"]), [0.0] * experts.count)[int(expert)] += tokens
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise _routing_error(path, f"cannot be read: {error}") from None
    sparse = sum(layer.times for layer in layers(model).ffns if layer.name.startswith(MOE)) + model.mtp
    if not 0 < len(tokens_by_layer) <= sparse:
        raise _routing_error(path, f"has {len(tokens_by_layer)} layers; {model.name} has {sparse} with experts")
    for layer, counts in tokens_by_layer.items():
        if not sum(counts):
            raise _routing_error(path, f"layer {layer[:40]}: no tokens")
    return tuple(_cap_shares(counts, experts.top_k) for counts in tokens_by_layer.values())


def _cap_shares(tokens: list[float], top_k: int) -> tuple[float, ...]:
    """No expert is chosen more than once a token: what would be more goes to the others in proportion."""
    left, shares = float(top_k), [0.0] * len(tokens)
    for place in sorted(range(len(tokens)), key=lambda expert: -tokens[expert]):
        rest = sum(tokens[other] for other in range(len(tokens)) if not shares[other])
        shares[place] = min(1.0, left * tokens[place] / rest) if rest else 0.0
        left -= shares[place]
    return tuple(shares)


def _parse_number(path: Path, line: int, row: dict[str, str | None], column: str) -> float:
    try:
        value = float(row[column] or "")
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise _routing_error(path, f"line {line}: {column} {str(row[column])[:40]!r} is not a number of at least 0")
    return value


def _routing_error(path: Path, why: str) -> DesignError:
    return DesignError(f"workload.expert_load: {path}: {why}")

"""Data of a report as JSON values: designs of its studies in columns, and facts of each study.

No picture and no text is made here: the page's own code draws from these values.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd

from dse.config import named_points as points
from dse.config.compose import read_bibliography
from dse.config.metric_expressions import refuse_conflicting_definitions
from dse.documents.records import plain_values, record_values
from dse.evaluators import METRICS, PHYSICS_VERSION
from dse.evaluators.accounting.external_evaluators import external_fidelities
from dse.evaluators.evaluation import settle_open_choices
from dse.execution.certify import describe_certificate, read_certificate
from dse.execution.result_frame import DESIGN, SEARCH_ORDER, knob_values, report_order
from dse.execution.study import Study
from dse.execution.verify_streams import describe_verdict
from dse.explanations.knob_importance import estimate_sobol_index
from dse.explanations.sample_noise import FrontSample
from dse.report import front_explanations as why
from dse.report.case_metrics import rows_by_case
from dse.report.error_bands import estimate_study_error_bands
from dse.report.figure_style import RESOURCE_COLOURS, short_number
from dse.report.first_paint import front_rows
from dse.report.front_robustness import FrontRobustness, find_known_robustness, format_turning_constant
from dse.report.kind_order import KindOrder, estimate_kind_bands, find_kind_order, has_fixed_rate, rate_exponent
from dse.report.packed_columns import SHARE, UNDECIDED, pack_columns
from dse.report.page_cache import BINDING, STACKS, PageCache, breakdown_question, table_key
from dse.report.page_figures import collect_page_figures
from dse.report.reported_study import ReportedStudy
from dse.report.sampled_front import cached_front_sample, with_offered_load
from dse.report.search_history import HypervolumeBox, common_box, search_history
from dse.report.time_breakdown import BUDGET_S, MAX_BUDGET_S, kept_breakdown, time_stacks
from dse.report.verdict import study_verdict
from dse.search.pareto import nondominated_layers
from dse.space.array_math import Array
from dse.space.fields import addresses
from dse.space.multi_chip_space import CHIP_KNOB
from dse.space.safe_text import mask_passwords, mask_passwords_in
from dse.space.units import PREFIXED_UNITS, PREFIXES
from dse.space.workload import BatchCase, ServingLoad
from dse.terminal.plain_names import PART_NAMES

MAX_EXPLAINED = 200
"""Designs of a study whose time is broken down: the front, then those next to it; of more, an even choice."""

RUN_ONLY = (
    "name=",
    "run_dir=",
    "store=",
    "screen",
    "search",
    "verify",
    "workers",
    "report",
    "objectives",
    "constraints",
    "question",
)
"""Overrides that say how a study is run and what it wants, not what its designs are."""

MAX_FAILURES = 50
"""Different failures that are listed."""


RUNNING_VERDICT = ["The study still runs: what to build, and why, follows when it has ended."]
"""Text of a page in place of its verdict while the study runs."""

UNEXPLAINED: dict[str, Any] = {
    "explained": {"case": "", "words": [], "designs": {}},
    "figures": {"throughput_per_user": {}, "measured": [], "cost": None, "roofline": {}, "load": {}},
    "why": {"remarks": [], "distinct": None, "prices": [], "designs": {}, "by": "", "left": 0},
    "bars": [],
}
"""What a page has in place of answers on the front while a study runs."""


def report_payload(parts: Sequence[ReportedStudy], *, explained: bool = True) -> dict[str, Any]:
    """Data of a page on one or several studies, ready for JSON.

    Args:
        parts: the studies.
        explained: whether breakdowns, figures and explanations of the front are in them, which take seconds.
    """
    refuse_conflicting_definitions([part.study.question.defined for part in parts])
    frames = [report_order(part.study, part.frame) for part in parts]
    robust = [
        (find_known_robustness(part.study, frame), find_kind_order(part.study, frame))
        for part, frame in zip(parts, frames, strict=True)
    ]
    box = common_box(parts)
    studies, start = [], 0
    for number, (part, frame) in enumerate(zip(parts, frames, strict=True)):
        record, frames[number] = _study_record(part, frame, start, box, explained=explained)
        verdict = study_verdict(part.study, frame, record) if explained else RUNNING_VERDICT
        about = {"robust": _robust_record(frame, start, robust[number][0]), "verdict": verdict}
        studies.append(record | about | {"table": _front_table(part.study, frame)})
        start += len(frame)
    frames = [_with_robustness(frame, *answers) for frame, answers in zip(frames, robust, strict=True)]
    return {
        "written": datetime.now().astimezone().isoformat(timespec="seconds"),
        "bounds": RESOURCE_COLOURS,
        "names": PART_NAMES,
        "prefixes": [list(pair) for pair in PREFIXES],
        "scaled": sorted(PREFIXED_UNITS),
        "rows": start,
        "columns": pack_columns([part.study for part in parts], frames),
        "studies": studies,
    }


def _study_record(
    part: ReportedStudy, frame: pd.DataFrame, start: int, box: HypervolumeBox | None, *, explained: bool
) -> tuple[dict[str, Any], pd.DataFrame]:
    """Facts of a study, and its designs with the offered load of the front."""
    study, screened = part.study, part.screened
    space, workload = study.question.space, study.question.workload
    with PageCache(study) as kept:
        kept.begin_page([("rows", table_key(frame)), ("pictures", repr(study.report))])
        answers = _front_answers(part, frame, start, kept) if explained else UNEXPLAINED
        sample = cached_front_sample(study, frame, kept)
    record = {
        "name": study.name,
        "question": study.text,
        "chips": study.chips,
        "pools": study.pools,
        "start": start,
        "rows": len(frame),
        "objectives": study.objectives,
        "bounds": [{"metric": b.metric, "relation": b.relation, "value": b.value} for b in study.bounds],
        "fidelity": study.fidelity,
        "seed": study.seed,
        "physics": PHYSICS_VERSION,
        "cases": [case.label for case in workload.cases],
        "knobs": [_knob_record(study, knob.address) for knob in space.knobs],
        "tied": _tied_record(study),
        "overrides": _evaluate_words(study),
        "screened": {"rows": screened.rows, "feasible": screened.feasible, "exact": screened.exact} if screened else None,
        "certificate": describe_certificate(certified) if (certified := read_certificate(study)) else [],
        "searched": int(frame[SEARCH_ORDER].notna().sum()),
        "importance": _knob_importance(study, frame),
        "history": search_history(study, frame, screened, box),
        "failures": [[str(text), int(count)] for text, count in frame["error"].value_counts().head(MAX_FAILURES).items()],
        "lines": _line_pictures(study, frame, start),
        "points": [
            [name, None if row is None else start + row]
            for name, row in points.find_rows_of_points(study.points, space, frame).items()
        ],
        **answers,
        "verified": _verified_record(part, frame, start),
        "sample": _sample_record(study, sample, start),
        "bands": estimate_study_error_bands(study),
        "rates": _rate_bands(study),
        "sources": _source_records(study),
        "runs": [_run_record(run) for run in part.runs],
    }
    return record, with_offered_load(frame, sample)


def _front_table(study: Study, frame: pd.DataFrame) -> dict[str, Any]:
    """Table of the front as text, which a page shows before its script runs."""
    space = study.question.space
    units = {knob.address: space.spec(knob.address).metadata["unit"] for knob in space.knobs}
    return front_rows(frame, study.objectives, units, DESIGN)


def _front_answers(part: ReportedStudy, frame: pd.DataFrame, start: int, kept: PageCache) -> dict[str, Any]:
    """Breakdowns, figures and explanations of a front, with the keys of `UNEXPLAINED`."""
    explained, records = _explained_rows(part.study, frame, start, kept)
    return {
        "explained": explained,
        "figures": collect_page_figures(part, frame, start, records, kept),
        "why": why.collect_front_explanations(part.study, frame, part.screened, start, kept),
        "bars": time_stacks(part.study, frame, start, kept),
    }


def _sample_record(study: Study, sample: FrontSample, start: int) -> dict[str, Any]:
    """Load and noise of a front, and by row of the page the margins of its designs to each constraint."""
    margins = {
        str(start + row): [
            record_values(margin.record()) | {"bound": study.bounds.index(margin.bound)} for margin in known.margins
        ]
        for row, known in enumerate(sample.designs.values())
        if known.is_evaluated
    }
    return {**plain_values(sample.record()), "margins": margins}


def _with_robustness(frame: pd.DataFrame, known: FrontRobustness | None, order: KindOrder) -> pd.DataFrame:
    """A frame with the share of draws and the chips that are not distinguished, of designs of the front, if any has them."""
    columns: dict[str, list[Any]] = {}
    if known is not None:
        columns[SHARE] = [known.designs[name].share if name in known.designs else np.nan for name in frame[DESIGN]]
    if order.undecided:
        columns[UNDECIDED] = [", ".join(order.undecided[name]) if name in order.undecided else None for name in frame[DESIGN]]
    return frame.assign(**{name: pd.Series(cells, index=frame.index) for name, cells in columns.items()})


def _robust_record(frame: pd.DataFrame, start: int, known: FrontRobustness | None) -> dict[str, Any] | None:
    """Draws of the constants, and by row of the page the shares of a design and the constants that turn it; None if unknown."""
    if known is None:
        return None
    rows = {name: start + row for row, name in enumerate(frame[DESIGN])}
    return {
        "draws": known.draws,
        "constants": known.constants,
        "fidelity": known.fidelity,
        "designs": {
            str(rows[name]): [design.share, design.near_share, [format_turning_constant(turns) for turns in design.turning]]
            for name, design in known.designs.items()
            if name in rows
        },
    }


def _rate_bands(study: Study) -> dict[str, Any]:
    """Bands of the rates of whole models by chip, and the power of the rate with which each metric goes; empty for kernels."""
    cases = study.question.workload.cases
    if study.fidelity in external_fidelities() or not all(isinstance(case, BatchCase | ServingLoad) for case in cases):
        return {"chips": {}, "powers": {}}
    fixed = has_fixed_rate(study.question.workload)
    powers = {name: rate_exponent(name, fixed=fixed) for name in METRICS}
    chips = {band.chip: {"low": band.low, "high": band.high, "source": band.source} for band in estimate_kind_bands(study)}
    return {"chips": chips, "powers": {name: power for name, power in powers.items() if power}}


def _line_pictures(study: Study, frame: pd.DataFrame, start: int) -> list[dict[str, Any]]:
    """The pictures that a study asks for, one for each case where it says so: with the values there, by row."""
    known = study.question.space.targets
    lines: list[dict[str, Any]] = []
    specs = [spec for spec in study.report.lines if spec.x in known]
    names = dict.fromkeys(spec.y for spec in specs if spec.each)
    views = rows_by_case(study, frame, *names) if names else {}
    for spec in specs:
        line = {"x": spec.x, "y": spec.y, "by": spec.by if spec.by in known else None}
        if not spec.each:
            lines.append(line)
            continue
        for label, view in views.items():
            shown = zip(view.index.tolist(), view[spec.y], strict=True)
            values = {str(start + int(row)): short_number(value) for row, value in shown if np.isfinite(value)}
            lines.append(line | {"case": label, "values": values})
    return lines


def _knob_record(study: Study, address: str) -> dict[str, Any]:
    """A knob, and how each leaf that it moves is overridden on the command line."""
    if address == CHIP_KNOB:
        return {"address": address, "overrides": ["chips"]}
    chosen, space = next((chosen, space) for chosen, space in study.question.space.base_spaces if address in space.targets)
    config = study.config["chips"][chosen[CHIP_KNOB]] if chosen else study.config
    return {
        "address": address,
        "overrides": [("" if _is_in(config, leaf) else "++") + leaf for leaf in space.targets[address]],
    }


def _tied_record(study: Study) -> list[dict[str, Any]]:
    """What follows knobs, by what it does so, and how its leaves are overridden on the command line."""
    ties: dict[str, dict[str, Any]] = {}
    for chosen, space in study.question.space.base_spaces:
        config = study.config["chips"][chosen[CHIP_KNOB]] if chosen else study.config
        for tied in space.tied:
            words = [("" if _is_in(config, leaf) else "++") + leaf for leaf in addresses(space.base, tied.address)]
            ties.setdefault(tied.address, {"address": tied.address, "by": tied.text, "overrides": words})
    return list(ties.values())


def _is_in(config: Any, address: str) -> bool:
    for part in address.split("."):
        if not isinstance(config, Mapping) or part not in config:
            return False
        config = config[part]
    return True


def _evaluate_words(study: Study) -> list[str]:
    return [mask_passwords(word) for word in study.overrides if not word.lstrip("+~").startswith(RUN_ONLY)]


def _knob_importance(study: Study, frame: pd.DataFrame) -> dict[str, dict[str, float]]:
    """By objective and knob, over the feasible designs of the screen or, if few, of all; of chips that have the knob."""
    rows = frame[frame["feasible"]]
    screened = rows[rows["stage"] == "screen"]
    rows = screened if len(screened) >= len(rows) / 2 else rows
    own = {}
    for address in study.question.space.targets:
        chips = [
            chosen[CHIP_KNOB]
            for chosen, space in study.question.space.base_spaces
            if chosen and address in (CHIP_KNOB, *space.targets)
        ]
        own[address] = rows[rows[CHIP_KNOB].isin(chips)] if chips else rows
    return {
        name: {
            address: estimate_sobol_index(rows[name].to_numpy(dtype=float), _numeric_values(rows[address]))
            for address, rows in own.items()
        }
        for name in study.objectives
    }


def _numeric_values(series: pd.Series) -> Array:
    numbers = pd.to_numeric(series, errors="coerce")
    return numbers.to_numpy(dtype=float) if numbers.notna().any() else pd.factorize(series)[0].astype(float)


def _explained_rows(
    study: Study, frame: pd.DataFrame, start: int, kept: PageCache
) -> tuple[dict[str, Any], dict[int, dict[str, Any]]]:
    """By row, where the time of a design goes in the first case: operators, with words coded, and area by block.

    The second value has the same by row of the frame, as `breakdown_record` has it.

    By the study's fidelity as long as `BUDGET_S` allows, as a simulation may take seconds; a later page of the same designs
    spends no more on others.
    """
    good = np.flatnonzero(frame["feasible"])
    values = frame[list(study.objectives)].to_numpy(dtype=float)[good]
    rows = good[nondominated_layers(values, study.directions, MAX_EXPLAINED)]
    space, case, words = study.question.space, study.question.workload.cases[0], _Words()
    designs: dict[str, Any] = {}
    records: dict[int, dict[str, Any]] = {}
    began = time.monotonic()
    points = [knob_values(study, frame.iloc[int(row)].to_dict()) for row in rows]
    questions = [breakdown_question(space.key_at(at), study.fidelity) for at in points]
    kept.load(questions)
    stored = [kept.find(question) for question in questions]
    decode_context = study.question.workload.decode_context
    settle_open_choices(
        [
            space.design_at(at)
            for at, question, record in zip(points, questions, stored, strict=True)
            if record is None and not kept.is_late(question)
        ],
        case,
        decode_context=decode_context,
    )
    kept.load([breakdown_question(question.key, "analytical") for question in questions if kept.is_late(question)])
    for row, at, question, matches in zip(rows, points, questions, stored, strict=True):
        if matches is None:
            taken, late = time.monotonic() - began, kept.is_late(question)
            if taken > MAX_BUDGET_S or (late and study.fidelity == "analytical"):
                kept.note_late(question)
                continue  # others may be kept
            by = study.fidelity if taken < BUDGET_S and not late else "analytical"
            if by != study.fidelity:
                kept.note_late(question)
            matches = kept_breakdown(study, at, 0, by, kept)
        records[int(row)] = matches
        operators = [
            [words.get_code(cell) if isinstance(cell, str) else cell for cell in operator] for operator in matches["operators"]
        ]
        shown = {name: value for name, value in matches.items() if name not in (BINDING, STACKS)}
        designs[str(start + int(row))] = shown | {"operators": operators}
    return {"case": case.label, "words": words.known, "designs": designs}, records


def _verified_record(part: ReportedStudy, frame: pd.DataFrame, start: int) -> dict[str, Any] | None:
    """What was evaluated at both fidelities: metrics by page row, how far each moves, and the front at the higher one."""
    verification = part.verified
    if verification is None:
        return None
    rows = {int(place): start + row for row, place in enumerate(frame["place"])}
    after = verification.after
    return {
        "low": verification.low,
        "high": verification.high,
        "part": verification.part,
        "wanted": verification.wanted,
        "rows": [rows[int(row)] for row in after.index],
        "moves": list(verification.moves()),
        "notes": _failure_notes(after),
        "before": _metric_lists(verification.before),
        "metrics": _metric_lists(after),
        "shifts": [asdict(shift) | {"row": rows[shift.row]} for shift in verification.shifts()],
        "off": {
            "wanted": verification.off.wanted,
            "rows": [rows[int(row)] for row in verification.off.after.index],
            "strata": [int(stratum) for stratum in verification.off.strata],
            "moves": [_off_front_text(better=bool(better), part=verification.part) for better in verification.off.better],
            "notes": _failure_notes(verification.off.after),
            "before": _metric_lists(verification.off.before),
            "metrics": _metric_lists(verification.off.after),
        },
        "ranks": [asdict(rank) | {"row": rows.get(rank.row, -1)} for rank in verification.ranks],
        "decisions": [
            {
                "metric": lead.metric,
                "winner": rows[lead.winner],
                "runner_up": rows[lead.runner_up],
                "said": lead.text(verification.low, verification.high, bool(verification.part)),
            }
            for lead in verification.decisions
        ],
        "streams": {
            "text": verification.verdict_text,
            "broken": [[rows[verdict.row], describe_verdict(verdict)] for verdict in verification.broken_verdicts],
        },
        "shared": list(verification.shared),
        "own": list(verification.own),
    }


def _off_front_text(*, better: bool, part: str) -> str:
    """What becomes of a design off the front; on a part of a mesh there is no front of its kind."""
    return "off the front" if part or not better else "comes on"


def _failure_notes(frame: pd.DataFrame) -> list[str]:
    """Of each design, why it has no metrics or breaks a limit; "" of others."""
    return [str(error or limit or "") for error, limit in zip(frame["error"], frame["limit"], strict=True)]


def _metric_lists(frame: pd.DataFrame) -> dict[str, list[float]]:
    """By name, for each design; those that none has left out."""
    columns = {name: frame[name].to_numpy(dtype=float) for name in METRICS if name in frame}
    return {name: [short_number(value, 9) for value in values] for name, values in columns.items() if np.isfinite(values).any()}


class _Words:
    """Texts by number, each kept once."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}

    def get_code(self, text: str) -> int:
        return self._codes.setdefault(text, len(self._codes))

    @property
    def known(self) -> list[str]:
        return list(self._codes)


SAID = "no source: set on the command line, in the study, or in a file without sources"
"""Of a constant, what stands for its source there."""


def _source_records(study: Study) -> list[dict[str, str]]:
    """The constants of the chip that no knob moves, each with the text that its source stands for."""
    texts = {"override": SAID, **read_bibliography()}
    moved = {
        f"{chosen[CHIP_KNOB]}: {address}" if chosen else address
        for chosen, space in study.question.space.base_spaces
        for targets in space.targets.values()
        for address in targets
    }
    return [
        {
            "address": source.address,
            "value": source.value,
            "source": source.source,
            "text": texts.get(source.source, ""),
            "page": source.page,
            "note": source.note,
        }
        for source in study.question.sources
        if source.address not in moved
    ]


def _run_record(run: Mapping[str, Any]) -> dict[str, Any]:
    facts = run["facts"]
    kept = {
        name: facts[name]
        for name in ("version", "git", "host", "user", "wall_seconds", "cpu_seconds", "results", "error", "seed")
        if name in facts
    }
    shown = {
        "started": str(run["started"]),
        "ended": str(run["ended"] or ""),
        "state": str(run["state"]),
        "overrides": [str(word) for word in facts.get("overrides", [])],
        **{name: value if isinstance(value, int | float) else str(value) for name, value in kept.items()},
    }
    return dict(mask_passwords_in(shown))

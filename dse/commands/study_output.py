"""Output on studies: the front of one, its verification, and the list of studies.

Text only; pictures are in the report.
"""

from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
from rich.markup import escape
from rich.table import Table

from dse.commands.reference_output import kinds_text
from dse.documents.list_document import ListDocument, ListedStudyRecord, StoredRunRecord
from dse.evaluators import METRICS
from dse.execution.certify import describe_certificate, read_certificate
from dse.execution.rank_agreement import RankCorrelation
from dse.execution.result_frame import DESIGN
from dse.execution.study import Study, stored_location
from dse.execution.verify import Verification
from dse.execution.verify_streams import describe_verdict
from dse.explanations.advice import count_rejections, find_smallest_relaxation
from dse.explanations.sample_noise import KEPT, OFFERED_LOAD, FrontSample, fixed_rate_text
from dse.report.caveats import describe_stacks
from dse.report.kind_order import estimate_kind_bands, find_kind_order, has_several_kinds
from dse.report.page_cache import PageCache
from dse.report.sampled_front import cached_front_sample
from dse.space.design import make_ids
from dse.space.errors import DesignError
from dse.space.multi_chip_space import CHIP_KNOB
from dse.space.safe_text import count_text, mask_passwords, strip_control_codes
from dse.space.units import format_quantity
from dse.space.workload import Workload
from dse.terminal.json_text import format_json
from dse.terminal.plain_names import named_setting, setting_name
from dse.terminal.progress import SafeConsole

MAX_ROWS = 15
"""Designs of a front that are printed; the report has all."""

MAX_COLUMNS = 12
"""Knobs and objectives that fit side by side."""


def print_front(study: Study, frame: pd.DataFrame, sample: FrontSample) -> None:
    """Print the front of a study, sorted by the first objective: one design a row or a column.

    If no design is feasible, print the violated limits and the smallest relaxation that admits a design.

    Args:
        study: the study.
        frame: its designs.
        sample: offered load of the front, and its margins to constraints.
    """
    if not frame["feasible"].any():
        _rejected_table(study, frame)
        return
    best = frame[frame["front"]]
    first, direction = next(iter(study.objectives.items()))
    best = best.sort_values(first, ascending=direction == "min", kind="stable")
    knobs = [knob.address for knob in study.question.space.knobs if best[knob.address].notna().any()]
    knobs[1:1] = ["formats"] if "formats" in best else []
    beside = _sample_cells(sample)
    across = 1 + len(knobs) + len(study.objectives) + len(beside) <= MAX_COLUMNS
    most = MAX_ROWS if across else MAX_COLUMNS // 2
    picks = best.iloc[[round(i * (len(best) - 1) / max(most - 1, 1)) for i in range(most)]] if len(best) > most else best
    names = ["rank", DESIGN, *map(setting_name, knobs), *study.objectives, *beside]
    ranks = {place: rank for rank, place in enumerate(best.index, 1)}
    cells = [
        [f"{ranks[place]:,}", str(row[DESIGN])]
        + [format_knob(study, address, row[address]) for address in knobs]
        + [format_quantity(float(row[name]), METRICS[name].unit) for name in study.objectives]
        + [texts.get(str(row[DESIGN]), "-") for texts in beside.values()]
        for place, row in picks.iterrows()
    ]
    more = f", {most} shown" if len(best) > most else ""
    table = Table(
        title=f"front: {len(best):,} of {int(frame['feasible'].sum()):,} feasible designs in the report{more}",
        title_justify="left",
        show_header=across,
    )
    if across:
        for name in names:
            fixed = name in ("rank", DESIGN)
            style = "bold" if name in study.objectives else ""
            table.add_column(name, justify="right", style=style, overflow="fold", no_wrap=fixed)
        for row in cells:
            table.add_row(*row)
    else:
        table.add_column(no_wrap=True)
        for _ in cells:
            table.add_column(justify="right", overflow="fold")
        for place, name in enumerate(names):
            row = [cell[place] for cell in cells]
            table.add_row(name, *row, style="bold" if name in study.objectives else "", end_section=place == len(knobs) + 1)
    SafeConsole(160).print(table)
    print_sample(sample)


def _sample_cells(sample: FrontSample) -> dict[str, dict[str, str]]:
    """Columns of a front beside knobs and objectives, each with its cells by design."""
    columns = {}
    if sample.load_range is not None:
        columns[OFFERED_LOAD] = {name: format_quantity(known.load, "1", 3) for name, known in sample.designs.items()}
    if sample.noise_text:
        columns["constraints"] = {
            name: ", ".join(f"{margin.bound.metric} {margin.verdict}" for margin in known.noisy) or KEPT
            for name, known in sample.designs.items()
            if known.is_evaluated
        }
    return columns


def print_sample(sample: FrontSample, width: int = 9) -> None:
    """Print how loaded a front is, and which of its designs are within noise of a constraint.

    Args:
        sample: of the front.
        width: characters of the names before the lines.
    """
    console = SafeConsole(160)
    rows = [("load", sample.load_text), ("noise", sample.noise_text), *(("", line) for line in sample.noise_lines())]
    for name, text in rows:
        if text:
            console.print(f"{name:{width}}{escape(text)}")


def _rejected_table(study: Study, frame: pd.DataFrame) -> None:
    console = SafeConsole(160)
    table = Table(title=f"none of {len(frame):,} designs is feasible", title_justify="left")
    for column in ("limit or constraint", "designs that violate it", "least by"):
        table.add_column(column, justify="left" if column.startswith("limit") else "right", overflow="fold")
    for rejection in count_rejections(study, frame):
        table.add_row(rejection.what, f"{rejection.designs:,}", f"{100 * rejection.least:.3g} %" if rejection.least else "-")
    console.print(table)
    values, gives = find_smallest_relaxation(study, frame)
    if gives:
        knobs = ", ".join(f"{address} {format_knob(study, address, value)}" for address, value in values.items())
        console.print(f"smallest relaxation that admits a design: {escape(', and '.join(gives))}")
        console.print(f"for the design {make_ids([study.question.space.key_at(values)])[0]}: {escape(knobs)}")


def print_verification(study: Study, verification: Verification) -> None:
    """Print how metrics of a study shift at a higher fidelity, and which designs enter or leave the front."""
    console = SafeConsole(160)
    table = Table(
        title=f"{verification.high} against {verification.low}: {count_text(len(verification.after), 'design')}",
        title_justify="left",
    )
    for column in ("metric", "rank correlation", "median shift", "worst shift"):
        table.add_column(column, justify="left" if column == "metric" else "right")
    wanted = dict.fromkeys((*study.objectives, *(bound.metric for bound in study.bounds)))
    for shift in verification.shifts():
        if shift.metric in wanted:
            correlation = "-" if shift.correlation is None else f"{shift.correlation:.3f}"
            table.add_row(shift.metric, correlation, f"{shift.median:+.2%}", f"{shift.worst:+.2%}")
    console.print(table)
    moves = verification.moves()
    names = [name for name in study.objectives if verification.before[name].notna().any()]
    if verification.part:
        console.print(escape(verification.part))
        names = [name for name in names if (verification.before[name] != verification.after[name]).any()] or names[:1]
    else:
        stay, fall, come = (int((moves == move).sum()) for move in ("stays", "falls off", "comes on"))
        console.print(
            f"of {stay + fall:,} designs on the front, {stay:,} stay there at {verification.high} and {fall:,} fall off; "
            f"{come:,} enter it"
        )
    if verdict_text := verification.verdict_text:
        console.print(escape(verdict_text))
    for verdict in verification.broken_verdicts[:MAX_ROWS]:
        console.print(f"  {_design_id(verification, verdict.row)} {escape(describe_verdict(verdict))}")
    _ranks_table(console, study, verification)
    shown = verification.shown_places(MAX_ROWS)
    if not shown:
        return
    table = Table()
    knobs = [knob.address for knob in study.question.space.knobs if verification.after[knob.address].iloc[shown].nunique() > 1]
    columns = ((name, f"{name}, {verification.low}", f"{name}, {verification.high}") for name in names)
    texts = ["" if verification.part else str(moves.iloc[place]) for place in shown]
    texts = [escape(_failure_text(verification.after.iloc[place])) or word for place, word in zip(shown, texts, strict=True)]
    for column in (
        *([""] if any(texts) else []),
        DESIGN,
        *map(setting_name, knobs),
        *(column for _, low, high in columns for column in (low, high, "gap")),
    ):
        table.add_column(column, justify="right", overflow="fold")
    for place, word in zip(shown, texts, strict=True):
        before, after = verification.before.iloc[place], verification.after.iloc[place]
        cells = [*([word] if any(texts) else []), str(after[DESIGN])]
        cells += [format_knob(study, address, after[address]) for address in knobs]
        for name in names:
            low, high = float(before[name]), float(after[name])
            cells += [
                *(format_quantity(value, METRICS[name].unit) for value in (low, high)),
                f"{high / low - 1:+.1%}" if low else "-",
            ]
        table.add_row(*cells)
    console.print(table)


def _ranks_table(console: SafeConsole, study: Study, verification: Verification) -> None:
    """Whether both rank alike, on the front and off it, what moves most, and what the two share."""
    off = verification.off
    table = Table(
        title=f"rank correlation, 95 %: {len(verification.after):,} of the best and {len(off.after):,} off the front",
        title_justify="left",
    )
    for column in ("metric", "on the front", "off the front", "overall", "moves most", "order of the front"):
        table.add_column(column, justify="left" if column == "metric" else "right", overflow="fold")
    for rank in verification.ranks:
        moved = (
            f"{_knobs_text(study, verification, rank.row)}: {rank.before} to {rank.after}" if rank.row >= 0 else "none moves"
        )
        decided = f"{rank.decided} of {rank.pairs} neighbours decided" if rank.pairs else "-"
        table.add_row(rank.metric, *(rank_text(group) for group in (rank.front, rank.off, rank.overall)), moved, decided)
    if verification.ranks:
        console.print(table)
    for lead in verification.decisions:
        winner = _knobs_text(study, verification, lead.winner, lead.runner_up)
        other = _knobs_text(study, verification, lead.runner_up, lead.winner)
        lead_text = lead.text(verification.low, verification.high, bool(verification.part))
        console.print(escape(f"best by {lead.metric}: {winner} leads {other} {lead_text}"))
    if int(off.better.sum()) and not verification.part:
        console.print(
            f"of {len(off.after):,} designs off the front, {int(off.better.sum()):,} "
            f"would be on the front at {verification.high}"
        )
    if verification.shared:
        console.print(escape(f"{verification.high} and {verification.low} share: {'; '.join(verification.shared)}"))
        console.print(escape(f"parts that differ: {'; '.join(verification.own)}"))


def _knobs_text(study: Study, verification: Verification, row: int, beside: int | None = None) -> str:
    """A verified design by the values of its knobs; beside another one, by those that differ."""

    def format_row_knobs(row: int) -> dict[str, str]:
        values = verification.before.loc[row] if row in verification.before.index else verification.off.before.loc[row]
        return {knob.address: format_knob(study, knob.address, values[knob.address]) for knob in study.question.space.knobs}

    shown, others = format_row_knobs(row), format_row_knobs(beside) if beside is not None else {}
    differ = (f"{address} {text}" for address, text in shown.items() if text != "-" and others.get(address) != text)
    return " ".join([_design_id(verification, row), *filter(None, [", ".join(differ)])])


def _design_id(verification: Verification, row: int) -> str:
    rows = verification.before if row in verification.before.index else verification.off.before
    return str(rows[DESIGN].loc[row])


def rank_text(correlation: RankCorrelation) -> str:
    """A rank correlation with its interval and number of designs, as text."""
    if correlation.tau is None:
        return f"- ({correlation.designs})"
    span = (
        f", {correlation.low:.2f} to {correlation.high:.2f}"
        if correlation.low is not None and correlation.high is not None
        else ""
    )
    return f"{correlation.tau:.2f}{span} ({correlation.designs})"


def _failure_text(row: pd.Series) -> str:
    """Why a design has no metrics, or breaks a limit."""
    return next((str(row[name]) for name in ("error", "limit") if isinstance(row[name], str)), "")


def format_knob(study: Study, address: str, value: Any) -> str:
    """A knob's value as text; a dash where the knob is inactive."""
    if isinstance(value, str):
        return value
    if pd.isna(value):  # None, NaN, or NA in columns of whole numbers
        return "-"
    unit = study.question.space.spec(address).metadata["unit"]
    return format_quantity(float(value), unit)


def print_studies(known: dict[str, Path], *, as_json: bool) -> int:
    """Print the studies that can be run and those that ran in this folder."""
    document = studies_record(known)
    if as_json:
        print(format_json(document, indent=1))
        return 0
    table = Table(box=None, title="studies: dse run study=NAME", title_justify="left")
    for column in ("name", "question", "ran here"):
        table.add_column(column, overflow="fold")
    for study in document.studies:
        table.add_row(escape(study.name), escape(study.question), escape(_ran_text(study.ran)))
    console = SafeConsole(140)
    console.print(table)
    console.print(escape(kinds_text()))
    return 0


def studies_record(known: dict[str, Path]) -> ListDocument:
    """The document of the studies."""
    ran = {path.name: place for path in sorted(Path("runs").glob("*")) if (place := stored_location(path)) is not None}
    names = [*known, *(name for name in ran if name not in known)]
    return ListDocument(
        studies=[
            ListedStudyRecord(
                name=name,
                question=_question_of(known[name]) if name in known else "",
                defined=name in known,
                ran=_study_state(name, ran[name]) if name in ran else None,
            )
            for name in names
        ]
    )


def _tied_names(study: Study) -> dict[tuple[str, str], list[str]]:
    """Leaves that follow knobs, with their expressions; and the chips on which they do, where there are several."""
    names_by_tie: dict[tuple[str, str], list[str]] = {}
    for chosen, space in study.question.space.base_spaces:
        for tied in space.tied:
            names_by_tie.setdefault((tied.address, tied.text), []).extend(str(name) for name in chosen.values())
    return names_by_tie


def format_case_labels(workload: Workload) -> str:
    """Labels of the cases of a workload: the only one, or the first and the last."""
    first, last = workload.cases[0].label, workload.cases[-1].label
    return first if len(workload.cases) == 1 else f"from {first} to {last}"


def describe_devices(study: Study) -> list[str]:
    """Tensor parallelism that a study leaves open and no knob moves, as text, chip by chip."""
    texts = []
    for chosen, space in study.question.space.base_spaces:
        name = str(chosen.get(CHIP_KNOB, ""))
        moved = any(knob.address.endswith(".tp") for knob in space.knobs)
        if text := "" if moved else study.question.devices.get(name, ""):
            texts.append(f"{name}: {text}" if name else text)
    return texts


def describe_load(study: Study) -> str:
    """The rate that all designs of a study have, as text; empty string where there is none."""
    rate = fixed_rate_text(study.question.workload)
    option = "users" if " user" in rate else "rate_scale" if study.config["workload"].get("arrivals") == "trace" else "rate"
    instead = "" if option == "users" else f"; workload.{option}=max compares them at the largest rate of each"
    return f"{rate}; designs differ in how much of them that uses (offered_load){instead}" if rate else ""


def print_study(
    study: Study, runs: list[dict[str, Any]], sample: FrontSample | None, read_frame: Callable[[], pd.DataFrame]
) -> int:
    """Print a study: objectives, constraints, workload, knobs, unsourced constants and runs.

    Args:
        study: the study.
        runs: of it.
        sample: load and noise of its front; None without results.
        runs: as the store has them.
        read_frame: gives its designs, where several kinds of chips have an order.
    """
    console = SafeConsole(140)
    console.print(f"[bold]{escape(study.name)}[/]  {escape(study.text)}")
    if study.chips:
        console.print(f"chips        {escape(study.chips)}")
    if study.pools:
        console.print(f"pools        {escape(study.pools)}")
    goals = ", ".join(f"{metric} {direction}" for metric, direction in study.objectives.items())
    console.print(f"objectives   {goals}")
    console.print(f"constraints  {', '.join(map(str, study.bounds)) or 'none'}")
    cases = study.question.workload.cases
    console.print(f"workload     {count_text(len(cases), 'case')}, {escape(format_case_labels(study.question.workload))}")
    if sample is not None and sample.designs:
        print_sample(sample, width=13)
    elif load := describe_load(study):
        console.print(f"load         {escape(load)}")
    for text in describe_devices(study):
        console.print(f"devices      {escape(text)}")
    for text in describe_stacks(study):
        console.print(f"software     {escape(text)}")
    if has_several_kinds(estimate_kind_bands(study)) and (order := find_kind_order(study, read_frame())).text:
        console.print(f"order        {escape(order.text)}")
        for design, chips in order.undecided.items():
            console.print(f"             {design} is not distinguished from {escape(', '.join(chips))}")
    print_certificate(study)
    for knob in study.question.space.knobs:
        values = getattr(knob, "values", None)
        texts = [format_knob(study, knob.address, value) for value in values or (knob.low, knob.high)]  # type: ignore[union-attr]
        text = ", ".join(texts if len(texts) <= 8 else [*texts[:3], "...", texts[-1]])
        console.print(
            f"knob         {named_setting(knob.address)}: "
            + (f"{escape(text)} ({len(texts)})" if values else f"{text} (interval)")
        )
    for (address, text), given_source in _tied_names(study).items():
        console.print(
            f"tied         {named_setting(address)}: {escape(text)}" + (f" ({', '.join(given_source)})" if given_source else "")
        )
    unsure: dict[tuple[str, str], list[str]] = {}
    for source in study.question.sources:
        if source.source in ("assumed", "fitted"):
            unsure.setdefault((source.source, source.note), []).append(f"{source.address} = {source.value}")
    for (kind, note), constants in unsure.items():
        console.print(f"{kind:12} {escape(', '.join(constants))}: {escape(note)}")
    bare = [f"{source.address} = {source.value}" for source in study.question.sources if source.source == "override"]
    if bare:
        console.print(f"no source    {escape(', '.join(bare))}: set on the command line, or in a file without sources")
    for run in runs:
        console.print(f"run          {escape(_run_text(run))}")
    return 0


def print_study_results(study: Study, frame: pd.DataFrame, verification: Verification | None) -> None:
    """Print the front of a study and its verification; nothing without results."""
    if len(frame):
        print_front(study, frame, cached_front_sample(study, frame, PageCache(study), seconds=0.0))
    if verification is not None:
        print_verification(study, verification)


def print_certificate(study: Study) -> None:
    """Print what is proved of a study's front; nothing without a certificate."""
    record = read_certificate(study)
    for place, line in enumerate(describe_certificate(record) if record else ()):
        SafeConsole(160).print(f"{'' if place else 'certificate':13}{escape(line)}")


def _run_text(run: Mapping[str, Any]) -> str:
    """When a run was, how it ended, what it took, who ran it where, and with what."""
    facts = run["facts"]
    spent = [
        f"{format_quantity(facts[f'{kind}_seconds'], 's', 3)} {kind}"
        for kind in ("wall", "cpu")
        if isinstance(facts.get(f"{kind}_seconds"), int | float)
    ]
    if spent and isinstance(facts.get("worker_cpu_seconds"), int | float):
        spent[-1] += f", {format_quantity(facts['worker_cpu_seconds'], 's', 3)} of it in workers"
    lost = f" (its machine {facts.get('host', '?')} has no lock on this file: the run was killed, or this is a copy)"
    parts = [f"{run['started']} {run['state']}" + (lost if run["state"] == "lost" else ""), *spent]
    counts = (("results", "designs searched"), ("verified", "verified"))
    parts += [f"{facts[name]:,} {what}" for name, what in counts if isinstance(facts.get(name), int)]
    parts += [f"{facts.get('user', '?')} on {facts.get('host', '?')}, process {facts.get('pid', '?')}"]
    parts += [f"seed {facts['seed']}"] if "seed" in facts else []
    known = {"mesh-dse": facts.get("version"), "python": facts.get("python"), **facts.get("versions", {})}
    parts += [", ".join(f"{name} {number}" for name, number in known.items() if number)]
    parts += [f"git {facts['git']}"] if facts.get("git") else []
    parts += [facts[key] for key in ("command", "error") if facts.get(key)]
    return "; ".join(part for part in parts if part)


def _question_of(path: Path) -> str:
    for line in path.read_text(errors="replace").splitlines():
        if line.startswith("question:"):
            return line.partition(":")[2].strip().strip('"')
    return ""


def _study_state(name: str, place: str) -> StoredRunRecord:
    """How far a study is, or why nobody can say."""
    from dse.store.store import Store

    try:
        with closing(Store(place, create=False)) as store:
            runs = store.runs(name)
    except DesignError as error:  # the others are listed all the same
        return StoredRunRecord(state=None, searched=None, refused=strip_control_codes(mask_passwords(str(error))))
    if not runs:
        return StoredRunRecord(state=None, searched=None, refused=None)
    searched = runs[-1]["facts"].get("results", 0)
    return StoredRunRecord(state=runs[-1]["state"], searched=searched if isinstance(searched, int) else None, refused=None)


def _ran_text(ran: StoredRunRecord | None) -> str:
    if ran is None:
        return ""
    if ran.refused:
        return ran.refused
    return f"{ran.state}, {ran.searched or 0} searched" if ran.state else "no run"

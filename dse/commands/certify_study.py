"""Certificate of a study's front, whose members are evaluated as a search does."""

from collections.abc import Sequence
from typing import Any

import pandas as pd
from rich.markup import escape

from dse.execution.ask_tell import base_design_key, read_stored_asks, run_search
from dse.execution.certify import Certificate, Certifier, describe_certificate
from dse.execution.provenance import RunClock
from dse.execution.result_frame import knob_values, search_frame
from dse.execution.screen import ScreenResult
from dse.execution.study import Study
from dse.execution.study_settings import CERTIFY
from dse.execution.workers import make_evaluator, make_workers
from dse.search.samplers import ListSampler, Values
from dse.space.safe_text import count_text
from dse.store.store import Store
from dse.terminal.progress import ProgressBar, ProgressCallback, say


def certify_study(
    study: Study, store: Store, screened: ScreenResult | None, elapsed: RunClock, report_progress: ProgressCallback
) -> pd.DataFrame:
    """Prove by how much the front of a study may be beaten, and return all its searched designs.

    Args:
        study: with search.sampler=certify.
        store: whose results are incumbents, and which gets the members of the front.
        screened: what the screen found, whose front begins the other.
        elapsed: of the run.
        report_progress: takes how far it is.
    """
    incumbents = _known_designs(study, store, screened)
    certifier = Certifier(study, incumbents)
    say(f"  certify: begins with {count_text(len(certifier.search.front.values), 'design')} of {len(incumbents):,} known")
    if certifier.resumed_boxes:
        say(f"  certify: going on from {count_text(certifier.resumed_boxes, 'box')}")
    budget = study.search.boxes
    with ProgressBar("certify", report_progress, unit="boxes") as bar:

        def show_progress(gap: float, boxes: int, open_boxes: int) -> None:
            bar.update(boxes, budget, f"gap {100 * gap:.3g} %, {open_boxes:,} boxes open")

        certificate = certifier.run(show_progress)
    for line in describe_certificate(certificate.record):
        say(f"  certify: {escape(line)}")
    _store_members(study, store, certificate, elapsed)
    return search_frame(study, read_stored_asks(study, store))


def _known_designs(study: Study, store: Store, screened: ScreenResult | None) -> list[Values]:
    """Knob values of the study's points, and of feasible designs that it has searched or screened."""
    known: list[Values] = list(study.points.values())
    known += [ask.values for ask, result in read_stored_asks(study, store).values() if not result.limit and not result.error]
    if screened is not None:
        known += [knob_values(study, row) for row in screened.front.to_dict("records")]
    return known


def _store_members(study: Study, store: Store, certificate: Certificate, elapsed: RunClock) -> None:
    """Evaluate members of the front that no search of the study has evaluated, with all metrics, and store them."""
    space = study.question.space
    before = store.asks(store.search(study.name, study.identity()), study.context.physics)
    known = {design for _, design in before}
    members: Sequence[Any] = [values for values in certificate.members if space.key_at(values) not in known]
    if not members:
        return
    base = study.question.base
    workers = make_workers(
        study.crew,
        make_evaluator(study.question.workload, study.fidelity),
        window=study.search.window,
        designs=len(members),
        example=[(base_design_key(study)[0], {}, base)],
        say=lambda text: say(f"  {text}"),
    )
    with elapsed.closing_workers(workers):
        run_search(
            study,
            store,
            ListSampler(members, len(before)),
            workers,
            len(known) + len(members),
            [],
            lambda done, results: None,
            about={"sampler": CERTIFY},
        )

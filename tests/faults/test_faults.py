"""The list of seeded faults stays true to the sources; one is played here, all by `python -m tests.faults`."""

from pathlib import Path

import pytest

from tests.contract.golden.questions import QUESTIONS
from tests.faults import FAULTS, GOLDEN, ROOT, Fault, failed, mutated
from tests.house.sources import place

LINK = next(fault for fault in FAULTS if fault.path.endswith("device_links.py"))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.wrong.replace(" ", "-"))
def test_a_fault_is_in_physics_once_and_is_a_program(fault: Fault) -> None:
    assert fault.path.startswith(("space/", "evaluators/"))
    source = mutated(fault)
    assert source != (ROOT / fault.path).read_text()
    compile(source, place(ROOT / fault.path), "exec")


def test_every_fault_names_a_question_of_the_golden_set() -> None:
    known = {question for questions in QUESTIONS.values() for question in questions}
    assert {fault.golden for fault in FAULTS} <= known


def test_every_room_that_holds_physics_has_a_fault() -> None:
    rooms = {fault.path.split("/")[1] for fault in FAULTS}
    assert rooms >= {"graph", "layouts", "kernels", "machine", "accounting", "serving", "silicon"}


def test_a_fault_is_found_by_an_identity_and_by_the_golden_set(tmp_path: Path) -> None:
    assert not failed(LINK.tests, tmp_path)
    failures = failed(LINK.tests, tmp_path, LINK)
    assert {test.startswith(GOLDEN) for test in failures} == {True, False}

"""The list of seeded faults stays true to the sources; two are played here, all by `python -m tests.faults`."""

import ast
from pathlib import Path

import pytest

from tests.contract.golden.questions import QUESTIONS
from tests.faults import FAULTS
from tests.faults.driver import DRIVER
from tests.faults.physics import PHYSICS
from tests.faults.seeding import GOLDEN, ROOT, Fault, failed, mutated
from tests.house.sources import place

LINK = next(fault for fault in PHYSICS if fault.path.endswith("device_links.py"))
ARCHIVE = next(fault for fault in DRIVER if fault.path.endswith("local_search.py"))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.wrong.replace(" ", "-"))
def test_a_fault_is_in_its_file_once_and_is_a_program(fault: Fault) -> None:
    assert not (ROOT / fault.path).is_relative_to(ROOT / "tests")
    source = mutated(fault)
    assert source != (ROOT / fault.path).read_text()
    compile(source, place(ROOT / fault.path), "exec")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.wrong.replace(" ", "-"))
def test_tests_that_are_to_find_a_fault_exist(fault: Fault) -> None:
    for test in fault.identities:
        path, _, name = test.partition("::")
        if path.startswith("tests/"):
            functions = {node.name for node in ast.parse((ROOT / path).read_text()).body if isinstance(node, ast.FunctionDef)}
            assert name.partition("[")[0] in functions
        else:  # a doctest
            assert name.partition("[")[0].startswith(path.removesuffix(".py").replace("/", "."))


def test_every_fault_of_physics_names_a_question_of_the_golden_set() -> None:
    known = {question for questions in QUESTIONS.values() for question in questions}
    assert {fault.golden for fault in PHYSICS} <= known


def test_every_room_that_holds_physics_has_a_fault() -> None:
    rooms = {fault.path.split("/")[1] for fault in PHYSICS}
    assert rooms >= {"graph", "layouts", "kernels", "machine", "accounting", "serving", "silicon"}


def test_every_room_of_the_driver_that_works_on_results_has_a_fault() -> None:
    rooms = {fault.path.split("/")[1] for fault in DRIVER}
    assert rooms >= {"config", "search", "store", "report", "commands", "execution", "huggingface", "explanations"}


def test_a_fault_is_found_by_an_identity_and_by_the_golden_set(tmp_path: Path) -> None:
    assert not failed(LINK.tests, tmp_path)
    failures = failed(LINK.tests, tmp_path, LINK)
    assert {test.startswith(GOLDEN) for test in failures} == {True, False}


def test_a_fault_of_the_driver_is_found(tmp_path: Path) -> None:
    assert failed(ARCHIVE.tests, tmp_path, ARCHIVE)

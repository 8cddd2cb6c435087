"""A package that is installed beside this one adds a GEMV, a policy, a metric and an evaluator by entry points.

No more of it is imported than is asked for.

The package is `studies/template`, as a stranger copies and installs it.
"""

import importlib.metadata
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType

import pytest

from dse.evaluators.kernels.attention import ATTENTION
from dse.evaluators.kernels.collective import ALLREDUCE
from dse.evaluators.kernels.gemm import GEMM
from dse.evaluators.kernels.gemv import GEMV, ring
from dse.evaluators.serving.scheduling_policy import POLICIES
from dse.report.page_parts import read_page_data
from dse.space import former_names
from dse.space.errors import DesignError, choose_option
from dse.space.former_words import SAID
from dse.space.registry import Registry

ROOT = Path(__file__).resolve().parents[2]
TEMPLATE = ROOT / "studies/template"

CODE = """
import json, sys
import numpy as np
from dse.evaluators import evaluate, explain, fidelities
from dse.evaluators.accounting.external_evaluators import EVALUATORS, ExternalEvaluator
from dse.evaluators.kernels.gemm.tiling import CoreMesh, GemmShape
from dse.evaluators.kernels.gemv import find_gemv
from dse.testing.functional_simulator import run_program
from dse.evaluators.serving.scheduling_policy import make_policy
from dse.space.design import stack_designs
from dse.space.errors import DesignError
from dse.space.fields import replace_leaves
from tests.samples import asked

def cycles(question, fidelity):
    return float(evaluate(stack_designs([question.base]), question.workload, fidelity=fidelity).columns["latency"][0])

alone = [asked("chip=wse2", "workload=gemv", "workload.shapes=[1x512x700]", f"mapping.rows={rows}", "mapping.gemv=binary")
         for rows in (2, 4, 8, 16)]
model = [asked("chip=wse2", "model=qwen3_1b7", "model.qwen3_1b7.layers=2", "workload.batch=[2]", "workload.prompt=48",
         "workload.output=4", "mapping.prefill.rows=8", "mapping.decode.rows=8", f"mapping.both.gemv={name}")
         for name in ("ring", "binary")]
first = "my_mesh.binary" in sys.modules
cycles(model[0], "analytical")
shipped = "my_mesh.binary" in sys.modules
found = {
    "alone": [[cycles(question, fidelity) for fidelity in ("analytical", "events")] for question in alone],
    "model": [cycles(model[1], fidelity) for fidelity in ("analytical", "events")],
    "imported": [first, shipped, "my_mesh.binary" in sys.modules],
    "tokens": make_policy("hasty").tokens,
    "metric": [evaluate(stack_designs([alone[0].base]), alone[0].workload, metrics=only).columns[name][0]
               for only in (None, ["core_share"]) for name in ("core_share", "cores")],
}
alone_ = alone[1]
fidelities_ = fidelities(alone_.base, alone_.workload), fidelities(model[0].base, model[0].workload)
found["fidelities"] = [list(words) for words in fidelities_]
found["launched"] = cycles(alone_, "launched") - cycles(alone_, "analytical")
found["same"] = [evaluate(stack_designs([alone_.base]), alone_.workload, fidelity=word).columns["die_mm2"][0]
                 for word in ("analytical", "launched")]
found["explained"] = explain(alone_.base, alone_.workload.cases[0], fidelity="launched").seconds - cycles(alone_, "launched")
small = replace_leaves(alone_.base, {"chip.core.sram": 16.0})
over = evaluate(stack_designs([small]), alone_.workload, fidelity="launched")
found["broken"] = [bool(over.feasible[0]), bool(np.isnan(over.columns["latency"][0]))]
found["refused"] = []
for question, word in ((model[0], "launched"), (alone_, "lunched")):
    try:
        cycles(question, word)
    except DesignError as error:
        found["refused"].append(str(error))
EVALUATORS["launched"] = ExternalEvaluator("of a test", lambda design, case: True, lambda design, case, closed: {"speed": 1.0})
try:
    cycles(alone_, "launched")
except DesignError as error:
    found["refused"].append(str(error))
def divides_by_zero(design, case, closed):
    return {"latency": 1 / 0}

EVALUATORS["launched"] = ExternalEvaluator("of a test", lambda design, case: True, divides_by_zero)
try:
    cycles(alone_, "launched")
except DesignError as error:
    found["refused"].append(str(error))
shape, mesh, rng = GemmShape(1, 90, 70), CoreMesh(11, 5), np.random.default_rng(3)
x, w, kernel = rng.normal(size=(1, 90)).astype("f4"), rng.normal(size=(90, 70)).astype("f4"), find_gemv("binary")
blocks = run_program(kernel.build_program(shape, mesh), kernel.scatter_operands(shape, mesh, x, w))
out = kernel.gather_result(shape, mesh, blocks)
found["wrong"] = float(np.abs(out - x @ w).max())
try:
    cycles(asked("chip=wse2", "workload=gemv", "mapping.gemv=binry"), "analytical")
except DesignError as error:
    found["unknown"] = str(error)
print(json.dumps(found))
"""


FORMER = Path(__file__).parent / "former"
"""Sources of the template with the names of PHYSICS 31."""


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a copy of the template, installed beside it without a download."""
    return installed_template(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a copy of the template that has the names of PHYSICS 31, installed beside it."""
    return installed_template(tmp_path_factory.mktemp("former"), {path.stem: path for path in FORMER.glob("*/*.txt")})


def installed_template(folder: Path, sources: Mapping[str, Path] = MappingProxyType({})) -> Path:
    shutil.copytree(TEMPLATE, folder / "mine")
    for name, path in sources.items():
        shutil.copy(path, folder / f"mine/my_mesh/{name}.py")
    quiet = ("--quiet", "--disable-pip-version-check", "--no-deps", "--no-build-isolation")
    subprocess.run([sys.executable, "-m", "pip", "install", *quiet, "--target", folder / "site", folder / "mine"], check=True)
    return folder


@pytest.mark.parametrize("names", ["copied", "former"])
def test_an_installed_gemv_is_evaluated_as_those_that_ship(names: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    """Former names of functions, classes and modules work, and one line says so."""
    copied = request.getfixturevalue(names)
    path = os.pathsep.join(map(str, (copied / "site", ROOT)))
    done = subprocess.run(
        [sys.executable, "-c", CODE], cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert not done.returncode, done.stderr
    assert done.stderr.count("former names work for one release") == (names == "former")
    document = json.loads(done.stdout)
    for closed, events in document["alone"]:
        assert closed == pytest.approx(events, rel=1e-9)
    assert document["model"][0] == pytest.approx(document["model"][1], rel=0.2)
    assert document["wrong"] < 1e-4
    assert document["imported"] == [False, False, True]
    assert document["tokens"] == 64
    share, cores = document["metric"][:2]
    assert document["metric"][2:] == [share, cores]
    assert share == pytest.approx(cores / (750 * 1133))  # cores of the wafer
    assert document["fidelities"] == [["analytical", "events", "cycles", "launched"], ["analytical", "events"]]
    assert document["launched"] == pytest.approx(5e-6)
    assert document["same"][0] == document["same"][1]
    assert document["explained"] == 0.0
    assert document["broken"] == [False, True]
    assert document["refused"] == [
        "fidelity: launched does not support models here; valid: analytical, events",
        "fidelity: no option 'lunched'; did you mean 'launched'? "
        "valid: analytical, cycles, events, launched, mine, remote, steady_state",
        "fidelity=launched: the package returns 'speed', which is no metric; " + document["refused"][2].partition("; ")[2],
        "fidelity=launched: ZeroDivisionError: division by zero",
    ]
    assert document["unknown"] == (
        "mapping.gemv: no option 'binry'; did you mean 'binary'? valid: binary, ktree, ladder, pipeline, ring"
    )


def test_former_places_of_the_functional_simulator_answer_and_one_line_says_so() -> None:
    """Nothing of test support is loaded before; the former place in PHYSICS 31 leads there as well."""
    code = """
import sys
import dse.commands.notebook_api, dse.evaluators.cost_models.functional_simulator as former
from dse.space.former_names import install_former_names
install_former_names()
assert not [name for name in sys.modules if name.startswith("dse.testing")]
from dse.evaluators.cost_models.functional_simulator import in_double_precision, run_program
from dse.testing import functional_simulator as present
assert former.run_program is run_program is present.run_program
assert in_double_precision is present.in_double_precision
assert not hasattr(former, "play")
from dse.evaluators.readers.numeric import play
assert play is run_program
"""
    environ = {name: text for name, text in os.environ.items() if name != SAID}
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environ, capture_output=True, text=True, check=False)
    assert not done.returncode, done.stderr
    assert done.stderr == "dse.evaluators.cost_models.functional_simulator is now dse.testing.functional_simulator\n"


@pytest.mark.slow
def test_what_the_readme_of_the_template_says_runs(copied: Path) -> None:
    lines = re.findall(r"^    (.+)$", (TEMPLATE / "README.md").read_text(), re.M)
    assert len(lines) == 9
    assert lines[:2] == ["cp -r mesh-dse/studies/template mine && cd mine", "pip install -e '.[test]'"]
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (copied / "site", ROOT)))}
    for line in lines[2:]:
        words = line.replace("python ", f"{sys.executable} ").replace("dse ", f"{sys.executable} -m dse.main ", 1)
        done = subprocess.run(words, cwd=copied / "mine", env=environ, shell=True, capture_output=True, text=True, check=False)
        assert not done.returncode, (line, done.stdout, done.stderr)
    report = json.dumps(read_page_data(copied / "mine/runs/binary_tree/report.html"))
    assert "binary" in report
    assert "core_share" in report


@pytest.mark.parametrize("registry", [GEMM, GEMV, ALLREDUCE, ATTENTION, POLICIES], ids=lambda registry: registry.group)
def test_what_ships_has_all_that_is_asked_of_a_package(registry: Registry[object]) -> None:
    assert not [(name, need) for name, option in registry.items() for need in registry.needs if not hasattr(option, need)]


def test_packages_are_not_asked_for_names_that_ship(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(importlib.metadata, "entry_points")
    assert choose_option(GEMV, "ring", "mapping.gemv") is ring


def installed(folder: Path, package: str, line: str, source: str = "") -> None:
    """A package of one module with one entry point of the group dse.test."""
    (folder / f"{package}-1.0.dist-info").mkdir()
    (folder / f"{package}-1.0.dist-info/METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (folder / f"{package}-1.0.dist-info/entry_points.txt").write_text(f"[dse.test]\n{line}\n")
    (folder / f"{package}.py").write_text(source)


def lines() -> Registry[ModuleType]:
    return Registry("dse.test", {"ring": ring}, ("cost", "steps"))


LINES = "class Lines: cost = steps = 1"


@pytest.mark.parametrize(
    ("line", "source", "message"),
    [
        ("ring = added", "", "'ring' = added: the name is that of what ships here; one of them needs another name"),
        ("mine = added", "cost = 1", "'mine' = added: no option of this kind: it lacks steps"),
        ("mine = added:cost", "def cost(): ...", "'mine' = added:cost: no option of this kind: it lacks cost, steps"),
        ("mine = added:Lines", LINES, "'mine' = added:Lines: no option of this kind: it is a type, not a module"),
        ("mine = added", "1 / 0", "'mine' = added: cannot be imported: ZeroDivisionError: division by zero"),
        (
            "mine = added:steps",
            "",
            "'mine' = added:steps: cannot be imported: AttributeError: module 'added' has no attribute 'steps'",
        ),
    ],
)
def test_a_package_that_cannot_be_is_refused_by_name(
    line: str, source: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed(tmp_path, "added", line, source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "added", raising=False)
    with pytest.raises(DesignError) as refused:
        choose_option(lines(), "mine", "mapping.gemv")
    assert str(refused.value) == f"added: dse.test {message}"


def test_two_packages_with_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    installed(tmp_path, "one", "mine = one")
    installed(tmp_path, "two", "mine = two")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(DesignError, match=r"the name is that of \w+: dse.test 'mine' = \w+; one of them needs another name"):
        choose_option(lines(), "mine", "mapping.gemv")


def test_a_module_that_no_package_declares_is_never_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stray.py").write_text("cost = steps = 1")
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("stray", "stray:cost", "os", "dse.evaluators.kernels.gemv.ring"):
        with pytest.raises(DesignError, match="valid: ring"):
            choose_option(lines(), name, "mapping.gemv")
    assert "stray" not in sys.modules


def test_every_former_name_leads_to_a_present_one() -> None:
    for modules, names in former_names._sections(former_names.MODULES_TEXT).items():
        module = import_module(modules.split()[-1])
        assert not [f"{former}:{present}" for former, present in names.items() if not hasattr(module, present)], modules

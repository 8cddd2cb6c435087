"""The rules of the house, read from the sources: imports point down, and each foreign library has one room."""

import ast
import re
from collections.abc import Collection
from pathlib import Path

import pytest
import yaml

from dse.config.record_parser import ORIGIN, USUAL_CHOICES
from tests.house.sources import LAYERS, ROOT, SOURCES, STRANGERS, arrows, circles, imported, layer, parsed, place

ROOMS = {
    "hydra": {
        "dse/config/compose.py",
        "dse/config/compose_cache.py",
        "dse/config/hydra_internals.py",
        "dse/config/hydra_sources.py",
        "dse/config/merge_defaults.py",
        "dse/config/sweep_syntax.py",
    },
    "omegaconf": {
        "dse/config/compose.py",
        "dse/config/compose_cache.py",
        "dse/config/hydra_internals.py",
        "dse/config/hydra_sources.py",
        "dse/config/merge_defaults.py",
    },
    "optuna": {
        "dse/search/botorch_search.py",
        "dse/search/optuna_distributions.py",
        "dse/search/optuna_journal.py",
        "dse/search/optuna_local_sampler.py",
        "dse/search/optuna_samplers.py",
    },
    "optuna_integration": {"dse/search/botorch_search.py"},
    "ray": {"dse/execution/pool/ray_cluster.py"},
    "sqlalchemy": {
        "dse/store/database.py",
        "dse/store/study_lock.py",
        "dse/store/study_rows.py",
        "dse/store/integrity.py",
        "dse/store/store.py",
        "dse/store/tables.py",
    },
    "sqlite3": {"dse/store/database.py"},
    "pint": {"space/units.py"},
    "numba": {
        "evaluators/machine/compile_cache.py",
    },
    "moocore": {"dse/search/pareto.py"},
    "plotly": {"dse/report/plotly_library.py"},
    "kaleido": {"dse/report/plotly_library.py"},
    "mcp": {"dse/mcp_server/server.py"},
    "onnx": {"dse/model_graphs/onnx_file.py"},
    "threadpoolctl": {"dse/search/acquisition.py"},
}


def test_imports_point_down() -> None:
    def above(path: Path) -> tuple[str, ...]:
        return tuple(LAYERS[LAYERS.index(path.relative_to(ROOT).parts[0]) + 1 :])

    assert not {(place(path), name) for path in SOURCES for name in imported(path) if layer(name) in above(path)}


def test_a_library_is_imported_in_its_room_only() -> None:
    imports = {(name.split(".")[0], place(path)) for path in SOURCES for name in imported(path)}
    assert not {(library, room) for library, room in imports if room not in ROOMS.get(library, {room})}


HYDRA_PRIVATE = "dse/config/hydra_internals.py"
"""The only source that may use private parts of Hydra and OmegaConf."""

HYDRA_PUBLIC = (
    "hydra.compose",
    "hydra.core.hydra_config",
    "hydra.core.object_type",
    "hydra.core.override_parser",
    "hydra.core.plugins",
    "hydra.errors",
    "hydra.initialize_config_dir",
    "hydra.main",
    "hydra.plugins",
    "omegaconf",
)
"""What Hydra's and OmegaConf's documents and examples of plugins use."""


def defined_names(tree: ast.Module) -> set[str]:
    """Names of the functions and classes that a source defines."""
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def private_parts(text: str, ours: Collection[str] = ()) -> set[str]:
    """Names in a source that are private to Hydra or OmegaConf.

    Modules that no document of theirs names, and, in a source that imports either, private attributes that neither it nor
    another source of ours defines.
    """
    tree = ast.parse(text)
    names = {
        f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    foreign = {name for name in names if name.split(".")[0] in ("hydra", "omegaconf")}
    if not foreign and "hydra_internals" not in text:
        return set()
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    hidden = {name for name in attributes if name.startswith("_") and not name.endswith("__")}
    hidden -= defined_names(tree) | set(ours)
    unnamed = {name for name in foreign - {"hydra"} if not name.startswith(HYDRA_PUBLIC) or "._" in name}
    return unnamed | hidden | {f"hydra.{name}" for name in attributes & {"_internal", "_utils"}}


def test_private_parts_of_hydra_are_used_in_one_source() -> None:
    """Tests may use private names of ours."""
    of_config = [path for path in SOURCES if place(path).startswith("dse/config/")]
    ours = {name for path in of_config for name in defined_names(parsed(path))}
    paths = [path for path in (*SOURCES, *(ROOT / "tests").rglob("*.py")) if path != Path(__file__)]
    texts = {place(path): text for path in paths if re.search("hydra|omegaconf", text := path.read_text())}
    users = {name for name, text in texts.items() if private_parts(text, ours if name.startswith("tests/") else ())}
    assert users == {HYDRA_PRIVATE}


@pytest.mark.parametrize(
    "line",
    [
        "from hydra._internal.hydra import Hydra",
        "import omegaconf._utils",
        "from hydra.core.global_hydra import GlobalHydra",
        "from omegaconf import OmegaConf\nOmegaConf.create({})._metadata",
        "def late():\n    import hydra\n    hydra._internal.utils.run()",
    ],
)
def test_a_private_part_of_hydra_is_noticed(line: str) -> None:
    assert private_parts(line)
    assert not private_parts("import hydra\nfrom omegaconf import OmegaConf\nhydra.compose('x')")


def test_no_source_reads_yaml_by_regular_expression() -> None:
    """Patterns of whole lines, ``^`` with ``re.MULTILINE``, in the rooms that read configuration."""
    readers = {
        place(path)
        for path in SOURCES
        if place(path).startswith(("dse/config/", "dse/analysis/", "dse/accuracy/"))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in ("re.MULTILINE", "re.M")
    }
    assert readers == set()


@pytest.mark.parametrize("path", [path for path in SOURCES if place(path).startswith("space/")], ids=place)
def test_space_needs_no_more_than_numpy_and_units(path: Path) -> None:
    import sys

    roots = {name.split(".")[0] for name in imported(path)}
    assert roots <= set(sys.stdlib_module_names) | {"numpy", "dse", "pint"}


def test_every_python_process_is_started_in_one_way() -> None:
    """`child_python` keeps the current folder off its path; `locale` starts this very process anew, as it was started."""
    users = {
        place(path) for path in SOURCES if "sys.executable" in path.read_text() or "multiprocessing" in set(imported(path))
    }
    assert users == {"dse/terminal/child_python.py", "dse/terminal/text_encoding.py"}


def test_only_the_closed_reader_calls_the_closed_form_of_a_kernel() -> None:
    callers = {
        place(path)
        for path in SOURCES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("cost", "attention_cost")
    }
    readers = {caller for caller in callers if not caller.startswith("evaluators/kernels/")}
    assert readers == {
        "evaluators/cost_models/analytical.py",
        "evaluators/cost_models/analytical_attention.py",
        "evaluators/cost_models/analytical_collectives.py",
        "evaluators/cost_models/analytical_summa.py",
        "evaluators/cost_models/analytical_rows.py",
        "evaluators/cost_models/analytical_block_loop.py",
    }


def test_the_folders_of_the_package_are_where_the_user_wants_them() -> None:
    assert {path.name: path.resolve() for path in (ROOT / "dse").iterdir() if path.is_symlink()} == {
        name: ROOT / name for name in ("space", "evaluators", "conf", "studies")
    }


@pytest.mark.parametrize("name", ["space", "evaluators", "studies"])
def test_no_second_copy_of_a_class_can_arise(name: str) -> None:
    import subprocess
    import sys

    done = subprocess.run([sys.executable, "-c", f"import {name}"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode
    assert f"import dse.{name}" in done.stderr


FORMER_PLACES = {"evaluators/cost_models/functional_simulator.py", "space/former_names.py"}
"""Modules that lead former names to test support, which they import once one of these is used."""


def names_test_support(path: Path) -> bool:
    """Whether a source imports `dse.testing`, or has its name in a text for `import_module`; docstrings may have it."""
    nodes = [*ast.walk(parsed(path))]
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    texts = {node.value for node in nodes if isinstance(node, ast.Constant) and id(node) not in docstrings}
    return any(re.search(r"\bdse\.testing\b", str(text)) for text in imported(path) | texts)


def test_nothing_that_ships_imports_test_support() -> None:
    """Of the package that others copy, tests may."""
    paths = [*SOURCES, *STRANGERS.rglob("*.py")]
    shipped = [path for path in paths if not place(path).startswith(("dse/testing/", "studies/template/tests/"))]
    assert {place(path) for path in shipped if names_test_support(path)} == FORMER_PLACES


@pytest.mark.parametrize(
    "line",
    [
        "import dse.testing.functional",
        "from dse import testing",
        "from dse.testing.functional_simulator import run_program",
        "def late():\n    from dse.testing import functional_simulator",
        "simulator = import_module('dse.testing.functional_simulator')",
    ],
)
def test_an_import_of_test_support_is_noticed(line: str, tmp_path: Path) -> None:
    source, docstring = tmp_path / "source.py", tmp_path / "docstring.py"
    source.write_text(line)
    docstring.write_text('"""Tests use `dse.testing`."""\nimport dse.testing_times')
    assert names_test_support(source)
    assert not names_test_support(docstring)


def catalogue_line(path: Path) -> str:
    """First line of a preset after Hydra's header, or the name of a model, whose file is a record of facts."""
    lines = path.read_text().splitlines()
    if path.parent.name == "model":
        return f"# the model {yaml.safe_load(path.read_text())['name']}"
    return lines[1] if lines[0].startswith("# @package ") else lines[0]


def test_the_first_line_of_a_preset_says_what_it_is() -> None:
    """A catalogue of presets is made of these lines."""
    lines = {place(path): catalogue_line(path) for path in (ROOT / "conf").rglob("*.yaml")}
    assert not {name: line for name, line in lines.items() if not line.startswith("# ") or len(line.split()) < 4}


def test_no_config_names_python_code() -> None:
    assert not [path for path in (ROOT / "conf").rglob("*.yaml") if "_target_" in path.read_text()]


def test_top_level_folders_are_the_agreed_ones() -> None:
    packages = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert packages == {"dse", "space", "evaluators", "conf", "studies", "tests"}


def constants(node: object) -> list[dict[str, object]]:
    if isinstance(node, dict):
        if "value" in node:
            return [node]
        return [constant for inner in node.values() for constant in constants(inner)]
    return []


@pytest.mark.parametrize(
    "path",
    [path for group in ("chip", "stack", "library", "technology") for path in sorted((ROOT / f"conf/{group}").rglob("*.yaml"))],
    ids=place,
)
def test_every_constant_has_a_source_in_the_bibliography(path: Path) -> None:
    known = yaml.safe_load((ROOT / "conf/sources.yaml").read_text())
    config = {
        key: value
        for key, value in yaml.safe_load(path.read_text()).items()
        if key not in ("defaults", *USUAL_CHOICES, *ORIGIN)
    }
    leaves = constants(config)
    accuracy = config.get("accuracy")  # the stack and the rows that a band is of have no sources of their own
    if accuracy is not None:
        config["accuracy"] = {key: value for key, value in accuracy.items() if key not in ("stack", "rows", "kind")}
    assert leaves or not config  # of a memory by itself
    for leaf in leaves:
        assert leaf.get("source") in known
        assert leaf["source"] not in ("assumed", "fitted") or leaf.get("note")
    assert len(leaves) == count_leaves(config)


def count_leaves(node: object) -> int:
    if isinstance(node, dict) and "value" not in node:
        return sum(count_leaves(inner) for inner in node.values())
    return int(node is not None)  # a part that a chip it is made of has, and it has not


def test_every_citation_is_in_the_bibliography() -> None:
    known = yaml.safe_load((ROOT / "conf/sources.yaml").read_text())
    cited = {key for path in SOURCES for key in re.findall(r"\[([a-z]+\d{4})\]", path.read_text())}
    assert cited <= set(known)


ROOMS_OF = [
    path for path in SOURCES if path.name == "__init__.py" and not place(path).startswith(("studies/", "tests/", "conf/"))
]


@pytest.mark.parametrize("path", ROOMS_OF, ids=place)
def test_every_folder_says_in_a_sentence_what_its_room_is(path: Path) -> None:
    sentence = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")[0]
    assert len(sentence.split()) >= 6
    assert sentence.endswith((".", ":"))


def test_judges_are_those_who_answer_and_each_is_short() -> None:
    """What a case or a layout needs beside is `account`'s."""
    from dse.evaluators.evaluation import READERS

    rooms = {path.stem: len(path.read_text().splitlines()) for path in (ROOT / "evaluators/workloads").glob("[!_]*.py")}
    assert set(rooms) == set(READERS.values())
    assert max(rooms.values()) <= 365


def test_no_modules_import_each_other() -> None:
    """A circle hides which way a value walks; imports inside functions count as well."""
    found_arrows = arrows()
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join((*trail[trail.index(name) :], name))
        if name not in done:
            for other in found_arrows[name]:
                visit(other, (*trail, name))
            done.add(name)

    for name in found_arrows:
        visit(name, ())


def test_no_way_through_imports_leads_back() -> None:
    """In all folders, tests included, by imports inside functions and by modules that are named in a text."""
    assert circles() == []


@pytest.mark.parametrize(
    "line",
    [
        "def late():\n    from dse.beta import worth\n",
        "def late():\n    return import_module('dse.beta')\n",
        "NAMED = 'dse.beta:worth'\n",
    ],
)
def test_a_circle_is_noticed(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {name: tmp_path / f"{name}.py" for name in ("dse.alpha", "dse.beta")}
    sources["dse.alpha"].write_text(line)
    sources["dse.beta"].write_text("if TYPE_CHECKING:\n    from dse.alpha import late\n")
    monkeypatch.setattr("tests.house.sources._modules", lambda: sources)
    monkeypatch.setattr("tests.house.sources._name", lambda path: path.stem)
    assert circles() == []
    sources["dse.gamma"] = tmp_path / "dse.gamma.py"
    sources["dse.gamma"].write_text(line)
    sources["dse.beta"] = tmp_path / "again" / "dse.beta.py"
    sources["dse.beta"].parent.mkdir()
    sources["dse.beta"].write_text("from dse.gamma import late\n")
    assert circles() == [["dse.beta", "dse.gamma"]]


def test_rooms_of_the_driver_stand_one_above_the_other() -> None:
    """Imports between folders of dse/ lead one way, those inside functions too; at its top is the command line's door alone."""
    from graphlib import TopologicalSorter

    top = ROOT / "dse"
    rooms = {path.parent.name for path in top.glob("*/__init__.py") if not path.parent.is_symlink()}

    def room(name: str) -> str:
        return next(iter(rooms.intersection(name.split(".")[1:2])), "")

    below: dict[str, set[str]] = {}
    for name, others in arrows().items():
        below.setdefault(room(name), set()).update(room(other) for other in others)
    TopologicalSorter({name: others - {name, ""} for name, others in below.items() if name}).prepare()
    assert {path.name for path in top.glob("*.py")} == {"__init__.py", "__main__.py", "main.py"}

"""What `import dse` gives: names with docstrings and types, keyword arguments, answers of one screen, units and addresses."""

import ast
import inspect
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pint
import plotly.graph_objects as go
import pytest

import dse
from dse.config.keyword_settings import read_settings
from dse.terminal.screen_lines import MAX_LINES, SCREEN_WIDTH
from tests.house.sources import ROOT

SMALL = {"limit": 64, "budget": 8, "workers.kind": "serial", "verify": "none"}
WIDEST = 80
"""Columns of a representation at most."""

TALLEST = 30
"""Lines of a representation at most, with those of evaluations."""


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("study")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield dse.run("quickstart", **SMALL)


@pytest.fixture(scope="module")
def compared() -> dse.Comparison:
    return dse.compare(chip=["h100", "wse2"], model="llama3_8b", batch=4, prompt=512, output=64)


@pytest.fixture(scope="module")
def served() -> dse.Capacity:
    return dse.capacity(chip="h200", model="llama3_8b", devices=1, ttft="2 s", tpot="50 ms", requests=60)


@pytest.fixture(scope="module")
def swept() -> dse.Sweep:
    return dse.sweep(chip="h100", model=["llama3_8b", "llama3_405b"], tp=[1, 2, 4], prompt=512, output=64, objective="tpot")


NAMES = {
    *("evaluate", "compare", "capacity", "run", "load", "explain", "whynot", "sweep", "validate", "Study", "Evaluation"),
    *("list_chips", "list_models", "list_mappings", "list_stacks", "list_knobs", "list_metrics", "list_studies"),
    "DesignError",
}


def test_dir_has_the_public_names_and_nothing_else() -> None:
    assert NAMES <= set(dir(dse)) == set(dse.__all__)
    assert sorted(dse.__all__) == dse.__all__
    assert dse.__version__ == dse.version()
    with pytest.raises(AttributeError, match="evalute"):
        _ = dse.evalute


@pytest.mark.parametrize("name", dir(dse))
def test_a_public_name_has_a_docstring_and_a_signature(name: str) -> None:
    member = getattr(dse, name)
    first = inspect.getdoc(member).splitlines()[0]
    assert 25 <= len(first) <= 100
    if inspect.isfunction(member):
        parameters = inspect.signature(member).parameters.values()
        assert all(parameter.annotation is not inspect.Parameter.empty for parameter in parameters)
        assert inspect.signature(member).return_annotation is not inspect.Signature.empty


def test_names_for_type_checkers_are_those_that_are_imported() -> None:
    tree = ast.parse((ROOT / "dse/__init__.py").read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    declared = {
        alias.asname or alias.name: f"{node.module}.{alias.name}"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert set(declared) == set(dse.__all__)
    for name, place in declared.items():
        module, _, inner = place.rpartition(".")
        assert dse._PLACES[name] == (module, inner)


def test_every_public_name_is_on_the_page_of_the_api() -> None:
    page = (ROOT / "docs/api.md").read_text()
    assert not [name for name in dse.__all__ if f"`dse.{name}`" not in page]


def test_importing_dse_imports_nothing_heavy() -> None:
    code = "import sys, dse; dir(dse); print(sorted({'numpy', 'pandas', 'hydra', 'pint', 'rich'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


SCRIPT = """
import dse

answer = dse.evaluate(chip="h100", model="llama3_8b", batch=16, prompt=[512, 1024], ttft="2 s")
tpot: float = answer.metrics["tpot"]
rows: int = len(answer.frame())
answer = dse.evaluate("chip=h100", {"chip.l2.size": "64 MB", "workload.batch": [1, 8]})
reveal_type(dse.evaluate)
reveal_type(dse.load("quickstart").front())
reveal_type(dse.capacity(chip=["h100"], model="llama3_8b", devices=4)["h100"])
"""

WRONG = """
import dse

dse.evaluate(chip=3)
dse.evaluate(batch=object())
dse.load("quickstart").fronts()
"""


def checked(text: str, folder: Path) -> list[str]:
    (folder / "script.py").write_text(text)
    (folder / "mypy.ini").write_text(f"[mypy]\nmypy_path = {ROOT}\nfollow_untyped_imports = False\n")
    command = [sys.executable, "-m", "mypy", "--config-file", "mypy.ini", "--follow-imports=silent", "script.py"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert not done.stderr
    return done.stdout.splitlines()


@pytest.mark.slow
def test_type_checkers_know_keyword_arguments_and_answers(tmp_path: Path) -> None:
    said = "\n".join(checked(SCRIPT, tmp_path))
    assert "Success" in said, said
    assert "chip: str | None" in said
    assert "settings:" in said
    assert "DataFrame" in said
    assert "ChipCapacity" in said


@pytest.mark.slow
def test_type_checkers_refuse_what_is_no_setting(tmp_path: Path) -> None:
    said = [line for line in checked(WRONG, tmp_path) if "error:" in line]
    assert [line.split(":")[1] for line in said] == ["4", "5", "6"]


def test_keywords_are_the_overrides_that_they_stand_for() -> None:
    by_keyword = dse.evaluate(chip="h100", model="llama3_8b", batch=16, tp=2, prompt=512, output=64)
    by_text = dse.evaluate(
        "chip=h100", "model=llama3_8b", "workload.batch=[16]", "mapping.both.tp=2", "workload.prompt=512", "workload.output=64"
    )
    by_address = dse.evaluate(
        {"chip": "h100", "model": "llama3_8b", "workload.batch": 16, "mapping.both.tp": 2}, prompt=512, output=64
    )
    assert by_keyword.metrics == by_text.metrics == by_address.metrics
    assert by_keyword.id == by_text.id


UNITS = pint.UnitRegistry()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"batch": 16}, ["workload.batch=[16]"]),
        ({"batch": (1, 8)}, ["workload.batch=[1,8]"]),
        ({"batch": np.array([1, 8])}, ["workload.batch=[1,8]"]),
        ({"batch": "[1,8]"}, ["workload.batch=[1,8]"]),
        ({"output": None}, ["workload.output=null"]),
        ({"tp": np.int64(2), "seed": 3}, ["seed=3", "mapping.both.tp=2"]),
        ({"chip.l2.size": 64 * UNITS.megabyte}, ["chip.l2.size=64 MB"]),
        ({"chip.hbm.bandwidth": 3.5 * UNITS.terabyte / UNITS.second}, ["chip.hbm.bandwidth=3.5 TB/s"]),
        ({"workload": "serving", "ttft": 2 * UNITS.second}, ["workload=serving", "workload.ttft=2 s"]),
        ({"workload": "serving", "rate": [4.5, 9]}, ["workload=serving", "workload.rate=[4.5,9]"]),
        ({"precision": {"weights": "fp8"}}, ["precision={weights: fp8}"]),
        ({"screen.run": False}, ["screen.run=false"]),
        ({"+space.mapping.both.tp": "choice(2,4)"}, ["+space.mapping.both.tp=choice(2,4)"]),
        ({"chip.l2.size": ["32 MB", "64 MB"]}, ["chip.l2.size=['32 MB','64 MB']"]),
        ({"speculation": "none"}, ["workload.speculation=none"]),
    ],
)
def test_values_of_python_are_values_of_overrides(settings: dict[str, Any], words: list[str]) -> None:
    assert read_settings([], settings) == words


@pytest.mark.parametrize(
    ("settings", "address", "message"),
    [
        ({"bach": 16}, "bach", "did you mean 'batch'"),
        ({"modle": "llama3_8b"}, "modle", "did you mean 'model'"),
        ({"bandwidth": "1 TB/s"}, "bandwidth", "chip.hbm.bandwidth"),
        ({"rate": 4}, "rate", "set workload='serving'"),
        ({"devices": 4}, "devices", "mapping.both.tp sets the number of devices"),
        ({"batch": object()}, "batch", "is no value"),
        ({"chip": "h1000", "batch": 4}, "chip", "did you mean 'h100'"),
        ({"chip.l2.sze": "3 MB"}, "chip.l2.sze", "did you mean 'size'"),
        ({"chip.l2.size": 3}, "chip.l2.size", "has no unit"),
        ({"batch": -1}, "workload.batch", "-1"),
        ({"tp": "two"}, "mapping.prefill.tp", "two"),
    ],
)
def test_a_wrong_setting_is_named(settings: dict[str, Any], address: str, message: str) -> None:
    with pytest.raises(dse.DesignError) as refused:
        dse.evaluate(**settings)
    assert refused.value.address == address
    assert message in str(refused.value)
    assert "\n" not in str(refused.value)


def test_an_ambiguous_word_is_refused_with_all_its_addresses() -> None:
    with pytest.raises(dse.DesignError) as refused:
        read_settings([], {"chip": "h100", "latency": "1 us"})
    assert "chip.network.latency or chip.network.nodes.latency" in str(refused.value)


def screens(study: Any, compared: Any, served: Any, swept: Any) -> dict[str, Any]:
    design = study.front()["design"].iloc[0]
    return {
        "evaluation": study.evaluate(design),
        "study": study,
        "study without results": dse.load("waferllm_gemv"),
        "explanation": study.explain(design),
        "position": study.whynot(cores=300, tp=4),
        "comparison": compared,
        "capacity": served,
        "sweep": swept,
        "validation": dse.validate("flat_fig12"),
    }


def test_an_answer_is_shown_on_one_screen(
    study: Any, compared: Any, served: Any, swept: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for what, answer in screens(study, compared, served, swept).items():
        lines = repr(answer).splitlines()
        assert 2 <= len(lines) <= MAX_LINES <= TALLEST, what
        assert max(map(len, lines)) <= SCREEN_WIDTH <= WIDEST, what
        assert "object at 0x" not in repr(answer), what
        if hasattr(answer, "_repr_html_"):
            assert answer._repr_html_().startswith(("<table", "<pre")), what


def test_tables_carry_ids_and_units_and_whole_numbers(study: Any, compared: Any, served: Any, swept: Any) -> None:
    frame, front = study.frame(), study.front()
    assert {name: frame[name].dtype.kind for name in ("chip.cores", "mapping.both.tp")} == dict.fromkeys(
        ("chip.cores", "mapping.both.tp"), "i"
    )
    for table in (frame, front):
        assert table.attrs["units"]["tpot"] == "s"
        assert table.attrs["units"]["chip.l2.size"] == "B"
        assert table["design"].is_unique
    answer = study.evaluate(front["design"].iloc[0])
    assert answer.id.startswith(front["design"].iloc[0])
    assert answer.frame().attrs["design"] == answer.by_case().attrs["design"] == answer.id
    assert answer.frame().attrs["units"]["seconds"] == "s"
    assert set(answer.by_case().attrs["units"]) == set(answer.metrics)
    assert compared.frame().attrs["units"]["tpot"] == swept.frame().attrs["units"]["tpot"] == "s"
    assert (
        compared.frame()["design"][0]
        == dse.evaluate(
            *compared.typed, *[f"{knob}={value}" for knob, value in compared["h100"].values.items()], chip="h100"
        ).id
    )
    assert served.frame()["devices"].dtype.kind == "i"
    assert served.frame().attrs["units"]["max_rate"] == "Hz"
    assert dse.list_chips("h100").attrs["units"]


def test_figures_are_those_of_plotly(study: Any, compared: Any, served: Any, swept: Any) -> None:
    answer = dse.evaluate(chip="h100", model="llama3_8b", batch=4, prompt=512, output=64)
    load = dse.evaluate(chip="h100", model="llama3_8b", workload="serving", fidelity="steady_state", requests=50)
    figures = [
        *(study.figure(), compared.figure(), served.figure(), swept.figure()),
        *(answer.figure(), answer.figure("cost"), load.figure("load")),
    ]
    assert all(isinstance(figure, go.Figure) and len(figure.data) for figure in figures)
    for holder in (answer, compared, served, swept):
        with pytest.raises(dse.DesignError, match="no figure 'rofline'"):
            holder.figure("rofline")
    with pytest.raises(dse.DesignError, match="workload='serving'"):
        answer.figure("load")


def test_an_infeasible_design_says_why_it_has_no_metrics() -> None:
    answer = dse.evaluate(chip="h100", model="llama3_405b", tp=1)
    with pytest.raises(dse.DesignError, match=r"infeasible designs have no metrics: .*chip\.hbm\.capacity"):
        _ = answer.metrics["tpot"]
    with pytest.raises(dse.DesignError, match="infeasible designs have no figures"):
        answer.figure()
    assert answer.by_case()["tpot"].isna().all()


def test_chips_of_an_answer_are_found_by_name(compared: Any, served: Any) -> None:
    assert compared["wse2"] is compared[1]
    assert [side.chip for side in compared] == ["h100", "wse2"]
    assert served["h200"].best is not None
    with pytest.raises(dse.DesignError, match="did you mean 'h100'") as refused:
        _ = compared["h1000"]
    assert refused.value.address == "chip"


def test_answers_have_the_documents_of_their_commands(compared: Any, served: Any, swept: Any) -> None:
    stamps = [dse.document(answer).STAMP for answer in (compared, served, swept)]
    assert [stamp.split("/")[1] for stamp in stamps] == ["compare", "capacity", "sweep"]


@pytest.mark.parametrize("name", [name for name in dse.__all__ if name.startswith("list_")])
def test_a_list_is_a_table_of_names_and_lines(name: str) -> None:
    table = getattr(dse, name)()
    assert isinstance(table, pd.DataFrame)
    assert list(table.columns[:2]) == ["name", "line"]
    assert table["name"].is_unique
    assert table["line"].str.len().gt(0).all()
    with pytest.raises(dse.DesignError, match="no entry has 'zzzz'"):
        getattr(dse, name)("zzzz")


def test_published_rows_of_a_file_are_simulated(tmp_path: Path) -> None:
    row = "a,table,chip=h100 model=llama3_8b,,tpot,12.2 ms..12.3 ms,ms,check,\n"
    (tmp_path / "mine.csv").write_text("id,where,overrides,baseline,metric,value,unit,role,note\n" + row.replace(" ms", ""))
    rows = dse.validate(tmp_path / "mine.csv")
    assert [result.id for result in rows] == ["a"]
    assert rows.frame()["error"].tolist() == [0.0]


def test_a_chip_with_its_engine_is_explained() -> None:
    """The rule of memory of an engine takes many designs, of which a step changes a constant of it."""
    why = dse.explain(chip="mi300x", model="llama3_8b", batch=4, prompt=512, output=64, seconds=60.0)
    assert "mapping.inference_engine.activation_factor" in {change.step.knob for change in why.changes} | set(why.left)

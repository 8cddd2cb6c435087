"""What people type and write first: a study by its name, a study of one design, Hydra's usual forms, a share for a count."""

from pathlib import Path
from typing import Any

import pytest

from dse.config.compose import compose
from dse.config.hydra_sources import _study_groups
from dse.config.untrusted_files import SHIPPED_CONF
from dse.space.errors import DesignError


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Writes a study with a defaults list, and goes to its folder."""
    monkeypatch.chdir(tmp_path)

    def written(*defaults: str, name: str = "mine") -> str:
        folder = tmp_path / "studies" / name
        folder.mkdir(parents=True)
        entries = "".join(f"  - {entry}\n" for entry in defaults)
        lists = f"defaults:\n{entries}" if defaults else ""
        (folder / "study.yaml").write_text(f"{lists}question: one\nobjectives: {{throughput: max}}\n")
        return name

    return written


def test_a_study_without_a_knob_evaluates_its_one_design(study: Any, typed: Any) -> None:
    """By name alone; a second run has nothing to do, and each command that reads a study reads it."""
    name = study()
    for _ in range(2):
        code, out, err = typed("run", name)
        assert code == 0, err
        assert "front: 1 of 1 feasible" in " ".join(out.split())
    assert typed("export", name, "--to", "csv", "--out", "one.csv")[0] == 0
    assert len(Path("one.csv").read_text().splitlines()) == 2
    for command in ("show", "explain", "report"):
        assert typed(command, name)[0] == 0


@pytest.mark.parametrize("form", ["chip: h100", "/chip: h100", "override chip: h100", "override /chip: h100"])
def test_a_study_chooses_a_chip_in_every_form_that_hydra_s_users_write(form: str, study: Any) -> None:
    config = compose([f"study={study(form)}"])
    assert config["chip"]["cores"] == compose(["chip=h100"])["chip"]["cores"]


@pytest.mark.parametrize("group", _study_groups())
def test_a_study_chooses_of_every_group(group: str, study: Any) -> None:
    """Each option is found, or refused for what it is, and never looked for in the study's own folder."""
    for number, option in enumerate(sorted(path.stem for path in (SHIPPED_CONF / group).glob("*.yaml"))[:6]):
        name = study(f"{group}: {option}", name=f"mine_{number}")
        assert f"{name}/" not in refusal_of(f"study={name}")


def refusal_of(word: str) -> str:
    """Why a configuration is refused; empty string where it composes."""
    try:
        compose([word])
    except DesignError as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        (("run", "quickstart", "study=quickstart"), "run: expected one study, got quickstart quickstart"),
        (("run", "quickstart", "mesh_llm"), "run: expected one study, got quickstart mesh_llm"),
        (("run",), "run: name a study, as in dse run quickstart; valid: "),
        (("run", "no_such_study"), "study: no study 'no_such_study'"),
    ],
)
def test_run_takes_one_study(words: tuple[str, ...], wanted: str, typed: Any) -> None:
    code, _, err = typed(*words)
    assert code == 2
    assert err.startswith(f"dse: {wanted}")


@pytest.mark.parametrize("flag", ["-m", "--multirun"])
@pytest.mark.parametrize("command", ["run", "evaluate", "capacity", "explain"])
def test_a_sweep_is_answered_with_what_to_write(command: str, flag: str, typed: Any) -> None:
    code, _, err = typed(command, flag, "chip=a100,h100")
    assert code == 2
    assert "chips=[A,B]" in err
    assert "dse compare" in err
    assert "dse sweep" in err
    assert "--trust" not in err


@pytest.mark.parametrize("flag", ["--trus", "--tru", "--t", "--jsn", "-x"])
def test_no_hint_offers_to_trust_files(flag: str, typed: Any) -> None:
    assert "--trust" not in typed("evaluate", "--full", flag)[2]


@pytest.mark.parametrize("address", ["chip.cores", "mapping.both.tp", "mapping.prefill.tp", "chip.hbm.channels"])
@pytest.mark.parametrize("share", ["100 %", "50%", "200 percent"])
def test_a_share_is_no_count(address: str, share: str, typed: Any) -> None:
    code, _, err = typed("evaluate", "--full", f"{address}={share}", *(["chip=wafer64"] if "channels" in address else []))
    assert code == 2
    assert f"{share!r} is a share; write a whole number" in err

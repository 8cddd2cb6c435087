"""An answer says which kernels of its stack were measured and which are assumed, as the constants themselves say it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from dse.accuracy.stack_basis import NONE, PARTS, StackBasis, stack_basis
from dse.config.compose import CONF, compose
from dse.config.question import build_question
from dse.space.aliases import CHOICES

STACKS = sorted(path.stem for path in (CONF / "stack").glob("*.yaml"))


def basis(*words: str) -> StackBasis:
    config = compose(list(words))
    question = build_question(config, Path())
    basis = stack_basis(question.sources, config["choices"], question.base, question.workload)
    assert basis is not None
    return basis


def library(stack: str) -> dict[str, tuple[int, tuple[str, ...]]]:
    """Parts of a stack with a fitted constant, with their rows and chips, from its files."""
    found_library: dict[str, tuple[int, tuple[str, ...]]] = {}
    for entry in yaml.safe_load((CONF / "stack" / f"{stack}.yaml").read_text()).get("defaults", ()):
        if isinstance(entry, str):
            found_library = found_library | (library(entry) if entry != "_self_" else {})
            continue
        ((group, name),) = entry.items()
        document = yaml.safe_load((CONF / group.partition("@")[0].strip("/") / f"{name}.yaml").read_text())
        found_library[group.partition("@")[2]] = document["measured_rows"], tuple(document["fitted_on"])
    return found_library


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("words", [("mapping.both.tp=1",), ("mapping.both.tp=2", "model=mixtral_8x7b"), ("workload=serving",)])
def test_measured_parts_are_those_whose_files_say_so(stack: str, words: tuple[str, ...]) -> None:
    found_basis, files = basis("chip=h100", f"stack={stack}", *words), library(stack)
    parts = {part.part: (part.rows, part.chips) for part in (*found_basis.measured, *found_basis.idle) if part.part in PARTS}
    assert parts == files
    assert all(rows > 0 and chips for rows, chips in parts.values())
    read = {part.part for part in found_basis.measured}
    assert not read & set(found_basis.assumed)
    assert bool(found_basis.measured) != (NONE in found_basis.text)
    if "mapping.both.tp=1" in words:
        assert not read & {"ring_collectives", "one_shot_allreduce", "all_to_all"}, "one device exchanges nothing"
    flat = [part for part in ("gemm", "elementwise") if part not in files]
    fitted = any(part.part not in PARTS for part in found_basis.measured)
    assert fitted or set(flat) <= set(found_basis.assumed)


@pytest.mark.parametrize("stack", ["ideal", "tuned"])
def test_first_lines_say_that_no_measurement_stands_behind_a_stack(
    stack: str, tmp_path: Path, typed: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    text, words = f"stack {stack}: no measurement stands behind it", ("model=qwen3_1b7", f"stack={stack}")
    load = ("workload.requests=300", "workload.ttft=20 ms", "space=empty", "devices=1", "--out", str(tmp_path / "page.html"))
    asks = {"evaluate": ("chip=h100", *words), "compare": ("chip=[h100]", *words), "capacity": ("chip=h100", *words, *load)}
    for command, own in asks.items():
        code, out, err = typed(command, *own)
        assert code == 0, err
        assert f"stack       {text.removeprefix('stack ')}" in out.splitlines()[:14]
        data = json.loads(typed(command, "--json", *own)[1])
        assert (data if command == "evaluate" else data["chips"][0])["stack_basis"]["text"] == text
    (tmp_path / "studies" / "one").mkdir(parents=True)
    (tmp_path / "studies" / "one" / "study.yaml").write_text(
        f"defaults: [override /chip: h100, override /stack: {stack}, override /search: none]\n"
        "space: {mapping: {both: {tp: 'choice(1, 2)'}}}\nobjectives: {tpot: min}\n"
    )
    monkeypatch.chdir(tmp_path)
    assert text in typed("show", "--full", "one")[1]


def test_capacity_names_kernels_that_no_measured_row_covers(tmp_path: Path, typed: Callable[..., tuple[int, str, str]]) -> None:
    """A head that is wider than any measured product: said on the chip that was measured, as on any other."""
    words = ("chip=h100", "stack=trtllm_h100", "model=qwen3_1b7", "devices=1", "space=empty")
    words += ("workload.requests=300", "workload.ttft=1 s", "--out", str(tmp_path / "page.html"))
    code, out, err = typed("capacity", "--full", *words)
    assert code == 0, err
    assert "beyond measured rows: elementwise" in out.replace("\n", " ")
    basis = json.loads(typed("capacity", "--json", *words)[1])["chips"][0]["kernel_basis"]
    assert "gemm (head) extrapolated: 151,936 columns (n) (measured 32 to 65,536)" in basis


def test_a_stack_that_was_renamed_works_by_its_old_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for group, names in {"stack": CHOICES["stack"]}.items():
        for old, new in names.items():
            assert not (CONF / group / f"{old}.yaml").exists()
            assert (CONF / group / f"{new}.yaml").is_file()
            (tmp_path / "studies" / "old").mkdir(parents=True, exist_ok=True)
            (tmp_path / "studies" / "old" / "study.yaml").write_text(
                f"defaults: [override /chip: h100, override /{group}: {old}]\n"
            )
            monkeypatch.chdir(tmp_path)
            typed, of_file, now = (compose(["chip=h100", word]) for word in (f"{group}={old}", "study=old", f"{group}={new}"))
            assert typed["choices"][group] == of_file["choices"][group] == new
            assert typed["mapping"] == of_file["mapping"] == now["mapping"]

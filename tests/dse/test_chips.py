"""Several chips in one study: composed each as it would be alone, searched, stored and read as one."""

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import dse
from dse.config.compose import compose
from dse.config.question import Question, build_question
from dse.execution.study import build_study
from dse.space.design import design_key
from dse.space.errors import DesignError
from dse.space.multi_chip_space import CHIP_KNOB
from dse.store.store import Store

SIZES = ("workload.prompt=512", "workload.output=64", "workload.batch=[2]")
FP16 = "precision={weights: fp16, activations: fp16, kv: fp16}"
KNOBS = ("+space.mapping.both.tp=choice(1,2,4)", "+space.mapping.decode.rows=choice(300,400)")
GOALS = ("+objectives.throughput_per_system_mm2=max", "+objectives.tpot=min", "workers=serial")
CHIPS = "chips=[a100,npu64,wse2]"


def asks(*words: str) -> Question:
    return build_question(compose([*words, *SIZES]), Path())


@pytest.mark.parametrize("name", ["a100", "npu64", "wse2", "tile_gh200"])
def test_each_base_is_composed_as_it_would_be_alone(name: str) -> None:
    several = asks("chips=[npu_dse,a100,npu64,wse2,tile_gh200]", FP16)
    assert design_key(several.space.design_at({CHIP_KNOB: name})) == design_key(asks(f"chip={name}", FP16).base)


def test_a_study_names_mappings_by_chip() -> None:
    several = asks("chips=[npu64,wse2]", "mappings={npu64: npu_ktree}")
    assert design_key(several.space.design_at({CHIP_KNOB: "npu64"})) == design_key(asks("chip=npu64", "mapping=npu_ktree").base)
    assert design_key(several.space.design_at({CHIP_KNOB: "wse2"})) == design_key(asks("chip=wse2").base)


def test_a_constant_says_whose_it_is() -> None:
    chips = {source.address.partition(": ")[0] for source in asks("chips=[a100,wse2]").sources}
    assert chips == {"a100", "wse2"}


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("chips=[a100,wse9]",), "no option 'wse9'"),
        (("chips=[a100,a100]",), "twice"),
        (("chips=a100",), "not a list"),
        (("chips=[a100,wse2]", "chip=npu64"), r"chips=\[\.\.\.\]"),
        (("mappings={a100: sglang}",), "without chips"),
        (("formats=own",), "without chips"),
        (("chips=[a100,wse2]", "mappings={npu64: npu}"), "no chip 'npu64'"),
        (("chips=[a100,npu_dse]",), "a100 fp16.*npu_dse int8.*precision="),
        (("chips=[a100,wse2]", "precision={wieghts: fp16}"), "weights"),
        (("chips=[a100,wse2]", "mappings={wse2: npu}"), "wse2.*choose mapping="),
        (("chips=[a100,wse2]", "+space.mapping.both.tpp=choice(1,2)"), "tpp"),
        (("chips=[a100,mesh8]",), "mesh8"),
    ],
)
def test_what_nothing_reads_is_refused_in_one_line(words: tuple[str, ...], says: str) -> None:
    with pytest.raises(DesignError, match=says) as raised:
        asks(*words)
    assert "\n" not in str(raised.value)


def test_formats_are_equal_by_a_knob_of_all_or_own_where_that_is_said() -> None:
    space = asks("chips=[a100,npu_dse]", "formats=own").space
    assert [space.base.mapping.precision.weights for _, space in space.base_spaces] == ["fp16", "int8"]
    knobs = [f"+space.mapping.precision.{field}=choice(fp16,int8)" for field in ("weights", "activations", "kv")]
    assert asks("chips=[a100,npu_dse]", *knobs).space.combinations == 16
    with pytest.raises(DesignError, match="number formats of their default mappings differ"):
        asks("chips=[a100,npu_dse]", *knobs[:2])


def test_a_chip_that_has_no_kernels_in_the_common_formats_says_so() -> None:
    words = ["chips=[a100,wse2]", "inference_engine=none", "precision={weights: int8, activations: int8}", *GOALS, *SIZES]
    with pytest.raises(DesignError, match=r"chips: wse2: mapping\.precision\.activations: int8 has no kernels"):
        build_study(compose(words), Path())


def test_precision_is_that_of_one_chip_too() -> None:
    assert asks("chip=a100", "precision={kv: int8}").base.mapping.precision.kv == "int8"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "studies/three").mkdir(parents=True)
    (tmp_path / "studies/three/study.yaml").write_text("chips: [a100, npu64, wse2]\nquestion: which\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ran(name: str, *words: str, study_name: str = "three") -> Any:
    return dse.run(study_name, f"name={name}", *KNOBS, *GOALS, *SIZES, *words)


def test_a_screen_a_search_and_a_run_of_each_chip_find_the_same(place: Path) -> None:
    screened = ran("screened").frame()
    searched = ran("searched", "screen.run=false", "search=exhaustive").frame()
    assert len(screened) == len(searched) == 3 + 3 + 2
    assert sorted(screened["tpot"]) == pytest.approx(sorted(searched["tpot"]))
    inactive = screened.set_index(CHIP_KNOB)["mapping.both.tp"].isna()
    assert inactive["wse2"].all()
    assert not inactive[["a100", "npu64"]].any()


def test_what_one_chip_has_stored_is_used_by_several_and_back(place: Path) -> None:
    (place / "studies/one").mkdir()
    (place / "studies/one/study.yaml").write_text("defaults:\n  - override /chip: a100\n")
    tp = (KNOBS[0], *GOALS, *SIZES, "screen.run=false", "search=exhaustive", "store=shared.sqlite")
    dse.run("one", *tp)
    several = dse.run("three", *KNOBS, *tp[1:])
    with closing(Store("shared.sqlite", create=False)) as store:
        assert len(store.results(several.study.context)) == 3 + 3 + 2
        bases = store.bases(several.study.context)
    assert len({len(leaves) for leaves in bases.values()}) == 3
    warm = dse.run("one", *tp[:-1], "name=again", "search.warm_start=[shared.sqlite]", "search=random")
    assert len(warm.frame()) == 3


def test_a_search_goes_on_where_it_stopped(place: Path) -> None:
    words = ("screen.run=false", "search=nsga2", "search.window=4", "search.population=4")
    ran("whole", *words, "search.budget=8")
    ran("parts", *words, "search.budget=4")
    columns = [CHIP_KNOB, "mapping.both.tp", "mapping.decode.rows", "tpot"]
    whole, parts = (ran(name, *words, "search.budget=8").frame()[columns] for name in ("whole", "parts"))
    assert whole.equals(parts)


def test_another_chip_is_another_study(place: Path) -> None:
    ran("same")
    with pytest.raises(DesignError, match=r"chips\.wse2"):
        ran("same", "chips=[a100,npu64]", "~space.mapping.decode")


def test_formats_of_their_own_stand_with_every_design(place: Path) -> None:
    (place / "studies/own").mkdir()
    (place / "studies/own/study.yaml").write_text("chips: [a100, npu_dse]\nformats: own\n")
    stored_study = ran("unlike", "~space.mapping.decode", study_name="own")
    assert stored_study.frame().groupby(CHIP_KNOB)["formats"].unique().map(list).to_dict() == {
        "a100": ["fp16"],
        "npu_dse": ["int8"],
    }
    assert stored_study.study.chips == "a100 (sglang, fp16), npu_dse (tensor_parallel, int8)"


def test_designs_of_chips_that_have_the_higher_fidelity_are_verified(place: Path) -> None:
    words = ("mappings={a100: sglang}", "workload=gemv", "workload.shapes=[1x512x512]", "verify=next", "workers=serial")
    goals = ("+objectives.latency=min", "+objectives.system_mm2=min")
    run = dse.run("three", "chips=[a100,wse2]", *words, *goals, "+space.mapping.rows=choice(16,32)")
    verified = run.verification()
    assert verified is not None
    assert (verified.low, verified.high) == ("analytical", "events")
    assert set(verified.before[CHIP_KNOB]) == {"wse2"}
    assert set(run.front()[CHIP_KNOB]) == {"a100", "wse2"}


def test_areas_of_a_paper_are_not_beside_those_of_nodes(place: Path) -> None:
    (place / "studies/mixed/chip").mkdir(parents=True)
    paper = "defaults:\n  - npu_dse\n  - /areas@areas: preserve_table2\n  - _self_\n"
    (place / "studies/mixed/chip/paper.yaml").write_text(paper)
    (place / "studies/mixed/study.yaml").write_text("chips: [a100, paper]\n")
    with pytest.raises(DesignError, match=r"chips: paper has areas of a paper .*a100 those of its process node"):
        asks("study=mixed", FP16)


def test_a_metric_that_a_chip_lacks_is_no_objective(place: Path) -> None:
    words = ("chips=[a100,npu_dse]", FP16, "~space.mapping.decode", "+objectives.rated_energy=min")
    for more in ((), ("screen.run=false", "search=random", "search.budget=2")):
        with pytest.raises(DesignError, match=r"objectives\.rated_energy: .*(a100|npu_dse) has no rated_energy"):
            ran("lacking", *words, *more)


def test_evaluate_takes_one_chip_of_a_study_and_not_all(place: Path) -> None:
    with pytest.raises(DesignError, match=r"chips=\[a100\]"):
        dse.evaluate("study=three", *SIZES)
    assert dse.evaluate("study=three", "chips=[wse2]", *KNOBS, *SIZES).names["chip"] == "wse2"

"""Files that start a deployment: their arguments are read back, their manifests have each pool, and refusals are one line."""

import shlex
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from dse.analysis import capacity
from dse.analysis.capacity import ChipCapacity
from dse.analysis.deployment_files import BUILDERS, ENGINES, PRESETS, build_deployment_files
from dse.analysis.engine_arguments import launch_settings
from dse.analysis.engine_flags import TABLES, LaunchSettings, read_line
from dse.commands import capacity_output, deployment_output
from dse.evaluators.serving.slo_bounds import SloBounds
from dse.main import main
from dse.space.errors import DesignError
from tests.samples import asked

LOAD = "workload=serving workload.rate=2Hz workload.requests=20"
FORMATS = "mapping.precision.weights=fp8 mapping.precision.kv=fp8"
TOGETHER = f"chip=h200 model=llama3_8b {LOAD} mapping.both.tp=2 mapping.serving.instances=3"
APART = f"{TOGETHER} mapping.serving.prefill_instances=2 mapping.prefill.tp=1 {FORMATS}"
ENGINE_PRESETS = {"vllm": "vllm_v1", "sglang": "sglang", "tensorrt_llm": "trtllm_v1"}

CASES = [(target, engine, words) for target in BUILDERS for engine in ENGINES[target] for words in (TOGETHER, APART)]


def files_of(target: str, engine: str, words: str) -> tuple[dict[str, str], list[LaunchSettings]]:
    question = asked(*words.split(), f"inference_engine={ENGINE_PRESETS[engine]}")
    case = question.workload.cases[0]
    return build_deployment_files(target, question.base, case, "a deployment", vendor="nvidia"), launch_settings(
        question.base, case
    )


def containers(document: Any) -> list[tuple[int, dict[str, Any]]]:
    """Replicas and main container of each pool of a manifest."""
    if document["kind"] == "DynamoGraphDeployment":
        parts = [part for part in document["spec"]["components"] if part["type"] != "frontend"]
        return [(part["replicas"], part["podTemplate"]["spec"]["containers"][0]) for part in parts]
    if document["kind"] == "Deployment":
        return [(document["spec"]["replicas"], document["spec"]["template"]["spec"]["containers"][0])]
    return []


@pytest.mark.parametrize(("target", "engine", "words"), CASES)
def test_files_start_each_pool_as_it_was_evaluated(target: str, engine: str, words: str) -> None:
    files, pools = files_of(target, engine, words)
    table = TABLES[engine]
    counted: dict[str, int] = {}
    if script := next((text for name, text in files.items() if name.endswith(".sh")), ""):
        for line in script.splitlines():
            if line.startswith(table.program) and "disaggregated -c" not in line:
                plain = line.partition(" --host")[0]
                file = next((name for name in files if f" {name}" in plain), "")
                _, found = read_line(plain, yaml.safe_load(files[file]) if file else None)
                check_settings(found, pools, counted)
    else:
        documents = [document for text in files.values() for document in yaml.safe_load_all(text) if "kind" in document]
        options = next((document["data"] for document in documents if document["kind"] == "ConfigMap"), {})
        for replicas, container in (pair for document in documents for pair in containers(document)):
            pool = pools[len(counted)]
            assert replicas == pool.instances
            assert container["resources"]["limits"] == {"nvidia.com/gpu": str(pool.devices)}
            if options:
                name = container["args"][container["args"].index("--extra-engine-args") + 1].rpartition("/")[2]
                assert yaml.safe_load(options[name])["kv_cache_config"]["tokens_per_block"] == pool.block_size
                counted[pool.role] = replicas
                continue
            check_settings(found_in(container, engine), pools, counted, times=replicas)
    assert counted == {pool.role: pool.instances for pool in pools}
    assert all(
        (text.startswith(("#", "#!/bin/sh")) and "a deployment" in text) or "options of" in text for text in files.values()
    )


def found_in(container: dict[str, Any], engine: str) -> dict[str, Any]:
    """Settings of a container's arguments, without what its platform adds."""
    words = [*container["command"], *container["args"]]
    added = ("--host", "--port", "--served-model-name")
    kept = [word for place, word in enumerate(words) if word not in added and (not place or words[place - 1] not in added)]
    if engine != "sglang" and "--disaggregation-mode" in kept:
        place = kept.index("--disaggregation-mode")
        kept = kept[:place] + kept[place + 2 :]
    arguments = kept[kept.index(next(word for word in kept if word.startswith("Llama"))) :]
    return read_line(shlex.join([*TABLES[engine].program.split(), *arguments]))[1]


def check_settings(found: dict[str, Any], pools: list[LaunchSettings], counted: dict[str, int], times: int = 1) -> None:
    pool = next(pool for pool in pools if pool.role == found["role"])
    counted[pool.role] = counted.get(pool.role, 0) + times
    expected = {name: getattr(pool, name) for name in ("tp", "pp", "ep", "dp", "requests", "longest", "chunked", "kv", "role")}
    assert {name: found[name] for name in expected} == expected
    assert found["tokens"] >= pool.tokens
    assert found["memory_share"] == pytest.approx(pool.memory_share)


@pytest.mark.parametrize("engine", ENGINES["llm-d"])
def test_the_sidecar_of_llmd_speaks_to_the_port_of_its_decode_instance(engine: str) -> None:
    manifests = yaml.safe_load_all(files_of("llm-d", engine, APART)[0]["llm-d.yaml"])
    spec = next(
        document["spec"]["template"]["spec"] for document in manifests if document["metadata"]["name"].endswith("decode")
    )
    (sidecar,), (server,) = spec["initContainers"], spec["containers"]
    assert f"--model-server-port={server['ports'][0]['containerPort']}" in sidecar["args"]
    assert f"--port={sidecar['ports'][0]['containerPort']}" in sidecar["args"]
    assert sidecar["ports"] != server["ports"]
    assert ":v" in sidecar["image"]


def test_overrides_of_an_answer_have_the_engine_that_its_target_chose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    question = asked(*TOGETHER.split())
    side = ChipCapacity("h200", question.workload.cases[0], SloBounds(1.0, 1.0), 8, (), (), {})  # type: ignore[arg-type]
    written: list[ChipCapacity] = []
    monkeypatch.setattr(capacity, "find_capacity", lambda words, trust: [side])
    monkeypatch.setattr(capacity_output, "write_capacity", lambda sides, *_, **__: written.extend(sides))
    monkeypatch.setattr(deployment_output, "write_capacity_deployments", lambda *_: None)
    for words in ("--to sglang", "--to sglang inference_engine=sglang"):
        monkeypatch.setattr(sys, "argv", ["dse", "capacity", "chip=h200", "devices=8", *words.split()])
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code
    assert [side.variant for side in written] == [("inference_engine=sglang",), ()]


def test_what_has_no_counterpart_is_named_at_the_head() -> None:
    words = f"{TOGETHER} mapping.both.allreduce=ring mapping.precision.weights=int4_g128"
    text = files_of("vllm", "vllm", words)[0]["vllm.sh"]
    assert "# no counterpart: mapping.both.allreduce=ring" in text
    assert "# no counterpart: weights int4_g128: no flag; serve a checkpoint in this format" in text
    assert "int4_g128" not in text.rpartition("#")[2]


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("chip=wse2 model=llama3_8b --to vllm", "--to vllm: vllm_v1 runs on shared-cache dies, and wse2 is a mesh of cores"),
        ("chip=mi300x --to trtllm", "--to trtllm: trtllm_v1 runs on chips of nvidia, and mi300x is of amd"),
        ("chip=h200 --to vlm", "--to: no target 'vlm'; did you mean 'vllm'?"),
        ("chip=h200 inference_engine=vllm_v1 --to sglang", "starts sglang, and this answer is of vllm"),
        ("chip=h200 --out deploy", "add --to vllm"),
        ("chip=h200 --to", "takes TARGET, as in --to vllm"),
    ],
)
def test_a_target_that_does_not_serve_is_refused_in_a_line(
    line: str, hint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["dse", "evaluate", *line.split()])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    err = capsys.readouterr().err
    assert hint in err
    assert len(err.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())


def test_evaluate_writes_a_script_that_can_be_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["dse", "evaluate", *TOGETHER.split(), "--to", "sglang", "--out", "deploy"])
    with pytest.raises(SystemExit) as end:
        main()
    assert not end.value.code
    script = tmp_path / "deploy/sglang.sh"
    assert script.stat().st_mode & stat.S_IXUSR
    assert "sglang_router.launch_router --worker-urls" in script.read_text()
    assert str(Path("deploy/sglang.sh")) in capsys.readouterr().err


def test_an_engine_that_a_target_does_not_start_is_refused() -> None:
    question = asked(*TOGETHER.split(), "inference_engine=trtllm_v1")
    with pytest.raises(DesignError, match="starts vllm, sglang, and this answer is of tensorrt_llm"):
        build_deployment_files("llm-d", question.base, question.workload.cases[0], "a deployment")
    with pytest.raises(DesignError, match="its images run on chips of nvidia"):
        build_deployment_files(
            "dynamo", asked(*TOGETHER.split(), "inference_engine=vllm_v1").base, question.workload.cases[0], "a", vendor="amd"
        )
    assert set(PRESETS) == set(BUILDERS)


def test_a_design_that_does_not_fit_has_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    line = "evaluate chip=h100 model=llama3_70b workload.batch=[1] mapping.both.tp=1 --to vllm --out deploy.d"
    monkeypatch.setattr(sys, "argv", ["dse", *line.split()])
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 3
    assert "--to vllm: no files, as the design does not fit" in capsys.readouterr().err
    assert not (tmp_path / "deploy.d").exists()


def test_chips_that_name_no_vendor_get_a_resource_to_replace() -> None:
    question = asked(*TOGETHER.split(), "inference_engine=vllm_v1")
    case = question.workload.cases[0]
    manifest = build_deployment_files("llm-d", question.base, case, "a deployment")["llm-d.yaml"]
    assert "# REPLACE_DEVICE_RESOURCE: put the name of the chips as a Kubernetes resource in its place" in manifest
    limits = [container["resources"]["limits"] for d in yaml.safe_load_all(manifest) for _, container in containers(d)]
    assert limits == [{"REPLACE_DEVICE_RESOURCE": "2"}]
    with pytest.raises(DesignError, match="nvidia, and this one names no vendor"):
        build_deployment_files("dynamo", question.base, case, "a deployment")

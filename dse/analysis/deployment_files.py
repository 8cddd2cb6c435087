"""Command lines and manifests that start a deployment: vLLM, SGLang, TensorRT-LLM, Dynamo and llm-d.

Each file names the versions whose flags or schema it follows, and each setting of the design that has no counterpart.
"""

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import yaml

from dse.analysis.engine_arguments import launch_settings
from dse.analysis.engine_flags import (
    TABLES,
    EngineTable,
    LaunchSettings,
    unmatched_settings,
    write_arguments,
    write_line,
    write_options,
)
from dse.space.design import Design
from dse.space.errors import DesignError, suggest_nearest
from dse.space.fields import iterate_leaves
from dse.space.workload import WorkloadCase

PRESETS = {"vllm": "vllm_v1", "sglang": "sglang", "trtllm": "trtllm_v1", "dynamo": "vllm_v1", "llm-d": "vllm_v1"}
"""Inference engine that a target is searched with where none is named."""

ENGINES = {
    "vllm": ("vllm",),
    "sglang": ("sglang",),
    "trtllm": ("tensorrt_llm",),
    "dynamo": ("vllm", "sglang", "tensorrt_llm"),
    "llm-d": ("vllm", "sglang"),
}
"""Engines that each target starts."""

DYNAMO_VERSION = "1.3"
DYNAMO_BACKENDS = {"vllm": "vllm", "sglang": "sglang", "tensorrt_llm": "trtllm"}
DYNAMO_IMAGES = {"vllm": "vllm-runtime", "sglang": "sglang-runtime", "tensorrt_llm": "tensorrtllm-runtime"}

RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "google": "google.com/tpu", "intel": "habana.ai/gaudi"}
"""Names of chips as Kubernetes resources, by vendor."""

UNKNOWN_RESOURCE = "REPLACE_DEVICE_RESOURCE"
"""Stands for the resource of a chip whose vendor is not known."""

NODE = 8
"""Devices of a node that manifests assume."""

MATCHED = {
    *("policy", "instances", "prefill_instances", "max_batch_size", "prefill_policy", "prefill_max_batch_size"),
    *("prefill_max_batched_tokens", "max_batched_tokens", "block_size", "prefix_cache", "tp", "pp", "ep", "dp"),
    *("weights", "activations", "kv", "prefetch_share"),
}
"""Last parts of the addresses of a mapping that flags or manifests have a counterpart of."""

UNSAID = (0, 0.0, "", None, "auto", "recompute", "least_loaded", "policy", "whole", "none")
"""Values that an engine has without being told, or that stand for none."""

FIRST_PORT, ROUTER_PORT = 8100, 8000

LLMD_SIDECAR = "ghcr.io/llm-d/llm-d-router-disagg-sidecar:v0.10.0"
"""Image of llm-d's routing sidecar, which stands before the decode instances of two pools, on `ROUTER_PORT`."""

LLMD_SIDECAR_PORT = 8200
"""Port of a decode instance behind the sidecar, as in llm-d's guide on pools of prefill and decode."""


@dataclass(frozen=True)
class DeploymentPlan:
    """A deployment to write down.

    Attributes:
        title: what it is of, one line.
        pools: settings of the engines of each pool.
        design: of the deployment.
        vendor: of the chips; empty string if they name none.
        cells: equal parts of the whole, of which this is one.
    """

    title: str
    pools: tuple[LaunchSettings, ...]
    design: Design
    vendor: str = ""
    cells: int = 1

    @property
    def resource(self) -> str:
        """Name of the chips as a Kubernetes resource."""
        return RESOURCES.get(self.vendor, UNKNOWN_RESOURCE)

    @property
    def engine(self) -> str:
        """Name of the inference engine."""
        return self.pools[0].engine.name

    @property
    def table(self) -> EngineTable:
        """Flags of the inference engine."""
        return TABLES[self.engine]


def build_deployment_files(
    target: str, design: Design, case: WorkloadCase, title: str, *, vendor: str = "", cells: int = 1
) -> dict[str, str]:
    """Files that start a deployment, by name.

    Args:
        target: what is deployed on: vllm, sglang, trtllm, dynamo or llm-d.
        design: of the deployment.
        case: what it serves.
        title: one line for the head of each file.
        vendor: of the chips, as their presets have it; empty string if they name none.
        cells: equal parts of the whole, each of which is this design.

    Raises:
        DesignError: no such target, or the design's engine or chip is none of its.
    """
    check_target(target)
    plan = DeploymentPlan(title, tuple(launch_settings(design, case)), design, vendor, cells)
    if plan.engine not in ENGINES[target]:
        raise DesignError(
            f"--to {target}: starts {', '.join(ENGINES[target])}, and this answer is of {plan.engine}; "
            f"set inference_engine={PRESETS[target]}"
        )
    if target == "dynamo" and vendor != "nvidia":
        whose = f"is of {vendor}" if vendor else "names no vendor"
        raise DesignError(f"--to dynamo: its images run on chips of nvidia, and this one {whose}; use --to llm-d")
    return BUILDERS[target](plan)


def check_target(target: str) -> None:
    """Refuse a name of no target.

    Raises:
        DesignError: with the nearest names.
    """
    if target not in PRESETS:
        raise DesignError(f"--to: no target {target!r}; {suggest_nearest(target, PRESETS)}")


def choose_engine(target: str, words: Sequence[str]) -> list[str]:
    """Overrides with the engine of a target, unless one is named.

    Raises:
        DesignError: no such target.
    """
    check_target(target)
    named = any(word.startswith(("inference_engine=", "+inference_engine=")) for word in words)
    return [*words] if named else [*words, f"inference_engine={PRESETS[target]}"]


def _head(plan: DeploymentPlan, follows: str) -> list[str]:
    """Lines of a file's head: what it is of, what it follows, what has no counterpart."""
    lines = [plan.title, f"flags and schema: {follows}"]
    if plan.cells > 1:
        lines.append(f"one of {plan.cells} equal cells: start it {plan.cells} times, behind one router")
    lines.append(f"model {plan.pools[0].model}: put the checkpoint's path or its name on Hugging Face in its place")
    for pool in plan.pools:
        what = f"{pool.role or 'all requests'}: {pool.instances} x {pool.devices} devices"
        lines.append(what + (f", over {-(-pool.devices // NODE)} nodes of {NODE}" if pool.devices > NODE else ""))
    notes = dict.fromkeys(note for pool in plan.pools for note in unmatched_settings(pool, plan.table))
    return [*lines, *(f"no counterpart: {note}" for note in [*notes, *_unmatched_leaves(plan.design)])]


def _unmatched_leaves(design: Design) -> list[str]:
    """Settings of a mapping that neither flags nor manifests say, a text for each address."""
    texts: dict[str, str] = {}
    for address, value, _ in iterate_leaves(design.mapping):
        group, _, rest = address.partition(".")
        if group not in ("serving", "prefill", "decode", "precision") or rest.rpartition(".")[2] in MATCHED:
            continue
        if value in UNSAID or not rest:
            continue
        shown = f"{value:g}" if isinstance(value, float) else str(value)
        texts.setdefault(f"mapping.{address}", shown)
    both = {a.replace(".prefill.", ".both.") for a in texts if texts.get(a.replace(".prefill.", ".decode.")) == texts[a]}
    merged = {
        address: value for address, value in texts.items() if re.sub(r"\.(prefill|decode)\.", ".both.", address) not in both
    } | {address: texts[address.replace(".both.", ".prefill.")] for address in both if ".both." in address}
    return [f"{address}={value}" for address, value in merged.items()]


def _commented(lines: Sequence[str]) -> str:
    return "".join(f"# {line}\n" for line in lines)


class _PlainDumper(yaml.SafeDumper):
    """YAML without anchors: equal parts are written again."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _yaml_text(*documents: Mapping[str, Any]) -> str:
    return yaml.dump_all([dict(document) for document in documents], Dumper=_PlainDumper, sort_keys=False, width=120)


def _pool_name(pool: LaunchSettings) -> str:
    return pool.role or "serve"


def _shell_script(plan: DeploymentPlan, after: Sequence[str] = (), options: str = "") -> str:
    """A script with a line for each instance, each on a port of its own."""
    lines, port = ["#!/bin/sh", *(f"# {line}" for line in _head(plan, plan.table.title))], FIRST_PORT
    lines.append("# each line is one instance, on the devices that CUDA_VISIBLE_DEVICES or the host give it")
    for pool in plan.pools:
        for _ in range(pool.instances):
            line = write_line(pool, plan.table, options.format(role=_pool_name(pool)) if options else "")
            lines.append(f"{line} --host 0.0.0.0 --port {port} &")
            port += 1
    return "\n".join([*lines, *after, "wait", ""])


def _ports(plan: DeploymentPlan, role: str) -> list[int]:
    """Ports of the instances of a pool."""
    first = {pool.role: sum(other.instances for other in plan.pools[:place]) for place, pool in enumerate(plan.pools)}
    count = next(pool.instances for pool in plan.pools if pool.role == role)
    return [FIRST_PORT + first[role] + number for number in range(count)]


def _vllm_files(plan: DeploymentPlan) -> dict[str, str]:
    after = ["# vLLM has no router for several instances or pools: --to llm-d and --to dynamo write one"]
    return {"vllm.sh": _shell_script(plan, after if sum(pool.instances for pool in plan.pools) > 1 else ())}


def _sglang_files(plan: DeploymentPlan) -> dict[str, str]:
    router = ["python", "-m", "sglang_router.launch_router"]
    if len(plan.pools) > 1:
        router.append("--pd-disaggregation")
        for role in ("prefill", "decode"):
            for port in _ports(plan, role):
                router += [f"--{role}", f"http://127.0.0.1:{port}"]
    else:
        router += ["--worker-urls", *(f"http://127.0.0.1:{port}" for port in _ports(plan, ""))]
    line = f"{shlex.join(router)} --host 0.0.0.0 --port {ROUTER_PORT} &"
    several = sum(pool.instances for pool in plan.pools) > 1
    return {"sglang.sh": _shell_script(plan, [line] if several else ())}


def _trtllm_files(plan: DeploymentPlan) -> dict[str, str]:
    files, after = {}, []
    for pool in plan.pools:
        head = _commented([f"options of {_pool_name(pool)} instances", f"schema: {plan.table.title}, LLM API options"])
        files[f"{_pool_name(pool)}.yaml"] = head + _yaml_text(write_options(pool, plan.table))
    if len(plan.pools) > 1:
        servers = {
            f"{kind}_servers": {
                "num_instances": len(_ports(plan, role)),
                "urls": [f"localhost:{port}" for port in _ports(plan, role)],
            }
            for kind, role in (("context", "prefill"), ("generation", "decode"))
        }
        router = {"hostname": "localhost", "port": ROUTER_PORT, "backend": "pytorch", **servers}
        files["disaggregated.yaml"] = _commented(_head(plan, plan.table.title)) + _yaml_text(router)
        after.append("trtllm-serve disaggregated -c disaggregated.yaml &")
    elif plan.pools[0].instances > 1:
        after.append("# TensorRT-LLM has no router for several instances: --to dynamo writes one")
    return {"trtllm.sh": _shell_script(plan, after, "{role}.yaml"), **files}


def _dynamo_files(plan: DeploymentPlan) -> dict[str, str]:
    """A DynamoGraphDeployment, with a ConfigMap of the engine's options where it has an options file."""
    engine, table = plan.engine, plan.table
    image = f"nvcr.io/nvidia/ai-dynamo/{DYNAMO_IMAGES[engine]}:{DYNAMO_VERSION}.1"
    frontend = {"name": "main", "image": image}
    components: list[dict[str, Any]] = [
        {"name": "Frontend", "type": "frontend", "replicas": 1, "podTemplate": {"spec": {"containers": [frontend]}}}
    ]
    options = {f"{_pool_name(pool)}.yaml": write_options(pool, table) for pool in plan.pools if table.file_flag}
    components += [_dynamo_worker(plan, pool, image, with_options=bool(options)) for pool in plan.pools]
    graph = {
        "apiVersion": "nvidia.com/v1beta1",
        "kind": "DynamoGraphDeployment",
        "metadata": {"name": _resource_name(plan)},
        "spec": {"backendFramework": DYNAMO_BACKENDS[engine], "components": components},
    }
    config = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{_resource_name(plan)}-options"},
        "data": {name: _yaml_text(content) for name, content in options.items()},
    }
    head = _commented(_head(plan, f"Dynamo {DYNAMO_VERSION} (nvidia.com/v1beta1), {table.title}"))
    return {"dynamo.yaml": head + _yaml_text(*([config] if options else []), graph)}


def _dynamo_worker(plan: DeploymentPlan, pool: LaunchSettings, image: str, *, with_options: bool) -> dict[str, Any]:
    """The component of one pool."""
    engine, name = plan.engine, _pool_name(pool)
    file = f"/options/{name}.yaml"
    model_flag = "--model" if engine == "vllm" else "--model-path"
    arguments = [model_flag, pool.model, "--served-model-name", pool.model]
    if engine == "tensorrt_llm":  # its degrees stand in the options as well
        arguments += ["--extra-engine-args", file]
    else:
        arguments += write_arguments(pool, plan.table)
    if pool.role and engine != "sglang":
        arguments += ["--disaggregation-mode", pool.role]
    container: dict[str, Any] = {
        "name": "main",
        "image": image,
        "command": ["python3", "-m", f"dynamo.{DYNAMO_BACKENDS[engine]}"],
        "args": arguments,
        "envFrom": [{"secretRef": {"name": "hf-token-secret"}}],
        "resources": {"limits": {RESOURCES["nvidia"]: str(min(pool.devices, NODE))}},
    }
    spec: dict[str, Any] = {"containers": [container]}
    if with_options:
        container["volumeMounts"] = [{"name": "options", "mountPath": "/options", "readOnly": True}]
        spec["volumes"] = [{"name": "options", "configMap": {"name": f"{_resource_name(plan)}-options"}}]
    nodes = {"multinode": {"nodeCount": -(-pool.devices // NODE)}} if pool.devices > NODE else {}
    return {"name": name, "type": pool.role or "worker", "replicas": pool.instances, **nodes, "podTemplate": {"spec": spec}}


def _llmd_files(plan: DeploymentPlan) -> dict[str, str]:
    """A Deployment for each pool, and values of the chart of the inference pool."""
    follows = f"llm-d 0.8 (guides pd-disaggregation and inference-scheduling; sidecar of its router 0.10), {plan.table.title}"
    head = _head(plan, follows)
    wide = [pool for pool in plan.pools if pool.devices > NODE]
    more = [f"no counterpart: {_pool_name(pool)} over several nodes needs a LeaderWorkerSet, not a Deployment" for pool in wide]
    if plan.resource == UNKNOWN_RESOURCE:
        more.append(f"{UNKNOWN_RESOURCE}: put the name of the chips as a Kubernetes resource in its place")
    labels = {"llm-d.ai/inference-serving": "true", "llm-d.ai/guide": _resource_name(plan)}
    manifests = [_llmd_deployment(plan, pool, labels) for pool in plan.pools]
    values = {
        "inferencePool": {
            "targetPorts": [{"number": ROUTER_PORT}],
            "modelServerType": plan.engine,
            "modelServers": {"matchLabels": labels},
        }
    }
    return {
        "llm-d.yaml": _commented([*head, *more]) + _yaml_text(*manifests),
        "llm-d.values.yaml": _commented([plan.title, f"values of the inferencepool chart: {follows}"]) + _yaml_text(values),
    }


def _llmd_deployment(plan: DeploymentPlan, pool: LaunchSettings, labels: Mapping[str, str]) -> dict[str, Any]:
    """The Deployment of one pool; decode pods of two pools have the routing sidecar in front."""
    engine = plan.engine
    behind = pool.role == "decode"
    port = LLMD_SIDECAR_PORT if behind else ROUTER_PORT
    own = {**labels, **({"llm-d.ai/role": pool.role} if pool.role else {})}
    name = f"{_resource_name(plan)}-{_pool_name(pool)}"
    image = "docker.io/vllm/vllm-openai:v0.19.1" if engine == "vllm" else "docker.io/lmsysorg/sglang:latest"
    gpus = {plan.resource: str(min(pool.devices, NODE))}
    container = {
        "name": "modelserver",
        "image": image,
        "command": plan.table.program.split()[: 2 if engine == "vllm" else 3],
        "args": [
            *plan.table.program.split()[2 if engine == "vllm" else 3 :],
            pool.model,
            *write_arguments(pool, plan.table),
            *("--host", "0.0.0.0", "--port", str(port)),
        ],
        "env": [
            {"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "llm-d-hf-token", "key": "HF_TOKEN"}}},
            *(
                [{"name": "VLLM_NIXL_SIDE_CHANNEL_HOST", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]
                if pool.role and engine == "vllm"
                else []
            ),
        ],
        "ports": [{"name": "modelserver", "containerPort": port, "protocol": "TCP"}],
        "resources": {"limits": gpus, "requests": gpus},
        "volumeMounts": [{"name": "shm", "mountPath": "/dev/shm"}],
        "startupProbe": {
            "httpGet": {"path": "/v1/models", "port": "modelserver"},
            "periodSeconds": 30,
            "failureThreshold": 120,
        },
        "readinessProbe": {"httpGet": {"path": "/v1/models", "port": "modelserver"}},
        "livenessProbe": {"httpGet": {"path": "/health", "port": "modelserver"}},
    }
    sidecar = {
        "name": "routing-proxy",
        "image": LLMD_SIDECAR,
        "args": [
            f"--port={ROUTER_PORT}",
            f"--model-server-port={LLMD_SIDECAR_PORT}",
            f"--kv-connector={'nixlv2' if engine == 'vllm' else 'sglang'}",
            "--secure-proxy=false",
        ],
        "ports": [{"name": "sidecar", "containerPort": ROUTER_PORT, "protocol": "TCP"}],
        "restartPolicy": "Always",
    }
    spec = {
        **({"initContainers": [sidecar]} if behind else {}),
        "containers": [container],
        "volumes": [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "20Gi"}}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "labels": own},
        "spec": {
            "replicas": pool.instances,
            "selector": {"matchLabels": own},
            "template": {"metadata": {"labels": own}, "spec": spec},
        },
    }


def _resource_name(plan: DeploymentPlan) -> str:
    """Name of the model that Kubernetes takes."""
    return re.sub(r"[^a-z0-9]+", "-", plan.pools[0].model.lower()).strip("-")[:40]


BUILDERS: dict[str, Callable[[DeploymentPlan], dict[str, str]]] = {
    "vllm": _vllm_files,
    "sglang": _sglang_files,
    "trtllm": _trtllm_files,
    "dynamo": _dynamo_files,
    "llm-d": _llmd_files,
}
"""Functions that write the files of a target."""

"""Tools of the MCP server: typed arguments in, one of the published documents out.

Plain values only; `dse.mcp_server.server` serves them over the Model Context Protocol, and `dse.mcp_server.tool_calls` runs
them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from dse.documents.records import ABSENT, Absent, Examples, Record, record_schema
from dse.space.errors import DesignError, suggest_nearest

ALLOW_RUN = "--allow-run"
"""The flag without which nothing is written."""

OPTIONS = "dse://options"
"""The resource that says what can be chosen."""

GUIDE = f"""\
mesh-dse evaluates accelerators for LLMs: a chip, a mapping of a model onto it, and a load, in fractions of a second with an
analytical model. A study is a question with a space of knobs, objectives and constraints; results are stored in ./runs
of this folder.

Overrides are texts ADDRESS=VALUE: a choice (chip=h200, model=llama3_8b, mapping=t10, workload=serving), a list of models
(model=[llama3_8b,qwen2_7b]), a quantity with its unit (chip.l2.size=64 MB), a list (workload.batch=[1,8]), a field that is not
there yet with + before it. mapping.both.tp=8 sets prefill and decode. {OPTIONS}, also in the answer of list, has all choices,
fidelities and metrics; `design` in the answer of evaluate has every address with its value in SI; a wrong address or value is
refused with the valid ones.

To choose: reference lists chips, models, mappings, stacks, knobs, metrics and others with a line each. To size: capacity finds
the deployment with the highest rate on so many devices, or the fewest devices for a rate; compare puts chips side by side, each
with its best mapping; sweep evaluates every combination of some settings. To trust: validate compares with published figures.

To search: evaluate one design, change its bottleneck (seconds_by_bound, operators) and evaluate again; why shows at once the
effect of each knob. Or use a study: list names those that ran here, front has the nondominated designs, whynot shows what
beats a design of yours and through which changes. With {ALLOW_RUN} the tool run searches a study's whole space."""

Study = Annotated[str, "name of a study, as the tool list says it", Examples("quickstart")]

Overrides = Annotated[
    Sequence[str],
    "one ADDRESS=VALUE a text, as on the command line without the shell's quotes; they are data: no flags, no code",
]

Design = Annotated[str, "id of a design of the study, from the tool front; instead of overrides", Examples("1f3a09c27b")]


class NoArguments(Record):
    """Arguments of a tool that takes none."""


class EvaluateArguments(Record):
    """Arguments of the tool that evaluates one design."""

    overrides: Annotated[
        Overrides | Absent,
        Examples(
            ["chip=h200", "model=llama3_8b", "mapping.both.tp=2", "workload.batch=[16]"],
            ["chip=ascend910b", "chip.l2.size=64 MB", "workload.prompt=2048", "workload.output=256"],
            ["chip=wse2", "workload=gemv", "fidelity=events"],
        ),
    ] = ABSENT
    study: Study | Absent = ABSENT
    design: Design | Absent = ABSENT


Objective = Annotated[str, "a metric, as the tool reference lists them with kind metrics", Examples("tpot")]


class CompareArguments(Record):
    """Arguments of the tool that puts chips side by side."""

    overrides: Annotated[Overrides, Examples(["chip=[h100,mi300x]", "model=qwen3_32b", "workload.batch=[16]"])]
    objective: Objective | Absent = ABSENT


class CapacityArguments(Record):
    """Arguments of the tool that finds the best deployment."""

    overrides: Annotated[
        Overrides,
        Examples(
            ["chip=h200", "model=llama3_8b", "devices=4", "workload.ttft=2 s", "workload.tpot=50 ms"],
            ["chip=[h100,h200]", "model=llama3_8b", "rate=20 Hz", "workload.prompt=2000", "workload.output=200"],
        ),
    ]


class SweepArguments(Record):
    """Arguments of the tool that evaluates combinations."""

    overrides: Annotated[Overrides, Examples(["chip=[h100,h200]", "model=llama3_8b", "mapping.both.tp=[1,2,4]"])]
    objective: Objective | Absent = ABSENT


class ValidateArguments(Record):
    """Arguments of the tool that simulates published figures."""

    studies: Annotated[Sequence[str], "studies with published figures; each takes seconds", Examples(["waferllm_gemv"])]


class ReferenceArguments(Record):
    """Arguments of the tool that lists what can be named."""

    kind: Annotated[
        str,
        "chips, models, mappings, stacks, engines, workloads, knobs, metrics, studies, spaces or another",
        Examples("chips"),
    ]
    word: Annotated[str, "part of a name, line or fact; a whole name gives its entry", Examples("h100")] | Absent = ABSENT


class FrontArguments(Record):
    """Arguments of the tool that explains the front of a study."""

    study: Study


class WhyArguments(Record):
    """Arguments of the tool that explains one design."""

    study: Study | Absent = ABSENT
    design: Design | Absent = ABSENT
    overrides: Annotated[
        Overrides | Absent, Examples(["chip.cores=300", "mapping.both.tp=4"], ["chip=npu64", "model=qwen3_1b7"])
    ] = ABSENT


class WhynotArguments(Record):
    """Arguments of the tool that compares one design with a study."""

    study: Study
    design: Design | Absent = ABSENT
    overrides: Annotated[Overrides | Absent, Examples(["chip.cores=300", "chip.l2.size=64 MB"], ["chip=ascend910b"])] = ABSENT


class RunArguments(Record):
    """Arguments of the tool that runs a study."""

    study: Study
    overrides: Annotated[
        Overrides | Absent, Examples(["search.budget=200", "verify=none"], ["name=wide", "search=tpe", "seed=1"])
    ] = ABSENT


@dataclass(frozen=True, slots=True)
class McpTool:
    """One tool of the MCP server: its description, arguments and document.

    Attributes:
        title: for people.
        does: what it does, and when to use it.
        takes: record of its arguments.
        document: name of what it answers, of `dse.documents`.
        writes: whether it stores anything.
    """

    title: str
    does: str
    takes: type[Record]
    document: str
    writes: bool = False


TOOLS = {
    "list": McpTool(
        "Studies and presets",
        "Lists the studies that can be run and those that ran in this folder, with their questions and states. A second text "
        "lists what can be chosen: chips, models, mappings, workloads, stacks, inference engines, spaces, samplers, fidelities "
        "and metrics.",
        NoArguments,
        "list",
    ),
    "evaluate": McpTool(
        "Evaluate one design",
        "Evaluates one design: whether it is feasible, its metrics with units, the time and bottleneck of every operator, "
        "area, power and price, and the sources of constants. Without overrides it is the default design. study=NAME "
        "among the overrides starts from the study's configuration; study and design name a design of a study that ran here.",
        EvaluateArguments,
        "evaluate",
    ),
    "reference": McpTool(
        "What can be named",
        "Lists entries of one kind: chips, models, mappings, stacks, engines, workloads, knobs, metrics, studies and others, "
        "with a line and facts each. Use word to narrow it: all knobs are some hundreds.",
        ReferenceArguments,
        "reference",
    ),
    "compare": McpTool(
        "Chips side by side",
        "Compares chips for one workload, each with the best mapping that a short search finds: metrics, also per mm2, joule "
        "and dollar, and the time by resource. Name the chips as chip=[A,B].",
        CompareArguments,
        "compare",
    ),
    "capacity": McpTool(
        "Best deployment",
        "Finds the deployment of a model on devices=N with the highest rate of requests within the SLOs workload.ttft and "
        "workload.tpot, or with rate=R the fewest devices that serve it. Serving is simulated, which takes from seconds to "
        "minutes; fewer workload.requests take less. Options: slo_percentile=95, disaggregated=false, formats=[fp8,fp16].",
        CapacityArguments,
        "capacity",
    ),
    "sweep": McpTool(
        "Combinations of settings",
        "Evaluates every combination of the settings that have several values, as mapping.both.tp=[1,2,4], the best by an "
        "objective first; 256 combinations at most.",
        SweepArguments,
        "sweep",
    ),
    "validate": McpTool(
        "Published against simulated",
        "Simulates the published figures of studies and compares: error of each row, scores, and checks that fail. Use it to "
        "learn how far to trust answers of this kind.",
        ValidateArguments,
        "validation",
    ),
    "front": McpTool(
        "Front of a study",
        "The nondominated designs of a study, with knobs and metrics, the effect of one step of each knob, shadow prices of "
        "constraints, and caveats of the study. The study must have run in this folder.",
        FrontArguments,
        "front",
    ),
    "why": McpTool(
        "Explain a design",
        "Explains a design: shares of its time, the effect of one step of each knob up and down on each objective, the "
        "smallest relaxation of each constraint that brings a gain, and the next design that is cheaper or faster. Name the "
        "design by its id in a study, by overrides over the study's configuration, or, without a study, by overrides as in "
        "evaluate.",
        WhyArguments,
        "explain",
    ),
    "whynot": McpTool(
        "Position of a design in a study",
        "Compares a design of yours with a study that ran here: which designs of the front beat it and by how much, and the "
        "fewest changes that make it one of them, each evaluated. Overrides name the design over the study's configuration.",
        WhynotArguments,
        "whynot",
    ),
    "run": McpTool(
        "Run a study",
        "Starts or resumes a study, and answers with its front. It takes seconds to hours: search.budget=N and "
        "search.stop.time=5 min limit it, verify=none skips verification, name=NEW starts a new study beside the stored one. "
        "Progress is reported; results are stored at once, so a cancelled run resumes when it is called again.",
        RunArguments,
        "run",
        writes=True,
    ),
}
"""By name."""


def available_tools(*, allow_run: bool) -> dict[str, McpTool]:
    """Tools that may be called."""
    return {name: tool for name, tool in TOOLS.items() if allow_run or not tool.writes}


def check_arguments(name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a tool, checked against its schema.

    Args:
        name: of the tool.
        arguments: by name; one that is null counts as left out.

    Raises:
        DesignError: naming the argument.

    >>> check_arguments("whynot", {"study": "quickstart", "overrides": None})
    {'study': 'quickstart'}
    """
    takes = record_schema(TOOLS[name].takes)
    given = {key: value for key, value in arguments.items() if value is not None}
    for key, value in given.items():
        if key not in takes["properties"]:
            known = takes["properties"]
            raise DesignError(f"{name}: no argument {key!r}; {suggest_nearest(key, known) if known else 'valid: none'}")
        schema = takes["properties"][key]
        if schema["type"] == "string" and not isinstance(value, str):
            raise DesignError(f"{name}: {key}: {value!r} is no text; write it as {schema['examples'][0]!r}")
        if schema["type"] == "array" and not (isinstance(value, list) and all(isinstance(word, str) for word in value)):
            raise DesignError(f"{name}: {key}: {value!r} is no list of texts; write it as {schema['examples'][0]!r}")
    for key in takes["required"]:
        if key not in given:
            raise DesignError(f"{name}: {key} is missing; the tool list says which there are")
    return given

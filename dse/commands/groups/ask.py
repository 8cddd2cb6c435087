"""Commands that answer a question at once: one design, chips side by side, a deployment, a fleet."""

import contextlib
import os
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from dse.commands.command_record import (
    DESIGN_FLAG,
    ENGINE_ARGS_FLAG,
    FULL_FLAG,
    JSON_FLAG,
    OPEN_FLAG,
    TRUST_FLAG,
    Command,
    CommandFlag,
    compile_notice,
    hydra_line,
    name_as_override,
    open_if_asked,
    out_flag,
    split_studies,
    split_words,
)
from dse.space.errors import DesignError


def _run_evaluate(typed: Namespace) -> int:
    from dse.config.compose import run_with_hydra

    typed.words = _with_target_engine(typed, name_as_override(typed.words))
    if typed.out and not typed.to:
        raise DesignError("evaluate --out: is the folder of the files of --to; add --to vllm, or remove it")
    if typed.to and (vars(typed)["from"] or typed.design):
        raise DesignError("evaluate --to: writes files of one design by its overrides; remove --from and --design")
    shortlist = vars(typed)["from"]
    _refuse_engine_args(typed, alone=not shortlist)
    if shortlist:
        from dse.commands.shortlist import print_shortlist

        if typed.trace:
            raise DesignError("evaluate --trace: a timeline needs one design; evaluate it by its overrides, without --from")
        with compile_notice("evaluate"):
            print_shortlist(
                Path(shortlist), [*typed.hydra, *typed.words], as_json=typed.json, trust=typed.trust, full=typed.full
            )
        return 0

    if typed.design:
        return _evaluate_design(typed)

    def evaluate_composed_design(config: dict[str, Any]) -> None:
        from dse.commands.evaluate_output import INFEASIBLE_STATUS, print_evaluation_of
        from dse.terminal.progress import say

        with compile_notice("evaluate"):
            status = print_evaluation_of(
                config, as_json=typed.json, trace=typed.trace, with_engine=typed.engine_args, view=_view(typed)
            )
        if typed.to and status == INFEASIBLE_STATUS:
            say(f"--to {typed.to}: no files, as the design does not fit; mend what limits it first")
        elif typed.to:
            _write_design(config, typed)
        codes.append(status)

    codes: list[int] = []
    if typed.to:
        _target_folder(typed, "evaluate")
    with _refused_target(typed):
        run_with_hydra(hydra_line(typed), evaluate_composed_design)
    return codes[0] if codes else 0


def _view(typed: Namespace) -> str:
    """The text of an answer that the flags choose: its first screen, all of it, or its operators."""
    if sum((typed.full, typed.operators, typed.json)) > 1:
        raise DesignError("evaluate: --full, --operators and --json are three texts of one answer; remove all but one")
    return "full" if typed.full else "operators" if typed.operators else "screen"


def _write_design(config: dict[str, Any], typed: Namespace) -> None:
    """Files that start an evaluated design."""
    from dse.commands.deployment_output import write_design_deployment
    from dse.config.compose import find_study_folder
    from dse.config.question import build_question

    question = build_question({**config, "space": {}}, find_study_folder(config))
    chip, vendor = str(config["choices"].get("chip", "this chip")), config["chip"].get("vendor")
    folder = _target_folder(typed, "evaluate")
    write_design_deployment(typed.to, question.base, question.workload.cases[0], chip, vendor, folder)


def _evaluate_design(typed: Namespace) -> int:
    """A design of a study by its id."""
    from dse.commands.evaluate_output import print_answer
    from dse.commands.notebook_api import evaluated_design, load

    names, words = split_studies(typed.words)
    if len(names) != 1:
        raise DesignError(
            f"evaluate --design: {typed.design!r} belongs to a study; name the study, as in dse evaluate quickstart --design ID"
        )
    places = [word for word in words if word.startswith(("store=", "run_dir="))]
    if others := [word for word in words if word not in places]:
        raise DesignError(f"evaluate --design: {typed.design!r} and {' '.join(others)} both name a design; remove one of them")
    with compile_notice("evaluate"):
        evaluation, config = evaluated_design(load(names[0], *places, trust=typed.trust), typed.design, trust=typed.trust)
        return print_answer(
            evaluation, config, as_json=typed.json, trace=typed.trace, with_engine=typed.engine_args, view=_view(typed)
        )


def _run_compare(typed: Namespace) -> int:
    from dse.analysis.compare import DEFAULT_OBJECTIVE
    from dse.commands.compare_output import write_comparison

    page = Path(typed.out) if typed.out else Path("runs") / "compare" / "compare.html"
    words = [*typed.hydra, *typed.words]
    with compile_notice("compare"):
        write_comparison(
            words, typed.objective or DEFAULT_OBJECTIVE, page, as_json=typed.json, trust=typed.trust, full=typed.full
        )
    open_if_asked(typed, page)
    return 0


def _run_sweep(typed: Namespace) -> int:
    from dse.commands.evaluate_output import INFEASIBLE_STATUS
    from dse.commands.sweep_output import write_sweep

    page = Path(typed.page) if typed.page else Path("runs") / "sweep" / "sweep.html"
    words = [*typed.hydra, *typed.words]
    with compile_notice("sweep"):
        is_feasible = write_sweep(
            words, typed.objective, typed.out, page, as_json=typed.json, full=typed.full, trust=typed.trust
        )
    if not is_feasible:
        return INFEASIBLE_STATUS
    open_if_asked(typed, page)
    return 0


def _run_capacity(typed: Namespace) -> int:
    from dse.analysis.capacity import find_capacity
    from dse.commands.capacity_output import write_capacity

    names, words = split_words(typed.words)
    _refuse_engine_args(typed)
    if names:
        raise DesignError(
            f"capacity: expected devices=N or rate=R, and overrides, got {' '.join(names)}{_choice_hint(names[0])}"
        )
    own_page = typed.out and not _names_folder(typed, "capacity")
    out = Path(typed.out) if own_page else Path("runs") / "capacity" / "capacity.html"
    words = _with_target_engine(typed, words)
    folder = _target_folder(typed, "capacity") if typed.to else None
    with compile_notice("capacity"), _refused_target(typed):
        sides = find_capacity([*typed.hydra, *words], trust=typed.trust)
    if typed.engine_of_target:  # nobody typed it, so that the answer's overrides have it
        sides = [replace(side, variant=(words[-1], *side.variant)) for side in sides]
    write_capacity(sides, out, as_json=typed.json, with_engine=typed.engine_args, full=typed.full)
    if folder is not None:
        from dse.commands.deployment_output import write_capacity_deployments

        write_capacity_deployments(sides, typed.to, folder)
    open_if_asked(typed, out)
    return 0


def _with_target_engine(typed: Namespace, words: list[str]) -> list[str]:
    """Overrides with the inference engine of ``--to``, if that was typed and no engine was; notes which of both it is."""
    typed.engine_of_target = False
    if not typed.to:
        return words
    from dse.analysis.deployment_files import choose_engine

    chosen = choose_engine(typed.to, words)
    typed.engine_of_target = len(chosen) > len(words)
    return chosen


@contextlib.contextmanager
def _refused_target(typed: Namespace) -> Iterator[None]:
    """Name ``--to`` where its inference engine does not serve the chip."""
    try:
        yield
    except DesignError as error:
        engine = str(error).partition("inference_engine: ")[2].partition(";")[0]
        if not engine or not typed.engine_of_target:
            raise
        raise DesignError(f"--to {typed.to}: {engine}; choose a chip that it serves, or another target") from None


def _target_folder(typed: Namespace, command: str) -> Path:
    """Folder of the files of ``--to``.

    Raises:
        DesignError: it cannot be a folder that is written.
    """
    folder = Path(typed.out) if _names_folder(typed, command) else Path("runs") / command / typed.to
    place = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    if not (place.is_dir() and os.access(place, os.W_OK)):
        why = "cannot be written" if place.is_dir() else "is a file"
        raise DesignError(f"{command} --out: {place} {why}; name a folder that can be written, as in --out deploy")
    return folder


def _names_folder(typed: Namespace, command: str) -> bool:
    """Whether ``--out`` is the folder of the files of ``--to``, and not the page that ``dse capacity`` writes as well."""
    return bool(typed.to and typed.out) and (command != "capacity" or Path(typed.out).suffix != ".html")


def _refuse_engine_args(typed: Namespace, *, alone: bool = True) -> None:
    """Refuse command lines of inference engines in JSON, or of a shortlist of designs."""
    if typed.engine_args and (typed.json or not alone):
        raise DesignError(f"--engine-args: prints text for one answer; remove it, or {'--json' if alone else '--from'}")


def _choice_hint(name: str) -> str:
    """What a bare word may stand for, as the end of an error; empty string where it is the name of nothing."""
    from dse.config.override_syntax import suggest_assignment

    suggestion = suggest_assignment(name)
    return f"; {suggestion}" if suggestion else ""


def _run_fleet(typed: Namespace) -> int:
    from dse.analysis.fleet import find_fleets, parse_query
    from dse.commands.fleet_output import write_fleets

    names, words = split_words(typed.words)
    if names:
        raise DesignError(f"fleet: expected overrides and flags, got {' '.join(names)}{_choice_hint(names[0])}")
    flags = {name: getattr(typed, name) for name in ("day", "peak", "spare", "cold_start", "shares", "portfolio", "rent", "by")}
    out = Path(typed.out) if typed.out else Path("runs") / "fleet" / "fleet.html"
    with compile_notice("fleet"):
        query = parse_query([*typed.hydra, *words], **flags, trust=typed.trust)
        fleets = find_fleets(query, trust=typed.trust)
    write_fleets(fleets, out, as_json=typed.json, full=typed.full)
    open_if_asked(typed, out)
    return 0


TO_FLAG = CommandFlag(
    ("--to",),
    "also write files that start this deployment: vllm, sglang, trtllm, dynamo or llm-d",
    "TARGET",
    "vllm",
    default="no files",
    completes="vllm sglang trtllm dynamo llm-d",
)


COMMANDS = {
    "evaluate": Command(
        "[overrides]",
        "one design: metrics, time by operator, bottleneck; --json for programs, --trace FILE for a timeline viewer",
        """\
Evaluates one design. Prints one screen: the question, whether it fits, the main figures with their error bands, what limits
it, and the setting whose step helps most. --full has all metrics with their definitions, and --operators the time of every
operator. Ends with 3 if the design violates a limit. study=NAME --design ID evaluates a design of a study that ran here.

overrides that choose presets: chip, model, mapping, workload, stack, inference_engine (the options are the files of conf/)""",
        (
            FULL_FLAG,
            CommandFlag(("--operators",), "print the time by operator instead of the first screen"),
            JSON_FLAG,
            CommandFlag(("--trace",), "write the timeline of the first step for Perfetto", "FILE", "step.json", default="none"),
            ENGINE_ARGS_FLAG,
            TO_FLAG,
            CommandFlag(("--out",), "with --to: folder of these files", "DIR", "deploy", default="runs/evaluate/TARGET"),
            CommandFlag(
                ("--from",),
                "evaluate each design of a shortlist that a report wrote; overrides apply to all of them",
                "FILE",
                "list.yaml",
                default="none",
            ),
            DESIGN_FLAG,
            TRUST_FLAG,
        ),
        (
            "dse evaluate model=llama3_70b mapping.prefill.tp=8 chip.l2.size='64 MB' workload.batch=[32]",
            "dse evaluate chip=wse2 workload=gemv fidelity=events",
            "dse evaluate --json --trace step.json chip=ascend910b model=qwen2_7b",
        ),
        hydra=True,
        run=_run_evaluate,
        studies=True,
    ),
    "compare": Command(
        "chip=[NAME,NAME] [overrides]",
        "chips side by side for one workload, each with the best mapping that a short search finds",
        """\
Searches the best mapping of each chip with the analytical model, over its default mapping and a small space of its software's
knobs. Prints the chips side by side: metrics, per mm2, joule and dollar too, and time by resource. Number formats must be
equal. If a chip does not support the workload, its column gives the reason. An unknown chip name is an error. Writes
runs/compare/compare.html: bars of the main metrics, shares of the time, and all metrics.

overrides:
  model=NAME workload=NAME      the workload, as in dse evaluate; workload.batch=[8] and others
  precision={weights: int8}     number formats of all chips; formats=own compares different ones
  space=NAME                    other mappings than those of conf/space/best*.yaml""",
        (
            CommandFlag(
                ("--objective",),
                "metric by which the best mapping is chosen",
                "METRIC",
                "tpot",
                default="throughput_per_system_mm2",
                completes="metrics",
            ),
            FULL_FLAG,
            JSON_FLAG,
            out_flag("runs/compare/compare.html", "compare.html"),
            OPEN_FLAG,
            TRUST_FLAG,
        ),
        (
            "dse compare chip=[a100,npu64,wse2] model=llama3_8b workload.batch=[4]",
            "dse compare --objective tpot chip=[a100,wse2] workload.batch=[1]",
            "dse compare --json chip=[a100,npu_dse] 'precision={weights: fp16, activations: fp16, kv: fp16}'",
        ),
        hydra=True,
        run=_run_compare,
    ),
    "sweep": Command(
        "KEY=[VALUE,VALUE] [overrides]",
        "every combination of some settings, without a study: the best first, by one metric",
        """\
Evaluates every combination of the settings that have several values. Prints the swept settings and a few metrics of each
design, the best by the objective first; counts infeasible combinations by their commonest reasons. Writes
runs/sweep/sweep.html: the best design, the objective over each swept setting, and all designs. Ends with 3 if no combination is
feasible.

values of a setting:
  chip=[h100,h200] chip=h100,h200           a list, or commas
  'mapping.both.tp=range(1,9)'              from 1 to 8; a third number is the step
  'chip.l2.size=tag(MB, choice(32,64))'     with one unit; or ['32 MB','64 MB']
  workload.batch=[[1,32]]                   a list that is one value
  mapping.precision.weights=[fp16,fp8]      words as well; presets, workload and fidelity too""",
        (
            CommandFlag(
                ("--objective",),
                "metric that orders the designs",
                "METRIC",
                "tpot",
                default="the first that the workload has",
                completes="metrics",
            ),
            CommandFlag(("--full",), "print all designs with all metrics"),
            JSON_FLAG,
            CommandFlag(("--out",), "write all designs, in SI units, to this file", "FILE.csv", "sweep.csv", default="no file"),
            CommandFlag(("--page",), "write the page to this file", "FILE", "sweep.html", default="runs/sweep/sweep.html"),
            OPEN_FLAG,
            TRUST_FLAG,
        ),
        (
            "dse sweep chip=[h100,h200] mapping.both.tp=[1,2,4] --objective tpot",
            "dse sweep model=llama3_8b chip=h100 workload.batch=[1,4,16] mapping.both.tp=[1,2] --out sweep.csv",
            "dse sweep --json chip=wse2 workload=gemm mapping.rows=[200,300]",
        ),
        hydra=True,
        run=_run_sweep,
    ),
    "capacity": Command(
        "chip=NAME devices=N [overrides]",
        "maximum rate of requests within SLOs, by the best deployment; or the fewest devices for a rate",
        """\
Searches the deployment of a model on N devices with the highest rate of requests, of which a share keeps the SLOs on time to
first token and time per output token. Candidates have instances that do both phases, or pools that prefill and pools that
decode, with different parallelism, policy, token budget and batch. Their serving is simulated; at 1.05 times the printed rate
an SLO is missed. Writes runs/capacity/capacity.html: tokens/s of a user against tokens/s of a device, and latency against load.
chip=[A,B] compares chips.

options:
  devices=16                    number of devices; or rate='10 Hz' for the fewest devices that serve the rate
  slo_percentile=90             share of the requests that must keep each SLO, in %
  disaggregated=false           no prefill instances
  formats=[fp8,fp16]            formats of weights to look at; else those that the model is published in, or of the mapping
  ffn=disaggregated             chips with several dies per node: also attention and FFNs on different dies
  by=price                      order of chips by the price of their best deployment: of all devices with rate=, of a token
                                with devices=; or by=devices
overrides:
  workload.prompt=4000 workload.output=500 workload.ttft='2 s' workload.tpot='50 ms'     or workload.trace=FILE
  workload.requests=2000 workload.arrivals=poisson seed=0     simulated requests
  space=NAME mapping.both.tp=4     searched settings (conf/space/capacity.yaml); a setting that is given is not searched""",
        (
            FULL_FLAG,
            JSON_FLAG,
            out_flag("runs/capacity/capacity.html", "capacity.html", "the page, or with --to DIR its files,"),
            OPEN_FLAG,
            ENGINE_ARGS_FLAG,
            TO_FLAG,
            TRUST_FLAG,
        ),
        (
            "dse capacity chip=h200 model=qwen3_32b devices=16 workload.prompt=4000 workload.output=500 workload.ttft='2 s' "
            "workload.tpot='50 ms'",
            "dse capacity chip=[h100,h200] model=llama3_8b devices=4 workload.ttft='1 s' workload.tpot='30 ms'",
            "dse capacity --json chip=h200 model=llama3_8b rate='20 Hz' disaggregated=false workload.ttft='1 s' "
            "workload.tpot='30 ms'",
        ),
        hydra=True,
        run=_run_capacity,
    ),
    "fleet": Command(
        "chip=NAME model=NAME --day DAY [overrides]",
        "fewest systems for a day's load, by hour: energy, dollars owned and rented; one model or several",
        """\
Finds the fewest systems that carry the load of a day within SLOs, hour by hour. A system is the chips that serve a model
together, as the mapping says. Its maximum rate is that of workload.rate=max. The systems that are up follow the load, ahead by
the cold start. Prints, beside a fixed fleet, systems by hour, utilisation, energy and dollars of a day; writes
runs/fleet/fleet.html. chip=[A,B] compares chips, the fewest dollars first.

A day is a file with the columns hour,rate, or a name: sinusoid is made up, with a peak of 1.5 times its mean. A portfolio is
a file with models, their shares of the requests and overrides of each:
  models: [{model: llama3_8b, share: 0.7, overrides: [mapping.both.tp=1]}, {model: llama3_70b, share: 0.3}]

overrides:
  workload.ttft='1 s' workload.tpot='50 ms'        SLOs; workload.prompt=2000 workload.output=200, or workload.trace=FILE
  workload.arrivals=gamma workload.cv=3            bursts: the arrivals at each system
  mapping.both.tp=4                                chips of a system, and others of dse evaluate""",
        (
            CommandFlag(
                ("--day",),
                "rates by the hour: a CSV file with hour,rate, or the name of a day",
                "DAY",
                "sinusoid",
                default="none",
                completes="days",
            ),
            CommandFlag(
                ("--peak",),
                "rate of the busiest hour in requests per time, to which the day is scaled",
                "RATE",
                "'200 Hz'",
                default="the day's own",
            ),
            CommandFlag(
                ("--spare",),
                "systems of each model beside those that the rate takes; they share the load",
                "N",
                "1",
                default="0 systems",
            ),
            CommandFlag(("--cold-start",), "time from the start of a system until it serves", "TIME", "'3 min'", default="0 s"),
            CommandFlag(
                ("--shares",),
                "shares of the requests of model=[A,B], in their order",
                "SHARES",
                "0.7,0.3",
                default="equal shares",
            ),
            CommandFlag(("--portfolio",), "models with their shares and overrides", "FILE", "portfolio.yaml", default="none"),
            CommandFlag(
                ("--rent",),
                "rent of a chip, of each where there are several",
                "RENTS",
                "'h100=2.5 USD/hour'",
                default="no rent",
            ),
            CommandFlag(
                ("--by",),
                "order of chips: owned or rented dollars, energy or chips",
                "WORD",
                "rented",
                default="owned",
                completes="owned rented energy chips",
            ),
            FULL_FLAG,
            JSON_FLAG,
            out_flag("runs/fleet/fleet.html", "fleet.html"),
            OPEN_FLAG,
            TRUST_FLAG,
        ),
        (
            "dse fleet chip=h100 model=llama3_8b workload.ttft='1 s' workload.tpot='50 ms' --day sinusoid --peak '200 Hz' "
            "--spare 1 --cold-start '3 min'",
            "dse fleet chip=[h100,h200] model=llama3_8b workload.arrivals=gamma workload.cv=3 --day sinusoid --peak '50 Hz'",
            "dse fleet --json chip=h100 model=[llama3_8b,qwen3_32b] --shares 0.7,0.3 --day sinusoid --peak '20 Hz'",
        ),
        hydra=True,
        run=_run_fleet,
    ),
}
"""Commands of the group by name, in the order of the help."""

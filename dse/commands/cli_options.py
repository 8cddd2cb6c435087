"""Arguments, flags and ``--help`` texts of each command, and their argparse parsers.

No heavy library is imported, so that help and completion answer at once.
"""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dse.config.untrusted_files import TRUST
from dse.space.errors import DesignError, suggest_nearest


@dataclass(frozen=True, slots=True)
class CommandFlag:
    """One flag of a command with its help text.

    Attributes:
        names: as they are typed, the one for messages last.
        does: one line.
        value: what it takes, in capitals; "" for nothing.
        example: of a value.
        optional: whether the value may be left out; then it is the example.
    """

    names: tuple[str, ...]
    does: str
    value: str = ""
    example: str = ""
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    """One command with its arguments, flags, help text and examples.

    Attributes:
        takes: what follows its name.
        does: one line, for the list of commands.
        about: what it does, and the overrides that count for it.
        flags: its own.
        examples: three lines that run.
        hydra: whether it composes a configuration under Hydra's own flags.
    """

    takes: str
    does: str
    about: str
    flags: tuple[CommandFlag, ...]
    examples: tuple[str, str, str]
    hydra: bool = False


ENGINE_ARGS_FLAG = CommandFlag(
    ("--engine-args",), "also print the command line with which the inference engine is assumed to be started"
)
FULL_FLAG = CommandFlag(("--full",), "print all that is known instead of the first screen")
TRUST_FLAG = CommandFlag(("--trust",), "allow code in files that did not come with this program, and in stored runs")
OUT_FLAG = CommandFlag(("--out",), "write to this file instead of the run's folder", "FILE", "report.html")

DESIGN = CommandFlag(("--design",), "a design of the study, by its id in tables, files and the report", "ID", "1f3a09c27b")

HYDRA = (
    CommandFlag(("-cd", "--config-dir"), "a folder of your own chips, models, mappings and spaces", "DIR", "mine"),
    CommandFlag(("-c", "--cfg"), "print the composed configuration (job, hydra or all), and stop", "WHAT", "job"),
    CommandFlag(("--resolve",), "with --cfg: resolve interpolations"),
    CommandFlag(("-p", "--package"), "with --cfg: print only this part, as in --package chip", "PART", "chip"),
    CommandFlag(
        ("-i", "--info"),
        "print what Hydra knows: all, config, defaults, defaults-tree, plugins or searchpath",
        "WHAT",
        "all",
        optional=True,
    ),
    CommandFlag(("--hydra-help",), "Hydra's own help"),
    CommandFlag(("-cn", "--config-name"), "", "NAME", "config"),
    CommandFlag(("-cp", "--config-path"), "", "DIR", "mine"),
)
"""Hydra's flags of commands that compose a configuration; those without a help text are refused with a remedy."""

COMMANDS = {
    "run": Command(
        "NAME [overrides]",
        "start or resume a study; ends with the front and the path of the report",
        """\
Starts a study or resumes it. Screens the space with the analytical model, searches from the best designs, verifies the best
if the study asks for it, and writes the report. Results are stored at once; after Ctrl-C or a kill the same command resumes.
With another sampler, window or population a new search begins, which uses the stored results.

overrides of the run:
  search=NAME search.budget=N   local, tpe, nsga2, nsga3, qmc, random, exhaustive, gp, none or auto; number of designs
  search.stop.time='20 min'     time limit; also search.stop.stagnation=DESIGNS
  verify=next                   evaluate the best designs at the next higher fidelity; verify=none skips verification
  workers=NAME workers.count=N  serial, processes, ray or auto; number of processes
  name=NEW seed=N               a new study beside the stored one
  run_dir=DIR store=URL         places of the report and of the results""",
        (TRUST_FLAG,),
        (
            "dse run quickstart",
            "dse run quickstart search=tpe search.budget=300",
            "dse run study=waferllm_gemv verify=none name=gemv_only",
        ),
        hydra=True,
    ),
    "evaluate": Command(
        "[overrides]",
        "one design: metrics, time by operator, bottleneck; --json for programs, --trace FILE for a timeline viewer",
        """\
Evaluates one design. Prints one screen: what was asked, whether it fits, the main figures with their error bands, what limits
it, and the setting whose step helps most. --full has all metrics with their definitions, and --operators the time of every
operator. Ends with 3 if the design violates a limit. study=NAME --design ID evaluates a design of a study that ran here.

overrides that choose presets: chip, model, mapping, workload, stack, inference_engine (the options are the files of conf/)""",
        (
            FULL_FLAG,
            CommandFlag(("--operators",), "print the time by operator instead of the first screen"),
            CommandFlag(("--json",), "print everything as JSON"),
            CommandFlag(("--trace",), "write the timeline of the first step for Perfetto", "FILE", "step.json"),
            ENGINE_ARGS_FLAG,
            CommandFlag(
                ("--from",),
                "evaluate each design of a shortlist that a report wrote; overrides apply to all of them",
                "FILE",
                "list.yaml",
            ),
            DESIGN,
            TRUST_FLAG,
        ),
        (
            "dse evaluate model=llama3_70b mapping.prefill.tp=8 chip.l2.size='64 MB' workload.batch=[32]",
            "dse evaluate chip=wse2 workload=gemv fidelity=events",
            "dse evaluate --json --trace step.json chip=ascend910b model=qwen2_7b",
        ),
        hydra=True,
    ),
    "compare": Command(
        "chip=[NAME,NAME] [overrides]",
        "chips side by side for one workload, each with the best mapping that a short search finds",
        """\
Searches the best mapping of each chip with the analytical model, over its default mapping and a small space of its software's
knobs. Prints the chips side by side: metrics, per mm2, joule and dollar too, and time by resource. Number formats must be
equal. If a chip does not support the workload, its column gives the reason. An unknown chip name is an error.

overrides:
  model=NAME workload=NAME      the workload, as in dse evaluate; workload.batch=[8] and others
  precision={weights: int8}     number formats of all chips; formats=own compares different ones
  space=NAME                    other mappings than those of conf/space/best*.yaml""",
        (
            CommandFlag(("--objective",), "metric by which the best mapping is chosen", "METRIC", "tpot"),
            FULL_FLAG,
            CommandFlag(("--json",), "print everything as JSON"),
            TRUST_FLAG,
        ),
        (
            "dse compare chip=[a100,npu64,wse2] model=llama3_8b workload.batch=[4]",
            "dse compare --objective tpot chip=[a100,wse2] workload.batch=[1]",
            "dse compare --json chip=[a100,npu_dse] 'precision={weights: fp16, activations: fp16, kv: fp16}'",
        ),
        hydra=True,
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
            CommandFlag(("--json",), "print everything as JSON"),
            CommandFlag(("--out",), "write the page to this file", "FILE", "capacity.html"),
            ENGINE_ARGS_FLAG,
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
            CommandFlag(("--day",), "rates by the hour: a CSV file with hour,rate, or the name of a day", "DAY", "sinusoid"),
            CommandFlag(("--peak",), "rate of the busiest hour, to which the day is scaled", "RATE", "'200 Hz'"),
            CommandFlag(("--spare",), "systems of each model beside those that the rate takes; they share the load", "N", "1"),
            CommandFlag(("--cold-start",), "time from the start of a system until it serves", "TIME", "'3 min'"),
            CommandFlag(("--shares",), "shares of the requests of model=[A,B], in their order", "SHARES", "0.7,0.3"),
            CommandFlag(("--portfolio",), "models with their shares and overrides", "FILE", "portfolio.yaml"),
            CommandFlag(("--rent",), "rent of a chip, of each where there are several", "RENTS", "'h100=2.5 USD/hour'"),
            CommandFlag(("--by",), "order of chips: owned (default) or rented dollars, energy or chips", "WORD", "rented"),
            FULL_FLAG,
            CommandFlag(("--json",), "print everything as JSON"),
            CommandFlag(("--out",), "write the page to this file", "FILE", "fleet.html"),
            TRUST_FLAG,
        ),
        (
            "dse fleet chip=h100 model=llama3_8b workload.ttft='1 s' workload.tpot='50 ms' --day sinusoid --peak '200 Hz' "
            "--spare 1 --cold-start '3 min'",
            "dse fleet chip=[h100,h200] model=llama3_8b workload.arrivals=gamma workload.cv=3 --day sinusoid --peak '50 Hz'",
            "dse fleet --json chip=h100 model=[llama3_8b,qwen3_32b] --shares 0.7,0.3 --day sinusoid --peak '20 Hz'",
        ),
        hydra=True,
    ),
    "explain": Command(
        "[STUDY] [--design ID] [overrides]",
        "explain a design: time by resource, effect of each knob, shadow prices of constraints, next designs",
        """\
Explains one design. Prints shares of its time by resource; the effect of one step of each knob, up and down, on each objective;
the smallest relaxation of each constraint that admits a better design; the next design that is cheaper and slower, and the next
that is more expensive and faster. Without a study the knobs are those of space=NAME, else all settings of chip and mapping, a
tenth up and down, counts halved and doubled. With a study alone: its front, and the shadow prices of its constraints.

overrides that name a design:
  with a study                  chip.cores=400 mapping.both.tp=8, over the study's own configuration; or --design ID
  without a study               as in dse evaluate; objectives as in +objectives.tpot=min""",
        (
            DESIGN,
            FULL_FLAG,
            CommandFlag(("--json",), "print everything as JSON"),
            TRUST_FLAG,
        ),
        (
            "dse explain chip=npu64 model=qwen3_1b7 workload.batch=[4]",
            "dse explain quickstart --design ID",
            "dse explain --json quickstart chip.cores=300 mapping.both.tp=4",
        ),
        hydra=True,
    ),
    "constants": Command(
        "[overrides]",
        "assumed and fitted constants of one design by weight: which of them move its metrics most",
        """\
Moves each constant that is assumed or fitted, or that states a range, alone to both ends of its range. Prints the constants by
weight: the change of each metric across the range, with value, range, source and elasticity. A constant whose range makes the
design violate a limit comes first. Constants of papers, standards and data sheets have no range and no weight.

overrides that name a design: as in dse evaluate; metrics as in +objectives.tpot=min, else the usual ones""",
        (
            CommandFlag(("--source",), "only constants of this source: assumed, fitted, or a key", "SOURCE", "assumed"),
            CommandFlag(("--json",), "print everything as JSON"),
            TRUST_FLAG,
        ),
        (
            "dse constants chip=wse2 model=llama3_8b",
            "dse constants --source assumed chip=npu64 model=qwen3_1b7 +objectives.tpot=min",
            "dse constants --json chip=a100",
        ),
        hydra=True,
    ),
    "robust": Command(
        "STUDY [--draws N] [store=URL]",
        "whether a study's front hangs on assumptions: share of draws of its constants in which each design stays on it",
        """\
Draws all constants that are assumed or fitted, each within its range and all together, and evaluates the front of a study and
the designs next to it with each draw. Prints for each design of the front the share of draws in which it stays there, and the
three constants that turn it most, moved alone to both ends of their ranges. Chips share the constants of their process node
and price list. The ranges are those that constants state, else those of their kind of source (docs/accuracy.md).
Between kinds of chips the bands of measured rates count: designs within them are not distinguished.
What was evaluated is kept in the run's folder: the same question is answered at once, and dse report shows the shares.""",
        (
            CommandFlag(("--draws",), "number of draws; 64 if left out", "N", "128"),
            CommandFlag(("--json",), "print everything as JSON"),
            TRUST_FLAG,
        ),
        (
            "dse robust quickstart",
            "dse robust quickstart --draws 128",
            "dse robust --json quickstart",
        ),
    ),
    "whynot": Command(
        "STUDY [--design ID] [overrides]",
        "position of a design in a study: front designs that beat it, by how much, and through which changes",
        """\
Evaluates a design at the study's fidelity; overrides name it over the study's own configuration. Compares it with the stored
designs: which designs of the front beat it, by how much in each objective, and in which knobs they differ. Of all that beat it,
shows the one with the fewest changes, and these changes one by one, each time the best next one; and its distance from the
front. Settings that no knob of the study moves count as one change.""",
        (DESIGN, FULL_FLAG, CommandFlag(("--json",), "print everything as JSON"), TRUST_FLAG),
        (
            "dse whynot quickstart chip.cores=300 chip.l2.size='64 MB' mapping.both.tp=4",
            "dse whynot quickstart chip=ascend910b",
            "dse whynot --json quickstart mapping.both.tp=8 mapping.both.prefetch=none",
        ),
        hydra=True,
    ),
    "report": Command(
        "STUDY [STUDY...] [store=URL]",
        "write the report of a study again, or one that compares studies; --follow while they run",
        """\
Writes the report of a study again from stored results, or one page on several studies: fronts, hypervolume, dominated designs.
Only the best designs are evaluated again, for their time by operator.""",
        (CommandFlag(("--follow",), "update the open page while the study runs; ends with the study"), OUT_FLAG, TRUST_FLAG),
        (
            "dse report quickstart",
            "dse report quickstart waferllm_gemv --out both.html",
            "dse report quickstart --follow",
        ),
    ),
    "validate": Command(
        "[STUDY...|FILE...] | --claims [PAPER...]",
        "published against simulated figures, of all studies that ship, of some, or of a file; claims of papers",
        """\
Simulates each published row of the studies that ship, or of the named studies. Counts by role the rows whose error exceeds
their study's tolerance (studies/tolerances.csv). Prints mean, 90 % and worst error by study, chip and phase, and the slowest
rows, and writes the page (measured against simulated). Ends with 1 if a row of role check fails that is no known miss
(studies/misses.csv, with reasons). For named studies, the rows are printed too.

For files, prints published value, simulated value and error of each row, with a summary. A file is CSV with these columns: id,
where, overrides, baseline, metric, value, unit, role, note.

With --claims, decides the claims of papers (studies/claims/PAPER.csv): of all papers, of named ones, or one claim as PAPER/ID.
A claim is reproduced, contradicted, or undecidable with what the paper leaves out. Ends with 1 if a contradicted claim has no
mechanism, or a second model that disagrees.""",
        (
            CommandFlag(("--claims",), "decide the claims of papers"),
            CommandFlag(("--json",), "print the rows as JSON"),
            CommandFlag(("--out",), "write the page to this file", "FILE", "validation.html"),
        ),
        (
            "dse validate waferllm_gemv noc_curves",
            "dse validate --claims waferllm/w-t5-gain",
            "dse validate --json mine.csv",
        ),
    ),
    "calibrate": Command(
        "FILE fit=[ADDRESS,...] [overrides]",
        "fit constants of a chip or a stack to measured rows; writes them, with a page, as a file that composes",
        """\
Fits constants of a chip or a stack to rows of role calibration, by robust least squares on log(simulated / measured). Rows of
role check and report are shown, never fitted. FILE has the columns of dse validate; overrides of the command line stand before
those of each row. Writes runs/NAME/calibration.yaml and calibration.html, and prints a command that uses them.

options:
  fit=[ADDRESS,ADDRESS=LOW..HIGH UNIT]   constants to fit; a range replaces the declared one
  folds=5 seed=0                         folds for the held-out error; the same seed gives the same result
  name=NAME                              name of the folder under runs/; default: that of the file""",
        (
            CommandFlag(("--json",), "print everything as JSON"),
            CommandFlag(("--out",), "write constants to this file, and the page beside it", "FILE", "mine/fitted.yaml"),
        ),
        (
            "dse calibrate measured.csv chip=a100 stack=tuned inference_engine=none fit=[mapping.stack.hbm_efficiency]",
            "dse calibrate measured.csv chip=a100 stack=tuned inference_engine=none "
            "fit=['mapping.stack.operator_launch=0..50 us'] folds=3",
            "dse calibrate --json measured.csv chip=a100 stack=tuned inference_engine=none "
            "fit=[mapping.stack.matrix_efficiency] name=json",
        ),
        hydra=True,
    ),
    "list": Command(
        "[KIND [WORD]]",
        "studies; or chips, models, mappings, stacks, knobs, metrics and others, a line each",
        """\
Prints the studies that ship or are in ./studies, with their questions, and the state of those that ran in this folder. With a
kind, prints all of this kind, a line each: chips, models, mappings, stacks, engines, workloads, knobs, settings, options,
metrics, studies, spaces and others. WORD keeps entries with this word in them; a whole name prints its entry.""",
        (CommandFlag(("--json",), "print everything as JSON"),),
        ("dse list", "dse list chips", "dse list knobs l2"),
    ),
    "show": Command(
        "STUDY [store=URL]",
        "question, state and front of a study, and what to do next; --full its knobs, constants and runs",
        """\
Prints one screen: question, state, objectives, knobs, the front with what varies on it, and the next commands. --full has
constraints, workload, knobs with all values, and constants that were assumed or fitted, or have no source; and for each run
time, CPU time, user, host, versions, commit and seed.""",
        (FULL_FLAG, TRUST_FLAG),
        ("dse show quickstart", "dse show waferllm_gemv", "dse show quickstart store=runs/quickstart/results.sqlite"),
    ),
    "export": Command(
        "STUDY --to FORMAT [store=URL]",
        "designs of a study as parquet, csv, json or optuna; --out FILE",
        """\
Writes every searched or screened design of a study: knobs, metrics in SI units, feasible, front. Units are in the schema of
Parquet, or in a file beside CSV and JSON. The format optuna is a journal that optuna-dashboard opens. Of more designs than the
dashboard opens in some seconds, the journal has the front, the best of the others and an even sample; --all writes all.""",
        (
            CommandFlag(("--to",), "parquet (default), csv, json or optuna", "FORMAT", "csv"),
            CommandFlag(("--all",), "with --to optuna: all designs with all metrics, however many"),
            OUT_FLAG,
            TRUST_FLAG,
        ),
        (
            "dse export quickstart --to parquet",
            "dse export quickstart --to csv --out designs.csv",
            "dse export quickstart --to optuna",
        ),
    ),
    "figure": Command(
        "STUDY NAME [overrides]",
        "a figure of a study as HTML, SVG or PNG: pareto, throughput per user, latency against load, roofline, cost",
        """\
Draws one figure from the stored results of a study, and writes it to a file by the end of its name: .html (a page of its own),
.svg or .png (which need pip install 'mesh-dse[figures]' and Chromium). dse.load(STUDY).figure(NAME) has the same in Python.

figures:
  pareto                designs over the first two objectives, with the front; --x and --y take other metrics or knobs
  throughput_per_user   throughput per mm2, --per dollar or watt, against tokens/s of a user: a curve a chip, measured machines
  load                  TTFT, time per token and SLO attainment of a design against the rate; --design ID
  roofline              operators of a design under the roofs of its chips; --design ID
  cost                  area, power and price by block, front designs side by side; --design ID for one
Without --design, load and roofline are of the knee of the front.""",
        (
            CommandFlag(("--out",), "write to this file instead of NAME.html in the run's folder", "FILE", "roofline.svg"),
            DESIGN,
            CommandFlag(("--per",), "resource of throughput_per_user: mm2, dollar or watt", "RESOURCE", "dollar"),
            CommandFlag(("--x",), "metric or knob across, of pareto", "NAME", "tpot"),
            CommandFlag(("--y",), "metric or knob up, of pareto", "NAME", "energy_per_token"),
            TRUST_FLAG,
        ),
        (
            "dse figure quickstart pareto --x tpot --y energy_per_token",
            "dse figure quickstart roofline --out roofline.html",
            "dse figure quickstart throughput_per_user --per dollar",
        ),
    ),
    "schema": Command(
        "[DOCUMENT]",
        "the JSON Schema of a document that --json prints; without a name, the list of documents",
        """\
Prints the schema (JSON Schema, draft 2020-12) of a document that a command prints with --json. Each document has its name and
version at the top, as in "schema": "dse/evaluate/10". Keys, types and units of a version never change.""",
        (),
        ("dse schema", "dse schema evaluate", "dse schema list"),
    ),
    "mcp": Command(
        "",
        "server for assistants: tools over the Model Context Protocol; --allow-run lets them run studies",
        """\
Serves the Model Context Protocol on standard input and output, for the studies and runs of this folder, until the input ends.
The tools are list, evaluate, front, why and whynot; they answer with documents of dse schema. A client's configuration names
this command. Without --allow-run nothing is written; with it there is the tool run, and results go to runs/NAME. Input of an
assistant is data: it cannot set flags or run code. Needs pip install 'mesh-dse[mcp]'.""",
        (CommandFlag(("--allow-run",), "also offer the tool run, which runs studies and stores their results in ./runs"),),
        ("dse mcp", "dse mcp --allow-run", "cd mine && dse mcp"),
    ),
}

HELP_HEAD = "mesh-dse: which chip and which mapping for this model and this load, and why\n"
HELP_TAIL = """
dse COMMAND --help describes each command, with examples; dse --version.

Overrides are Hydra's: chip=ascend910b chip.l2.size='64 MB' model=[llama3_8b,qwen2_7b] mapping.prefill.tp=16
A model from Hugging Face: model.from_hf=FOLDER/config.json
The shell completes commands, studies, flags and overrides after: eval "$(dse -sc install=bash)"
"""


def format_help_overview() -> str:
    """The help on all commands, as ``dse --help`` prints it."""
    typed = {f"dse {name} {command.takes}".rstrip(): command.does for name, command in COMMANDS.items()}
    lines = [f"  {words:{max(map(len, typed)) + 2}}{does}" for words, does in typed.items()]
    return "\n".join([HELP_HEAD, *lines, HELP_TAIL])


def list_flags(name: str) -> list[str]:
    """Every flag of a command, Hydra's flags included."""
    command = COMMANDS[name]
    known = (*command.flags, *(HYDRA if command.hydra else ()))
    return ["--help", *(flag.names[-1] for flag in known if flag.does)]


SWEEPS = ("-m", "--multirun", "--sweep")
"""Flags by which other programs try several values."""

INSTEAD_OF_A_SWEEP = (
    "dse compare chip=[A,B] compares chips; a study tries several chips with chips=[A,B], "
    "and several values of a setting with +space.ADDRESS=choice(1,2)"
)


def parse_arguments(name: str, arguments: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments of a command: a field for each of its flags, ``words`` and ``hydra``.

    ``words`` has the overrides, ``hydra`` Hydra's flags. ``--help`` prints and ends the program, as argparse does.

    Raises:
        DesignError: a flag that the command does not have, or one without its value.
    """
    parser = _option_parser(name)
    try:
        found_arguments, left = parser.parse_known_intermixed_args(list(arguments))
    except argparse.ArgumentError as error:
        spelt = str(error.argument_name).split("/")[-1]
        (flag,) = (flag for flag in (*COMMANDS[name].flags, *HYDRA) if flag.names[-1] == spelt)
        what = "takes a file" if flag.value == "FILE" else f"takes {flag.value}"
        raise DesignError(f"{name} {spelt}: {what if flag.value else error.message}, as in {spelt} {flag.example}") from None
    unknown = [word for word in left if word.startswith("-")]
    if unknown:
        typed = unknown[0].partition("=")[0]
        if typed in SWEEPS:
            raise DesignError(f"{name}: no flag {typed!r}; {INSTEAD_OF_A_SWEEP}")
        raise DesignError(
            f"{name}: no flag {typed!r}; {suggest_nearest(typed, [flag for flag in list_flags(name) if flag != TRUST])}"
        )
    found_arguments.words += left
    return found_arguments


class _Value(argparse.Action):
    """Keeps the value of a flag; an empty one, as of a variable of the shell that is not set, is none."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if not values.strip():
            raise argparse.ArgumentError(self, "empty")
        setattr(namespace, self.dest, values)


class _Hydras(argparse.Action):
    """Keeps a flag of Hydra's as it was typed."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        namespace.hydra += [option_string, *([values] if isinstance(values, str) else [])]


def _option_parser(name: str) -> argparse.ArgumentParser:
    command = COMMANDS[name]
    examples = "\n  ".join(("examples:", *command.examples))
    parser = argparse.ArgumentParser(
        f"dse {name}",
        usage=f"dse {name} [flags] {command.takes}",
        description=command.about,
        epilog=examples,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
        exit_on_error=False,
    )
    parser.set_defaults(hydra=[])
    parser.add_argument("words", nargs="*", help=argparse.SUPPRESS)
    for flag in command.flags:
        if flag.value:
            parser.add_argument(*flag.names, action=_Value, metavar=flag.value, default="", help=flag.does)
        else:
            parser.add_argument(*flag.names, action="store_true", help=flag.does)
    if command.hydra:
        group = parser.add_argument_group("Hydra's flags")
        for flag in HYDRA:
            many = 0 if not flag.value else "?" if flag.optional else None
            group.add_argument(
                *flag.names,
                action=_Hydras,
                nargs=many,
                const=flag.example if flag.optional else None,
                metavar=flag.value or None,
                help=flag.does or argparse.SUPPRESS,
                dest="hydra",
                default=argparse.SUPPRESS,
            )
    return parser

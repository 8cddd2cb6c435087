"""What each command takes and does, and how its words are told apart: the text of ``--help``, and the parser of argparse.

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
    """One flag of a command.

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
    """One command.

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


TRUST_FLAG = CommandFlag(("--trust",), "let files that did not come with this program, and stored runs, say what runs")
OUT_FLAG = CommandFlag(("--out",), "write there instead of into the run's folder", "FILE", "report.html")

DESIGN = CommandFlag(
    ("--design",), "a design of the study by its id, as tables, files and the report have it", "ID", "1f3a09c27b"
)

HYDRA = (
    CommandFlag(("-cd", "--config-dir"), "a folder of your own chips, models, mappings and spaces", "DIR", "mine"),
    CommandFlag(("-c", "--cfg"), "print the composed configuration (job, hydra or all), and do nothing else", "WHAT", "job"),
    CommandFlag(("--resolve",), "with --cfg, and with interpolations resolved"),
    CommandFlag(("-p", "--package"), "with --cfg, only this part of it, as in --package chip", "PART", "chip"),
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
"""Hydra's flags, with run and evaluate; those of which nothing is said are refused with what to do instead."""

COMMANDS = {
    "run": Command(
        "NAME [overrides]",
        "start a study or go on with it; ends with the front and the path of the report",
        """\
Starts a study or goes on with it: screens its space by the closed form, searches from the best, verifies where that is
wanted, and writes the report. What is evaluated is stored at once; after Ctrl-C or a kill the same command goes on. Another
sampler, window or population asks anew and uses what is stored.

overrides that say how, not what:
  search=NAME search.budget=N   local, tpe, nsga2, nsga3, qmc, random, exhaustive, gp, none or auto; different designs to ask
  search.stop.time='20 min'     ends sooner; also search.stop.stagnation=DESIGNS
  verify=next                   the best designs once more, a fidelity up; verify=none leaves that out
  workers=ray workers.count=N   processes; serial, ray or auto
  name=NEW seed=N               beside what ran before
  run_dir=DIR store=URL         where the report and the results go""",
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
        "one design: metrics, time by operator, what binds; --json for machines, --trace FILE for a timeline viewer",
        """\
Evaluates one design: says what it is, whether it is feasible, its metrics with their definitions, the time of every operator
and what binds it. study=NAME --design ID answers for a design of a study that ran here.

overrides that choose parts: chip, model, mapping, workload, stack (the options are the files of conf/), fidelity""",
        (
            CommandFlag(("--json",), "print everything as JSON"),
            CommandFlag(("--trace",), "write the timeline of the first step for Perfetto", "FILE", "step.json"),
            CommandFlag(
                ("--from",),
                "each design of a shortlist, as a report leaves it; overrides are of all of them",
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
        "chips side by side on one question, each with the best mapping that a short search finds",
        """\
Looks for the best mapping of each chip by the closed form, over its usual one and a small space of its software's knobs, and
prints the chips side by side: per mm2, joule and dollar, and what takes the time. Formats are equal, or it is refused. A chip
that cannot be asked says why; a name that is no chip is refused.

overrides that count:
  model=NAME workload=NAME      what is asked, as of dse evaluate; workload.batch=[8] and others
  precision={weights: int8}     the formats of all; formats=own compares unlike ones
  space=NAME                    other mappings than those of conf/space/best*.yaml""",
        (
            CommandFlag(("--objective",), "the metric that the best mapping is best in", "METRIC", "tpot"),
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
        "the largest rate of requests that keeps bounds on latency, by the best deployment; or the fewest devices",
        """\
Looks for the deployment of a model on N devices that serves most requests while a share of them keeps bounds on time to first
token and time per output token: instances that do both phases, or pools that prefill and that decode, by parallelism, policy,
token budget and batch. The loop plays them; at 1.05 times the printed rate a bound is broken. Writes
runs/capacity/capacity.html: a user's tokens against a device's, latency against load. chip=[A,B] compares chips.

words that say how:
  devices=16                    how many there are; or rate='10 Hz' for the fewest that serve it
  percentile=90                 share of the requests that keep each bound, in %
  apart=false                   no instances that only prefill
  ffn=apart                     of boxes of dies, attention and FFNs on dies of their own, too
  by=dollars                    chips in the order of what their best costs: all devices with rate=, a token with devices=;
                                or by=devices
overrides that count:
  workload.prompt=4000 workload.output=500 workload.ttft='2 s' workload.tpot='50 ms'     or workload.trace=FILE
  workload.requests=2000 workload.arrivals=poisson seed=0     what is played
  space=NAME mapping.both.tp=4     what is looked through (conf/space/capacity.yaml); what is set is not searched""",
        (
            CommandFlag(("--json",), "print everything as JSON"),
            CommandFlag(("--out",), "write the page there", "FILE", "capacity.html"),
            TRUST_FLAG,
        ),
        (
            "dse capacity chip=h200 model=qwen3_32b devices=16 workload.prompt=4000 workload.output=500 workload.ttft='2 s' "
            "workload.tpot='50 ms'",
            "dse capacity chip=[h100,h200] model=llama3_8b devices=4 workload.ttft='1 s' workload.tpot='30 ms'",
            "dse capacity --json chip=h200 model=llama3_8b rate='20 Hz' apart=false workload.ttft='1 s' workload.tpot='30 ms'",
        ),
        hydra=True,
    ),
    "explain": Command(
        "[STUDY] [--design ID] [overrides]",
        "why a design is as it is: what takes its time, what each knob would do, what constraints cost, which designs are next",
        """\
Of one design: shares of its time by what they are spent on; by evaluating designs one step away, what each knob does to each
objective, up and down; the smallest relaxation of each constraint that admits a better design; the next design that is
cheaper and slower, and the other way. Without a study the knobs are those of space=NAME, else the leaves of chip and mapping,
a tenth up and down, whole numbers halved and doubled. Of a study alone: its front, and what its constraints cost.

overrides that name a design:
  of a study                    chip.cores=400 mapping.both.tp=8, over what the study starts from; or --design ID
  without one                   as of dse evaluate; objectives as in +objectives.tpot=min""",
        (
            DESIGN,
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
    "whynot": Command(
        "STUDY [--design ID] [overrides]",
        "where a chip of yours stands in a study: which front designs beat it, in what, and through which changes",
        """\
Evaluates the design that overrides name over what a study starts from, at the study's fidelity, and compares it with the
designs that are stored: which of the front beat it, by how much in each objective, and in which knobs they differ; of all that
beat it the one with fewest changes, and the changes to it one by one, each time the one that is best next; and how far it is
from the front. What no knob of the study moves counts as one change.""",
        (DESIGN, CommandFlag(("--json",), "print everything as JSON"), TRUST_FLAG),
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
Writes the report of a study again from what is stored, or one page on several studies: fronts, hypervolume, who beats whom.
Nothing is evaluated but what breaks the time of the best designs down.""",
        (CommandFlag(("--follow",), "while a study runs, keep the open page up to date; ends with it"), OUT_FLAG, TRUST_FLAG),
        (
            "dse report quickstart",
            "dse report quickstart waferllm_gemv --out both.html",
            "dse report quickstart --follow",
        ),
    ),
    "validate": Command(
        "[STUDY...|FILE...] | --claims [PAPER...]",
        "published figures against simulated ones, of all studies that ship, of some, or of a file; claims of papers",
        """\
Simulates each published row of the studies that ship, or of those that are named: counts by role the rows that are further off
than their study's tolerance (studies/tolerances.csv), prints mean, 90 % and worst error by study, chip and phase, and what took
longest, and writes the page (measured against simulated). Ends with 1 where a row of role check fails that is said to hold:
one that is not in studies/misses.csv, which says why. Of a study, its rows are printed too.

Of files, prints published, simulated and error of each row, with a summary. A file is CSV with these columns: id, where,
overrides, baseline, metric, value, unit, role, note.

With --claims, judges the claims of the papers (studies/claims/PAPER.csv), of all or of those named, one claim as PAPER/ID:
reproduced, contradicted, or undecidable with what the paper leaves out. Ends with 1 where a contradicted claim has no mechanism
or a second reader that says otherwise.""",
        (
            CommandFlag(("--claims",), "judge the claims of papers"),
            CommandFlag(("--json",), "print the rows as JSON"),
            CommandFlag(("--out",), "write the page there", "FILE", "validation.html"),
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
Fits constants of a chip or a stack to rows of role calibration, by robust least squares on logarithms of simulated over
measured; rows of role check and report are shown, never fitted. FILE has the columns of dse validate; overrides are put before
those of each row. Writes runs/NAME/calibration.yaml and calibration.html, and says how to use them.

words that say how:
  fit=[ADDRESS,ADDRESS=LOW..HIGH UNIT]   constants, with a range if not the one that their declaration allows
  folds=5 seed=0                         for the held-out error; the same seed gives the same result
  name=NAME                              of the folder under runs/, without it that of the file""",
        (
            CommandFlag(("--json",), "print everything as JSON"),
            CommandFlag(("--out",), "write constants there, and the page beside it", "FILE", "mine/fitted.yaml"),
        ),
        (
            "dse calibrate measured.csv chip=a100 stack=tuned fit=[mapping.stack.hbm_efficiency]",
            "dse calibrate measured.csv chip=a100 stack=tuned fit=['mapping.stack.operator_launch=0..50 us'] folds=3",
            "dse calibrate --json measured.csv chip=a100 stack=tuned fit=[mapping.stack.matrix_efficiency] name=json",
        ),
        hydra=True,
    ),
    "list": Command(
        "",
        "studies that ship, studies that ran here",
        """\
Prints the studies that ship or stand in ./studies, with their questions, and how far those are that ran in this folder.""",
        (CommandFlag(("--json",), "print everything as JSON"),),
        ("dse list", "dse list | grep gemv", "dse list --json"),
    ),
    "show": Command(
        "STUDY [store=URL]",
        "a study's question, knobs, objectives and state",
        """\
Prints a study: question, objectives, constraints, workload, knobs with their values, constants that were assumed or fitted,
or have no source, and of each run its time, processor time, user, host, versions, commit and seed.""",
        (TRUST_FLAG,),
        ("dse show quickstart", "dse show waferllm_gemv", "dse show quickstart store=runs/quickstart/results.sqlite"),
    ),
    "export": Command(
        "STUDY --to FORMAT [store=URL]",
        "a study's designs as parquet, csv, json or optuna; --out FILE",
        """\
Writes every design of a study that was searched or screened: knobs, metrics in SI units, feasible, front. Units are in the
schema of Parquet and in a file beside CSV and JSON; optuna is a journal that optuna-dashboard opens.""",
        (CommandFlag(("--to",), "parquet (as without it), csv, json or optuna", "FORMAT", "csv"), OUT_FLAG, TRUST_FLAG),
        (
            "dse export quickstart --to parquet",
            "dse export quickstart --to csv --out designs.csv",
            "dse export quickstart --to optuna",
        ),
    ),
    "schema": Command(
        "[DOCUMENT]",
        "the JSON Schema of what --json prints; without a name, which documents there are",
        """\
Prints the schema (JSON Schema, draft 2020-12) of a document that some command prints with --json. Each document says its name
and version at the top, as in "schema": "dse/evaluate/7"; a version's keys, their types and their units stay as they are.""",
        (),
        ("dse schema", "dse schema evaluate", "dse schema list"),
    ),
    "mcp": Command(
        "",
        "a server by which an assistant searches: tools over the Model Context Protocol; --allow-run lets it run studies",
        """\
Speaks the Model Context Protocol on standard input and output, on the studies and runs of this folder, until the input ends:
tools list, evaluate, front, why and whynot, whose answers are the documents of dse schema. A client's configuration names this
command. Nothing is written without --allow-run, with which there is the tool run, and results go to runs/NAME. What an
assistant says is data: it can give no flags, and run no code. Needs pip install 'mesh-dse[mcp]'.""",
        (CommandFlag(("--allow-run",), "also offer the tool run, which runs studies and stores their results in ./runs"),),
        ("dse mcp", "dse mcp --allow-run", "cd mine && dse mcp"),
    ),
}

HELP_HEAD = "mesh-dse: which chip and which mapping for this model and this load, and why\n"
HELP_TAIL = """
dse COMMAND --help says more of each, with examples; dse --version.

Overrides are Hydra's: chip=ascend910b chip.l2.size='64 MB' model=[llama3_8b,qwen2_7b] mapping.prefill.tp=16
A model as Hugging Face publishes it: model.from_hf=FOLDER/config.json
The shell completes commands, studies, flags and overrides after: eval "$(dse -sc install=bash)"
"""


def help_overview() -> str:
    """The help on all commands."""
    typed = {f"dse {name} {command.takes}".rstrip(): command.does for name, command in COMMANDS.items()}
    lines = [f"  {words:{max(map(len, typed)) + 2}}{does}" for words, does in typed.items()]
    return "\n".join([HELP_HEAD, *lines, HELP_TAIL])


def flags_of(name: str) -> list[str]:
    """Every flag of a command."""
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
    """The arguments of a command: a field a flag of its own, ``words`` for all else, ``hydra`` for Hydra's flags.

    ``--help`` prints and ends the program, as argparse does.

    Raises:
        DesignError: a flag that the command does not have, or one without its value.
    """
    parser = _parser(name)
    try:
        found, left = parser.parse_known_intermixed_args(list(arguments))
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
            f"{name}: no flag {typed!r}; {suggest_nearest(typed, [flag for flag in flags_of(name) if flag != TRUST])}"
        )
    found.words += left
    return found


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


def _parser(name: str) -> argparse.ArgumentParser:
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

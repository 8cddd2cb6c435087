"""Commands that run studies, show what they found and keep their results in order."""

from argparse import Namespace
from pathlib import Path
from typing import Any

from dse.commands.command_record import (
    DESIGN_FLAG,
    FULL_FLAG,
    JSON_FLAG,
    OPEN_FLAG,
    TRUST_FLAG,
    YES_FLAG,
    Command,
    CommandFlag,
    hydra_line,
    open_if_asked,
    out_flag,
    split_studies,
    split_study,
)
from dse.space.errors import DesignError


def _run_studies(typed: Namespace) -> int:
    from dse.config.compose import run_with_hydra
    from dse.config.overrides import find_study_paths

    names, words = split_studies(typed.words)
    if len(names) > 1:
        raise DesignError(f"run: expected one study, got {' '.join(names)}; as in dse run quickstart")
    if not names and not typed.hydra:
        raise DesignError(f"run: name a study, as in dse run quickstart; valid: {', '.join(find_study_paths())}")
    typed.words = [*(f"study={name}" for name in names), *words]

    def run_composed_study(config: dict[str, Any]) -> None:
        from dse.commands.run_study import run_config

        codes.append(run_config(config))
        open_if_asked(typed, Path(config["run_dir"]) / "report.html")

    codes: list[int] = []
    run_with_hydra(hydra_line(typed), run_composed_study)
    return codes[0] if codes else 0


def _run_list(typed: Namespace) -> int:
    if len(typed.words) > 2:
        raise DesignError(f"list: expected a kind and a word, got {' '.join(typed.words)}; as in dse list chips h100")
    if typed.words:
        from dse.commands.reference_output import print_reference

        return print_reference(typed.words[0], "".join(typed.words[1:]), as_json=typed.json)
    from dse.commands.study_output import print_studies
    from dse.config.overrides import find_study_paths

    return print_studies(find_study_paths(), as_json=typed.json)


def _run_show(typed: Namespace) -> int:
    name, overrides = split_study("show", typed.words)
    from dse.commands.notebook_api import load
    from dse.commands.study_output import print_study, print_study_results
    from dse.commands.study_screen import stored_study_lines
    from dse.terminal.progress import print_lines, screen_width

    loaded = load(name, *overrides, trust=typed.trust)
    loaded.check_rows()
    if typed.full:
        frame = loaded.frame()
        print_study(loaded.study, loaded.runs(), loaded.front_sample(), lambda: frame)
        print_study_results(loaded.study, frame, loaded.verification_of(frame))
        return 0
    print_lines(stored_study_lines(loaded, screen_width()))
    return 0


def _run_report(typed: Namespace) -> int:
    from rich.markup import escape

    from dse.commands.notebook_api import load, write_comparison_report
    from dse.terminal.progress import say

    names, overrides = split_studies(typed.words)
    if not names:
        raise DesignError("report: expected the names of one or more studies (dse list), got nothing")
    if typed.follow:
        from dse.commands.follow_report import follow_studies

        return follow_studies(names, typed.out, overrides, trust=typed.trust)
    path = write_comparison_report([load(name, *overrides, trust=typed.trust) for name in names], typed.out)
    say(f"report  {escape(str(path))}")
    open_if_asked(typed, path)
    return 0


def _run_delete(typed: Namespace) -> int:
    from dse.commands.manage_studies import delete_study

    names, overrides = split_studies(typed.words)
    if len(names) != 1 or overrides:
        raise DesignError(f"delete: expected the name of one study that ran here, got {' '.join(typed.words) or 'nothing'}")
    return delete_study(names[0], yes=typed.yes)


def _run_rename(typed: Namespace) -> int:
    from dse.commands.manage_studies import rename_study

    names, overrides = split_studies(typed.words)
    if len(names) != 2 or overrides:
        raise DesignError(f"rename: expected a study that ran here and a new name, got {' '.join(typed.words) or 'nothing'}")
    return rename_study(*names, yes=typed.yes)


def _run_figure(typed: Namespace) -> int:
    names, overrides = split_studies(typed.words)
    if len(names) != 2:
        raise DesignError(
            f"figure: expected a study and a figure, got {' '.join(names) or 'nothing'}; as in dse figure quickstart pareto"
        )
    from dse.commands.figure_output import write_study_figure

    options = {name: getattr(typed, name) for name in ("design", "per", "x", "y")}
    path = write_study_figure(*names, typed.out, *overrides, trust=typed.trust, **options)
    open_if_asked(typed, path)
    return 0


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
        (OPEN_FLAG, TRUST_FLAG),
        (
            "dse run quickstart",
            "dse run quickstart search=tpe search.budget=300",
            "dse run study=waferllm_gemv verify=none name=gemv_only",
        ),
        hydra=True,
        run=_run_studies,
        studies=True,
    ),
    "list": Command(
        "[KIND [WORD]]",
        "studies; or chips, models, mappings, stacks, knobs, metrics and others, a line each",
        """\
Prints the studies that ship or are in ./studies, with their questions, and the state of those that ran in this folder. With a
kind, prints all of this kind, a line each: chips, models, mappings, stacks, engines, workloads, knobs, settings, options,
metrics, studies, spaces and others. WORD keeps entries with this word in them; a whole name prints its entry.""",
        (JSON_FLAG,),
        ("dse list", "dse list chips", "dse list knobs l2"),
        run=_run_list,
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
        run=_run_show,
        studies=True,
    ),
    "report": Command(
        "STUDY [STUDY...] [store=URL]",
        "write the report of a study again, or one that compares studies; --follow while they run",
        """\
Writes the report of a study again from stored results, or one page on several studies: fronts, hypervolume, dominated designs.
Only the best designs are evaluated again, for their time by operator.""",
        (
            CommandFlag(("--follow",), "update the open page while the study runs; ends with the study"),
            out_flag("report.html in the run's folder", "report.html"),
            OPEN_FLAG,
            TRUST_FLAG,
        ),
        (
            "dse report quickstart",
            "dse report quickstart waferllm_gemv --out both.html",
            "dse report quickstart --follow",
        ),
        run=_run_report,
        studies=True,
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
            out_flag("NAME.html in the run's folder", "roofline.svg", "the figure"),
            OPEN_FLAG,
            DESIGN_FLAG,
            CommandFlag(
                ("--per",),
                "resource of throughput_per_user: mm2, dollar or watt",
                "RESOURCE",
                "dollar",
                default="mm2",
                completes="mm2 dollar watt",
            ),
            CommandFlag(
                ("--x",), "metric or knob across, of pareto", "NAME", "tpot", default="the first objective", completes="metrics"
            ),
            CommandFlag(
                ("--y",),
                "metric or knob up, of pareto",
                "NAME",
                "energy_per_token",
                default="the second objective",
                completes="metrics",
            ),
            TRUST_FLAG,
        ),
        (
            "dse figure quickstart pareto --x tpot --y energy_per_token",
            "dse figure quickstart roofline --out roofline.html",
            "dse figure quickstart throughput_per_user --per dollar",
        ),
        run=_run_figure,
        studies=True,
    ),
    "delete": Command(
        "STUDY",
        "delete the stored results of a study, with its folder and its report",
        """\
Deletes runs/STUDY: results, report, and all else that the study wrote there. In a store elsewhere, deletes the rows of the
study; results of designs stay there for other studies. The definition of the study stays. Asks on a terminal; elsewhere
--yes is required. Refused while a run holds the study.""",
        (YES_FLAG,),
        ("dse delete quickstart", "dse delete study=quickstart", "dse delete quickstart --yes"),
        run=_run_delete,
        studies=True,
    ),
    "rename": Command(
        "STUDY NEW",
        "give the stored results of a study another name",
        """\
Moves runs/STUDY to runs/NEW, and names its runs and searches in the store so. The definition of the study keeps its name. Asks
on a terminal; elsewhere --yes is required. Refused while a run holds the study, or if the new name is taken.""",
        (YES_FLAG,),
        ("dse rename quickstart first_try", "dse rename study=quickstart first_try", "dse rename quickstart first_try --yes"),
        run=_run_rename,
        studies=True,
    ),
}
"""Commands of the group by name, in the order of the help."""

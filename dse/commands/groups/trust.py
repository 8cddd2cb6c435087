"""Commands that explain an answer and say how far to trust it."""

from argparse import Namespace
from pathlib import Path

from dse.commands.command_record import (
    DESIGN_FLAG,
    FULL_FLAG,
    JSON_FLAG,
    OPEN_FLAG,
    TRUST_FLAG,
    Command,
    CommandFlag,
    compile_notice,
    name_as_override,
    open_if_asked,
    out_flag,
    split_studies,
    split_study,
    split_words,
)
from dse.space.errors import DesignError


def _run_explain(typed: Namespace) -> int:
    from dse.commands.explain import run_explain

    names, words = split_studies(typed.words)
    run_explain(names, [*typed.hydra, *words], typed.design, as_json=typed.json, trust=typed.trust, full=typed.full)
    return 0


def _run_whynot(typed: Namespace) -> int:
    from dse.commands.explain import run_whynot

    names, words = split_studies(typed.words)
    run_whynot(names, [*typed.hydra, *words], typed.design, as_json=typed.json, trust=typed.trust, full=typed.full)
    return 0


def _run_robust(typed: Namespace) -> int:
    name, overrides = split_study("robust", typed.words)
    from dse.commands.robust_output import write_robustness

    with compile_notice("robust"):
        page = write_robustness(name, *overrides, draws=typed.draws, out=typed.out, as_json=typed.json, trust=typed.trust)
    open_if_asked(typed, page)
    return 0


def _run_constants(typed: Namespace) -> int:
    from dse.commands.constants_output import run_constants

    names, words = split_words(name_as_override(typed.words))
    if names:
        raise DesignError(f"constants: expected overrides or a study, as in dse constants quickstart, got {' '.join(names)}")
    with compile_notice("constants"):
        run_constants([*typed.hydra, *words], typed.source, as_json=typed.json, trust=typed.trust)
    return 0


def _run_validate(typed: Namespace) -> int:
    if typed.claims:
        from dse.commands.claim_output import validate_claims

        out = Path(typed.out) if typed.out else Path("runs") / "validation" / "claims.html"
        code = validate_claims(typed.words, out, as_json=typed.json)
        open_if_asked(typed, out)
        return code
    typed.words, _ = split_studies(typed.words)
    files = [word for word in typed.words if word.endswith(".csv") or Path(word).is_file()]
    if files and files != typed.words:
        raise DesignError(f"validate: expected files or studies, got {' '.join(typed.words)}")
    if files:
        from dse.accuracy.validate import validate_files

        if typed.out:
            raise DesignError("validate --out: only studies have a page; files are printed")
        return validate_files([Path(word) for word in files], as_json=typed.json)
    from dse.commands.validate_all import validate_studies

    out = Path(typed.out) if typed.out else Path("runs") / "validation" / "validation.html"
    code = validate_studies(typed.words, out, as_json=typed.json)
    open_if_asked(typed, out)
    return code


def _run_calibrate(typed: Namespace) -> int:
    from dse.accuracy.calibrate import calibrate
    from dse.accuracy.engine_calibration import calibrate_measurements
    from dse.accuracy.measurements.measured_run import name_file
    from dse.accuracy.measurements.measurement_files import is_row_file
    from dse.commands.calibrate_output import write_calibration

    files, words = split_words(typed.words)
    if not files:
        raise DesignError("calibrate: expected a file of measurements, got nothing")
    named = [word.partition("=")[2] for word in words if word.startswith("name=")]
    name = named[-1] if named else name_file(Path(files[0]))
    if not name.replace("-", "_").replace("_", "a").isalnum() or name.startswith("-"):
        raise DesignError(f"name: {name!r} cannot name a folder of constants; set name=NAME with letters, digits and _")
    out = Path(typed.out) if typed.out else Path("runs") / name / "calibration.yaml"
    if out.suffix != ".yaml":
        raise DesignError(f"calibrate --out: expected a file name that ends in .yaml, got {out}")
    paths, line = [Path(name) for name in files], [*typed.hydra, *words]
    missing = next((path for path in paths if not path.is_file()), None)
    if missing is not None:
        raise DesignError(f"calibrate: no file {missing}")
    of_rows = [path for path in paths if is_row_file(path)]
    if of_rows and len(paths) > 1:
        raise DesignError(f"calibrate: {of_rows[0]} has rows of dse validate; such a file is fitted alone")
    calibration = calibrate(paths[0], line) if of_rows else calibrate_measurements(paths, line)
    write_calibration(calibration, out, as_json=typed.json)
    open_if_asked(typed, out.with_suffix(".html"))
    return 0


COMMANDS = {
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
            DESIGN_FLAG,
            FULL_FLAG,
            JSON_FLAG,
            TRUST_FLAG,
        ),
        (
            "dse explain chip=npu64 model=qwen3_1b7 workload.batch=[4]",
            "dse explain quickstart --design ID",
            "dse explain --json quickstart chip.cores=300 mapping.both.tp=4",
        ),
        hydra=True,
        run=_run_explain,
        studies=True,
    ),
    "whynot": Command(
        "STUDY [--design ID] [overrides]",
        "position of a design in a study: front designs that beat it, by how much, and through which changes",
        """\
Evaluates a design at the study's fidelity; overrides name it over the study's own configuration. Compares it with the stored
designs: which designs of the front beat it, by how much in each objective, and in which knobs they differ. Of all that beat it,
shows the one with the fewest changes, and these changes one by one, each time the best next one; and its distance from the
front. Settings that no knob of the study moves count as one change.""",
        (DESIGN_FLAG, FULL_FLAG, JSON_FLAG, TRUST_FLAG),
        (
            "dse whynot quickstart chip.cores=300 chip.l2.size='64 MB' mapping.both.tp=4",
            "dse whynot quickstart chip=ascend910b",
            "dse whynot --json quickstart mapping.both.tp=8 mapping.both.prefetch=none",
        ),
        hydra=True,
        run=_run_whynot,
        studies=True,
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
What was evaluated is kept in the run's folder: the same question is answered at once, and dse report shows the shares.
Writes robust.html there: shares by design, and the constants that turn designs.""",
        (
            CommandFlag(("--draws",), "number of draws", "N", "128", default="64 draws"),
            JSON_FLAG,
            out_flag("robust.html in the run's folder", "robust.html"),
            OPEN_FLAG,
            TRUST_FLAG,
        ),
        (
            "dse robust quickstart",
            "dse robust quickstart --draws 128",
            "dse robust --json quickstart",
        ),
        run=_run_robust,
        studies=True,
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
            CommandFlag(
                ("--source",),
                "only constants of this source: assumed, fitted, or a key",
                "SOURCE",
                "assumed",
                default="all sources",
                completes="assumed fitted",
            ),
            JSON_FLAG,
            TRUST_FLAG,
        ),
        (
            "dse constants chip=wse2 model=llama3_8b",
            "dse constants --source assumed chip=npu64 model=qwen3_1b7 +objectives.tpot=min",
            "dse constants --json chip=a100",
        ),
        hydra=True,
        run=_run_constants,
        studies=True,
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
            JSON_FLAG,
            out_flag("validation.html or claims.html in runs/validation", "validation.html"),
            OPEN_FLAG,
        ),
        (
            "dse validate waferllm_gemv noc_curves",
            "dse validate --claims waferllm/w-t5-gain",
            "dse validate --json mine.csv",
        ),
        run=_run_validate,
        studies=True,
    ),
    "calibrate": Command(
        "FILE... [fit=[ADDRESS,...]] [overrides]",
        "fit constants of a chip or a stack to measurements; writes them, with a page, as a file that composes",
        """\
Fits constants of a chip or a stack to figures of role calibration, by robust least squares on log(simulated / measured).
Figures of role check and report are shown, never fitted. Writes runs/NAME/calibration.yaml and calibration.html, and prints a
command that uses them.

A FILE is a result of vllm bench serve or sglang.bench_serving, a report of trtllm-bench, an export of GenAI-Perf or AIPerf,
snapshots of /metrics of vLLM or SGLang, a trace or table of torch.profiler, or a CSV of nsys stats; the content says which.
Chip and model are yours to name. Without fit= it says which constants of the stack the figures determine, and fits these. Or
one FILE has the columns of dse validate; then overrides of the command line stand before those of each row, and fit= is needed.

options:
  fit=[ADDRESS,ADDRESS=LOW..HIGH UNIT]   constants to fit; a range replaces the declared one
  folds=5 seed=0                         folds for the held-out error; the same seed gives the same result
  check=[FILE,...]                       files whose figures are checks
  concurrency=N interval='60 s' runs=N   of a client, of snapshots, of a profile, where files do not say it
  name=NAME                              name of the folder under runs/; default: that of the file""",
        (
            JSON_FLAG,
            out_flag("runs/NAME/calibration.yaml", "mine/fitted.yaml", "constants, with the page beside them,"),
            OPEN_FLAG,
        ),
        (
            "dse calibrate measured.csv chip=a100 stack=tuned inference_engine=none fit=[mapping.stack.hbm_efficiency]",
            "dse calibrate measured.csv chip=a100 stack=tuned inference_engine=none "
            "fit=['mapping.stack.operator_launch=0..50 us'] folds=3",
            "dse calibrate --json measured.csv chip=a100 stack=tuned inference_engine=none "
            "fit=[mapping.stack.matrix_efficiency] name=json",
        ),
        hydra=True,
        run=_run_calibrate,
    ),
}
"""Commands of the group by name, in the order of the help."""

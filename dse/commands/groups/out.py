"""Commands that give results to other programs."""

from argparse import Namespace
from pathlib import Path
from typing import Any

from dse.commands.command_record import (
    JSON_FLAG,
    TRUST_FLAG,
    Command,
    CommandFlag,
    compile_notice,
    hydra_line,
    name_as_override,
    out_flag,
    split_study,
)
from dse.space.errors import DesignError, suggest_nearest


def _run_export(typed: Namespace) -> int:
    from dse.commands.export import FORMATS, export_study

    name, overrides = split_study("export", typed.words)
    to = typed.to or "parquet"
    if to not in FORMATS:
        raise DesignError(f"export --to: no format {to!r}; {suggest_nearest(to, FORMATS)}")
    return export_study(name, to, typed.out, *overrides, trust=typed.trust, everything=typed.all)


def _run_export_program(typed: Namespace) -> int:
    from dse.commands.export_output import print_export
    from dse.config.compose import run_with_hydra
    from dse.config.record_parser import parse_setting
    from dse.exports.export_files import MAX_PACKETS, PACKETS
    from dse.exports.export_program import SCHEMAS, UNSUPPORTED, export_question

    words = sorted({*SCHEMAS, *UNSUPPORTED})
    if typed.to not in words:
        named = suggest_nearest(typed.to, words) if typed.to else f"choose one of {', '.join(words)}"
        raise DesignError(f"export-program --to: {f'no simulator {typed.to!r}' if typed.to else 'missing'}; {named}")
    folder = Path(typed.out) if typed.out else Path("runs") / "export" / typed.to
    most = parse_setting(typed.max_packets or MAX_PACKETS, PACKETS, "export-program --max-packets")

    def export_composed_question(config: dict[str, Any]) -> None:
        with compile_notice("export-program"):
            document = export_question(config, typed.to, folder, most)
        print_export(document, as_json=typed.json)

    typed.words = name_as_override(typed.words)
    run_with_hydra(hydra_line(typed), export_composed_question)
    return 0


def _run_schema(typed: Namespace) -> int:
    from dse.documents import build_schema, document_types
    from dse.documents.records import record_title
    from dse.terminal.json_text import format_json

    if len(typed.words) > 1:
        raise DesignError(f"schema: expected the name of one document, got {' '.join(typed.words)}")
    if typed.words:
        print(format_json(build_schema(typed.words[0]), indent=1))
        return 0
    for name, document in document_types().items():
        print(f"{name:12}{document.STAMP:20}{document.COMMAND:40}{record_title(document)}")
    return 0


COMMANDS = {
    "export": Command(
        "STUDY --to FORMAT [store=URL]",
        "designs of a study as parquet, csv, json or optuna; --out FILE",
        """\
Writes every searched or screened design of a study: knobs, metrics in SI units, feasible, front. Units are in the schema of
Parquet, or in a file beside CSV and JSON. The format optuna is a journal that optuna-dashboard opens. Of more designs than the
dashboard opens in some seconds, the journal has the front, the best of the others and an even sample; --all writes all.""",
        (
            CommandFlag(
                ("--to",),
                "parquet, csv, json or optuna",
                "FORMAT",
                "csv",
                default="parquet",
                completes="parquet csv json optuna",
            ),
            CommandFlag(("--all",), "with --to optuna: all designs with all metrics, however many"),
            out_flag("NAME and the format's ending, in the run's folder", "designs.csv", "the designs"),
            TRUST_FLAG,
        ),
        (
            "dse export quickstart --to parquet",
            "dse export quickstart --to csv --out designs.csv",
            "dse export quickstart --to optuna",
        ),
        run=_run_export,
        studies=True,
    ),
    "export-program": Command(
        "--to SIMULATOR [overrides]",
        "packets, memory requests or execution traces of a kernel or a step, for other simulators",
        """\
Writes what a kernel or a step does in the input format of another simulator, with the configuration of its network or memory:
  booksim    packets of a kernel on a mesh with times and dependencies, and its routers; or a configuration of synthetic traffic
  chakra     execution traces, a file a rank: of the cores of a mesh, of the dies of a step, or of a collective between dies
  ramulator  loads and stores behind each memory channel of a kernel, or of a stream, and the memory
  dramsim3   the same with times
Files name the version of the schema that they follow. What would be too large is refused; --max-packets allows more.""",
        (
            CommandFlag(
                ("--to",),
                "booksim, chakra, ramulator, dramsim3 or softhier",
                "SIMULATOR",
                "booksim",
                default="none, required",
                completes="booksim chakra ramulator dramsim3 softhier",
            ),
            CommandFlag(("--out",), "folder of the files", "DIR", "traces", default="runs/export/SIMULATOR"),
            CommandFlag(
                ("--max-packets",), "packets, requests or nodes of a program at most", "COUNT", "200000", default="200000"
            ),
            JSON_FLAG,
            TRUST_FLAG,
        ),
        (
            "dse export-program chip=wse2 workload=gemm workload.shapes=[64x64x64] mapping.rows=8 --to booksim",
            "dse export-program chip=h100 model=llama3_8b mapping.both.tp=4 workload.batch=[1] --to chakra",
            "dse export-program chip=hbm2_legacy workload=stream --to dramsim3 --out traces",
        ),
        hydra=True,
        run=_run_export_program,
    ),
    "schema": Command(
        "[DOCUMENT]",
        "the JSON Schema of a document that --json prints; without a name, the list of documents",
        """\
Prints the schema (JSON Schema, draft 2020-12) of a document that a command prints with --json. Each document has its name and
version at the top, as in "schema": "dse/evaluate/11". Keys, types and units of a version never change.""",
        (),
        ("dse schema", "dse schema evaluate", "dse schema list"),
        run=_run_schema,
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
"""Commands of the group by name, in the order of the help."""

"""What the documents say to type works as written: every command of README.md and docs/, in order, in one folder.

Pages of docs/guide stand in the order in which the indexes link them. Each fenced block but printed answers
(`text`) is a test. Files stand in blocks too: those of YAML say their path in a comment, others after the language.
Python after a comment `needs MODULE` is run in a process of its own, where the module can be imported.
What takes long is asked for less, by `LESS`; what a user brings is in `BROUGHT`.
"""

import contextlib
import io
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import dse
from dse.accuracy.validate import COLUMNS
from dse.commands.cli_options import COMMANDS
from dse.main import main
from tests.marks import slow_if

ROOT = Path(__file__).resolve().parent.parent
INDEXES = ("docs/usage.md", "docs/studies.md")


def guide() -> list[str]:
    """The pages of docs/guide, in the order of the indexes, each once."""
    links = [link for index in INDEXES for link in re.findall(r"\]\((guide/\w+\.md)\)", (ROOT / index).read_text())]
    return [f"docs/{link}" for link in dict.fromkeys(links)]


ORDER = (
    "README.md", "docs/five_questions.md", *guide(), "docs/optimisers.md", "docs/certified_fronts.md", "docs/accuracy.md",
)  # fmt: skip

LESS = [
    (r"^run study=(quickstart|mine|wide)\b", "screen.limit=64 search.budget=12"),
    (r"^run .*workers.count=8", "workers.count=1"),
    (r"^run study=waferllm_gemv", "workload.shapes=[1x2048x2048] verify.designs=2 verify.off_front=2"),
    (
        r"^run study=waferllm_sram",
        "screen.limit=16 verify.designs=1 verify.off_front=1 model=qwen3_1b7 mapping.both.rows=300 workload.batch=[1] "
        "workload.prompt=[64] workload.output=[4]",
    ),
    (
        r"^run study=waferllm_gemm",
        "workload.shapes=[2048x2048x2048] screen.limit=16 verify.designs=1 verify.off_front=1 verify.submesh=4",
    ),
    (r"^fleet ", "workload.requests=60 workload.output=16"),
    (r"^calibrate (vllm|sglang|metrics)", "workload.requests=8"),
    (r"^evaluate chip=tile_gh200 model=.*events", "workload.batch=[1] workload.prompt=256 workload.output=2"),
    (r"^evaluate .*workload=serving(?!.*conv.csv)", "workload.requests=16"),
    (
        r"^evaluate .*arrivals=closed_loop",
        "workload.requests=1000 workload.output=16",
    ),  # each user has sessions of several turns
    (r"^evaluate chip=(tile|wse|npu64 mapping=flat).*workload=serving", "workload.prompt=200 workload.output=16"),
    (
        r"^capacity chip=npu",
        "workload.requests=100 workload.prompt=200 workload.output=16 disaggregated=false mapping.both.tp=4 mapping.both.pp=4",
    ),
    (
        r"^capacity (?!chip=npu)",
        "workload.requests=500 workload.prompt=512 disaggregated=false mapping.serving.max_batch_size=32 "
        "mapping.serving.max_batched_tokens=512",
    ),
    (r"^capacity .*devices=16", "devices=2"),
    (r"^capacity .*model=deepseek_v3 .*devices=16", "devices=8"),  # its weights do not fit in less
    (r"^evaluate .*partition=auto", "model.qwen3_4b.layers=4"),
    (r"^evaluate .*workload=stream", "workload.requests=400"),
    (r"^evaluate .*workload=traffic", "workload.packets=100"),
    (r"^validate$", "mine.csv"),
    (r"^(delete|rename) (?!.*--yes)", "--yes"),
]
"""Of commands that match, the overrides that make them short; the last words win."""

MEASURED = ROOT / "tests/calibrate/files"
BROUGHT: dict[str, Callable[[], str | bytes]] = {
    **{path.name: path.read_text for path in sorted(MEASURED.iterdir())},
    "measured.csv": (ROOT / "tests/calibrate/measured.csv").read_text,
    "Qwen3-8B/config.json": (ROOT / "tests/dse/hf/qwen3_8b.json").read_text,
    "layer.pt2": (ROOT / "tests/model_graphs/samples/two_attentions.pt2").read_bytes,
    "layer.onnx": (ROOT / "tests/model_graphs/samples/two_attentions.onnx").read_bytes,
    "mine.csv": lambda: f"{','.join(COLUMNS)}\na,here,workload.batch=[1],,tpot,1.7,ms,report,\n",
}


@dataclass(frozen=True)
class Block:
    """One fenced block of a document, or one that is indented, of which commands are looked at only."""

    place: str
    language: str
    file: str
    text: str
    needs: str = ""

    def __str__(self) -> str:
        return self.place


def blocks(document: str) -> Iterator[Block]:
    """The blocks of a document, in order."""
    pattern = re.compile(
        r"(?:^<!-- needs ([\w.]+) -->\n)?^```(\w+) ?([^\n]*)\n(.*?)^```$|((?:^    [^\n]+\n)+)", re.MULTILINE | re.DOTALL
    )
    text = (ROOT / document).read_text()
    for match in pattern.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        needs, language, file, inner, indented = match.groups()
        if language == "text":
            continue
        if language == "yaml":
            file = inner.splitlines()[0].removeprefix("# ")
        yield Block(f"{document}:{line}", language or "sh", file or "", inner or indented, needs or "")


BLOCKS = [block for document in ORDER for block in blocks(document)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where all of it happens, with what a user brings."""
    folder = tmp_path_factory.mktemp("documents")
    for name, read in BROUGHT.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        content = read()
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder


def commands(text: str) -> list[list[str]]:
    """The words of every dse command of a text, without its comments."""
    lines = (re.search(r"(?:^|\s|/)dse (.*)$", line) for line in text.splitlines())
    return [shlex.split(line[1], comments=True) for line in lines if line]


def less(words: list[str]) -> list[str]:
    """A command that takes less."""
    return [*words, *(word for pattern, more in LESS if re.search(pattern, " ".join(words)) for word in more.split())]


def with_id(words: list[str]) -> list[str]:
    """A command with the id of a design where a document says ID: of the first of the study's front."""
    return [dse.load(words[1]).front()["design"][0] if word == "ID" else word for word in words]


def typed(words: list[str], monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Types a command; returns its status, and what it printed. A server has its own process, and a client that is gone."""
    words = with_id(words)
    if words[0] == "mcp":
        done = subprocess.run(
            [sys.executable, "-m", "dse.main", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        return done.returncode, done.stdout + done.stderr
    monkeypatch.setattr(sys, "argv", ["dse", *words])
    given_io = io.StringIO()
    with pytest.raises(SystemExit) as end, contextlib.redirect_stdout(given_io), contextlib.redirect_stderr(given_io):
        main()
    return int(end.value.code or 0), given_io.getvalue()


@slow_if(lambda block: block.place.startswith(("docs/guide/", "docs/five_questions.md")) or "validate --claims" in block.text)
@pytest.mark.parametrize("block", BLOCKS, ids=str)
def test_a_block_of_the_documents_works_as_written(block: Block, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    if block.needs:
        pytest.importorskip(block.needs, exc_type=ImportError)
        done = subprocess.run([sys.executable, "-c", block.text], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
    elif block.language == "python":
        exec(compile(block.text, block.place, "exec"), {})
    elif block.file:
        path = folder / block.file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(block.text)
    for words in commands(block.text) if block.language == "sh" else ():
        code, output = typed(less(words), monkeypatch)
        assert not code, f"dse {' '.join(words)}: {output}"
        assert words[0] == "sweep" or "infeasible:" not in output, f"dse {' '.join(words)}: {output}"


TYPED = [words for block in BLOCKS if block.language == "sh" for words in commands(block.text)]
OTHERS = [
    line for command in COMMANDS.values() for line in command.examples if commands(line.partition("|")[0])[0] not in TYPED
]


ASKING = ("delete", "rename")
"""Commands that ask on a terminal; elsewhere they need ``--yes``."""


@contextlib.contextmanager
def results_kept(runs: Path) -> Iterator[None]:
    """Puts the results of all studies back afterwards."""
    kept = runs.with_name("runs_kept")
    shutil.copytree(runs, kept)
    try:
        yield
    finally:
        shutil.rmtree(runs)
        kept.rename(runs)


SLOW_EXAMPLES = ("dse compare chip=[a100,npu64", "dse validate waferllm_gemv", "dse report quickstart waferllm_gemv")
"""How examples begin that take long, or need what a slow block runs."""


@slow_if(lambda line: line.startswith(SLOW_EXAMPLES))
@pytest.mark.parametrize("line", OTHERS)
def test_an_example_of_a_command_s_help_works_as_written(line: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    (words,) = commands(line.partition("|")[0])
    with results_kept(folder / "runs") if words[0] in ASKING else contextlib.nullcontext():
        code, output = typed(less(words), monkeypatch)
    assert not code, output


def test_the_readme_has_the_first_screen_of_its_first_command(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "README.md").read_text()
    answer = text.partition("```text\n")[2].partition("```")[0]
    monkeypatch.setenv("COLUMNS", "80")
    _, output = typed(commands(text)[0], monkeypatch)
    assert output == answer


ANSWERED = re.compile(r"^```(sh|python)\n((?:(?!```).*\n)+)```\n\n```text\n((?:(?!```).*\n)+)```$", re.MULTILINE)
"""A block with the answer of its last command, or of all its Python, printed below it."""
ANSWERS = [
    pytest.param(document, *match.groups(), id=f"{document}:{match[2].splitlines()[-1][:40]}")
    for document in ORDER
    for match in ANSWERED.finditer((ROOT / document).read_text())
]


@pytest.fixture(scope="module")
def full_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where commands run as they are written, without `LESS`."""
    return tmp_path_factory.mktemp("answers")


@pytest.mark.slow
@pytest.mark.parametrize(("document", "language", "text", "answer"), ANSWERS)
def test_a_printed_answer_is_what_the_command_prints(
    document: str, language: str, text: str, answer: str, full_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(full_folder)
    monkeypatch.setenv("COLUMNS", "80")
    printed = ""
    for words in commands(text) if language == "sh" else ():
        monkeypatch.setattr(sys, "argv", ["dse", *words])
        with pytest.raises(SystemExit) as end, contextlib.redirect_stdout(io.StringIO()) as output:
            main()
        assert not end.value.code, f"{document}: dse {' '.join(words)}"
        printed = output.getvalue()
    if language == "python":
        with contextlib.redirect_stdout(io.StringIO()) as output:
            exec(compile(text, document, "exec"), {})
        printed = output.getvalue()
    assert _lasting_lines(printed) == _lasting_lines(answer)


@pytest.mark.slow
def test_a_printed_deployment_has_lines_of_the_written_file(full_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs/guide/deployments.md").read_text()
    shown = text.partition("```text\n")[2].partition("```")[0].splitlines()
    monkeypatch.chdir(full_folder)
    code, output = typed(commands(text)[0], monkeypatch)
    assert not code, output
    written = iter((full_folder / "deploy/sglang.sh").read_text().splitlines())
    assert [line for line in shown if line not in written] == []


def _lasting_lines(answer: str) -> list[str]:
    """Lines of an answer without the row that says when a study ran and how long."""
    return [line.rstrip() for line in re.sub(r"^state .*\n(?: .*\n)*", "", answer, flags=re.MULTILINE).splitlines()]


def test_no_block_is_left_out() -> None:
    """Every document with a command is one that is typed here."""
    pages = [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs/guide").glob("*.md")]
    others = [path for path in pages if commands(path.read_text())]
    assert {path.relative_to(ROOT).as_posix() for path in others} <= set(ORDER)
    assert {block.language for block in BLOCKS} == {"sh", "python", "yaml", "csv", "json", "jsonl", "toml"}


def test_every_page_of_the_guide_is_in_an_index() -> None:
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "docs/guide").glob("*.md")} == set(guide())


def test_the_readme_is_short_enough_to_read() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150

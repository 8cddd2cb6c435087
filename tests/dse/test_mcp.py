"""What an assistant's client sees of `dse mcp`: tools, documents, refusals, progress; by the client of the library itself."""

import asyncio
import contextlib
import json
import re
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import ClientSession, MCPError, StdioServerParameters, types
from mcp.client.stdio import stdio_client

from dse.commands.cli_options import parse_arguments
from dse.documents import build_schema
from dse.documents.records import plain_values, record_schema
from dse.mcp_server import TOOLS, check_arguments
from dse.mcp_server.process_pool import ToolProcesses
from dse.mcp_server.tool_calls import OUTSIDE, call_tool
from dse.mcp_server.worker_process import ProgressReports
from dse.space.errors import DesignError
from tests.marks import slow_if

Typed = Callable[..., tuple[int, str, str]]
COMMAND = [sys.executable, "-m", "dse.main", "mcp"]
SMALL = ["screen.limit=48", "search=random", "search.budget=12", "verify=none", "workers=serial"]
LONG = ["name=long", "screen.limit=32", "search=random", "search.budget=100000", "verify=none", "workers=serial"]
READ = ["list", "evaluate", "reference", "compare", "capacity", "sweep", "validate", "front", "why", "whynot"]
ASSISTANTS = Path(__file__).parents[2] / "docs/assistants.md"


@dataclass(frozen=True)
class Client:
    """A client with a session; each call waits for its answer."""

    portal: BlockingPortal
    session: ClientSession
    began: types.InitializeResult

    def call(self, name: str, arguments: dict[str, Any] | None = None, **how: Any) -> types.CallToolResult:
        return self.portal.call(lambda: self.session.call_tool(name, arguments or {}, **how))

    def document(self, name: str, **arguments: Any) -> dict[str, Any]:
        """What a tool answers, when text and structured content say the same and keep to the schema."""

        def refuse(word: str) -> None:
            raise AssertionError(f"{word} is no JSON")

        response = self.call(name, arguments)
        assert not response.is_error, response.content
        text = response.content[0].text
        assert json.loads(text, parse_constant=refuse) == response.structured_content
        jsonschema.Draft202012Validator(build_schema(TOOLS[name].document)).validate(response.structured_content)
        return response.structured_content

    def refused(self, name: str, **arguments: Any) -> str:
        """The line by which a tool refuses."""
        response = self.call(name, arguments)
        assert response.is_error
        assert response.structured_content is None
        (text,) = [content.text for content in response.content]
        assert text.startswith("dse: ")
        assert "\n" not in text
        return text


@contextlib.asynccontextmanager
async def connected(folder: Path, *flags: str) -> AsyncIterator[tuple[ClientSession, types.InitializeResult]]:
    server = StdioServerParameters(command=COMMAND[0], args=[*COMMAND[1:], *flags], cwd=folder)
    with (folder.parent / f"{folder.name}.log").open("a") as log:
        async with stdio_client(server, errlog=log) as streams, ClientSession(*streams) as session:
            yield session, await session.initialize()


@contextlib.contextmanager
def client(folder: Path, *flags: str) -> Iterator[Client]:
    with start_blocking_portal() as portal, portal.wrap_async_context_manager(connected(folder, *flags)) as session:
        yield Client(portal, *session)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("assistant")


@pytest.fixture(scope="module")
def reading(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, Client]]:
    """A server that only reads, in a folder of its own."""
    folder = tmp_path_factory.mktemp("reading")
    with client(folder) as single_client:
        yield folder, single_client


@pytest.fixture(scope="module")
def running(folder: Path) -> Iterator[Client]:
    with client(folder, "--allow-run") as single_client:
        yield single_client


@pytest.fixture(scope="module")
def ran(running: Client) -> tuple[dict[str, Any], list[tuple[float, float | None, str | None]]]:
    """What a run answers, and the progress that was told of it."""
    reports: list[tuple[float, float | None, str | None]] = []

    async def heard(done: float, total: float | None, note: str | None) -> None:
        reports.append((done, total, note))

    response = running.call("run", {"study": "quickstart", "overrides": SMALL}, progress_callback=heard)
    assert not response.is_error, response.content
    return response.structured_content, reports


def test_a_server_says_who_it_is_and_how_to_search_with_it(reading: tuple[Path, Client]) -> None:
    began = reading[1].began
    assert began.server_info.name == "mesh-dse"
    assert "mapping.both.tp=8" in began.instructions
    assert "dse://options" in began.instructions


def test_run_is_offered_only_where_it_is_allowed(reading: tuple[Path, Client], running: Client) -> None:
    def names(client: Client) -> list[str]:
        return [tool.name for tool in client.portal.call(client.session.list_tools).tools]

    assert names(reading[1]) == READ
    assert names(running) == [*READ, "run"]


def test_a_tool_says_what_it_takes_and_answers_and_whether_it_writes(running: Client) -> None:
    for tool in running.portal.call(running.session.list_tools).tools:
        assert tool.output_schema == build_schema(TOOLS[tool.name].document)
        assert tool.annotations.read_only_hint == (tool.name != "run")
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        for schema in tool.input_schema["properties"].values():
            assert schema["description"]
            for example in schema["examples"]:
                jsonschema.validate(example, schema)


DESIGNS = [
    [],
    ["chip=a100", "model=llama3_405b"],
    ["chip=wse2", "workload=gemv", "fidelity=events", "workload.shapes=[1x256x256]"],
]


@pytest.mark.slow
@pytest.mark.parametrize("words", DESIGNS)
def test_evaluate_answers_what_the_terminal_prints(words: list[str], reading: tuple[Path, Client], typed: Typed) -> None:
    code, out, err = typed("evaluate", "--json", *words)
    assert code == 0, err
    assert reading[1].document("evaluate", overrides=words) == json.loads(out)


def test_list_says_what_can_be_chosen_beside_its_document(reading: tuple[Path, Client]) -> None:
    client = reading[1]
    assert "quickstart" in [study["name"] for study in client.document("list")["studies"]]
    (resource,) = client.portal.call(client.session.list_resources).resources
    (resource_text,) = client.portal.call(client.session.read_resource, resource.uri).contents
    assert client.call("list").content[1].text == resource_text.text
    document = json.loads(resource_text.text)
    assert "h200" in document["chip"]
    assert "llama3_8b" in document["model"]
    assert "analytical" in document["fidelity"]
    assert document["metrics"]["tpot"]["unit"] == "s"


@pytest.mark.parametrize("words", [["chip.l2.sise=64"], ["chip=a1000"], ["mapping.prefill.tp=x"], ["chip=a100", "study=nope"]])
def test_what_is_wrong_is_refused_by_the_line_of_the_terminal(
    words: list[str], reading: tuple[Path, Client], typed: Typed
) -> None:
    code, out, err = typed("evaluate", "--json", *words)
    assert (code, out) == (2, "")
    assert reading[1].refused("evaluate", overrides=words) == err.strip()


HOSTILE = {
    "+chip._target_=os.system": "names code",
    "chip={_target_: os.system}": "names code",
    "+x={a: [{_target_: os.system}]}": "names code",
    "hydra.run.dir=/tmp/x": "sets how Hydra works",
    "hydra/launcher=basic": "sets how Hydra works",
    "--config-dir=/tmp": "a flag",
    "--trust": "a flag",
    "-m": "a flag",
    "question=${oc.env:HOME}": "may read what is not in the configuration",
    "chip=../../secret": "a file outside of its group",
    "store=elsewhere.sqlite": "results are in ./runs",
    "++run_dir=/tmp/x": "results are in ./runs",
    "ray.address=ray://example.org:1": "only users may choose a cluster",
    "+ray={address: auto}": "only users may choose a cluster",
    "model.from_hf=/etc/passwd": "outside of the folder",
    "model.from_hf='/etc/passwd'": "outside of the folder",
    "+workload={trace: /etc/passwd}": "outside of the folder",
    "workload.trace=../../secret": "outside of the folder",
    "workload.trace=runs/../../secret": "outside of the folder",
    "workload.trace=~/secret": "outside of the folder",
    "search.warm_start=[postgresql://example.org/db]": "outside of the folder",
}


@pytest.mark.parametrize("word", HOSTILE)
@pytest.mark.parametrize("tool", ["evaluate", "run"])
def test_overrides_of_an_assistant_are_data(tool: str, word: str, running: Client, folder: Path) -> None:
    before = sorted(folder.rglob("*"))
    study = {"study": "quickstart"} if tool == "run" else {}
    message = running.refused(tool, **study, overrides=[word])
    assert HOSTILE[word] in message
    assert "--trust" not in message.replace(word, "")
    assert sorted(folder.rglob("*")) == before


WORDS = ["2.4 TB/s", "[1,8]", "runs/a/results.sqlite", "tpot / 2", "ttft/2", "choice(1, 2)", "../s", "4 Hz", "a..b", "0..50 us"]


@pytest.mark.parametrize("value", WORDS)
def test_units_ranges_and_expressions_are_no_places(value: str) -> None:
    assert bool(OUTSIDE.search(value)) == (value == "../s")


@slow_if(lambda name: name == "runs/quickstart")
@pytest.mark.parametrize("name", ["..", "../other", "/tmp", "runs/quickstart", ".hidden"])
def test_a_study_is_named_and_not_a_path(name: str, running: Client, folder: Path) -> None:
    assert "is no name of a study" in running.refused("front", study=name)
    assert running.refused("run", study="quickstart", overrides=[f"name={name}"]).startswith("dse: ")
    assert not (folder / "runs" / name).is_file()
    assert not (folder.parent / "other").exists()


PAIR = ["chip=[h100,h200]", "model=llama3_8b", "workload.batch=[4]"]
SERVED = ["chip=h200", "model=llama3_8b", "devices=1", "workload.requests=60", "workload.ttft=2 s"]


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("evaluate", {"overrides": "chip=a100"}, "is no list of texts"),
        ("evaluate", {"overrides": [1]}, "is no list of texts"),
        ("evaluate", {"override": []}, "did you mean 'overrides'"),
        ("front", {}, "study is missing"),
        ("front", {"study": 3}, "is no text"),
        ("front", {"study": "waferllm_gemv"}, "run it first"),
        ("why", {"design": "3"}, "set study"),
        ("why", {"study": "quickstart"}, "name a design"),
        ("list", {"study": "quickstart"}, "no argument 'study'; valid: none"),
        ("reference", {"kind": "chps"}, "did you mean 'chips'"),
        ("reference", {"kind": "chips", "word": "h1000"}, "did you mean 'h100'"),
        ("compare", {"overrides": ["model=llama3_8b"]}, "name the chips"),
        ("compare", {"overrides": PAIR, "objective": "tpto"}, "did you mean 'tpot'"),
        ("compare", {"overrides": ["chip=[h100,h2000]"]}, "did you mean 'h200'"),
        ("sweep", {"overrides": ["chip=h100"]}, "no setting has several values"),
        ("sweep", {"overrides": ["mapping.both.tp=range(1,500)"]}, "499 combinations, of 256 at most"),
        ("sweep", {}, "overrides is missing"),
        ("capacity", {"overrides": ["chip=h200", "model=llama3_8b"]}, "set devices=16"),
        ("capacity", {"overrides": ["chip=h200", "devices=two"]}, "devices: "),
        ("validate", {"studies": []}, "name one or more studies"),
        ("validate", {"studies": ["waferllm_gemvv"]}, "did you mean 'waferllm_gemv'"),
    ],
)
def test_arguments_that_are_wrong_are_named(tool: str, arguments: dict[str, Any], message: str, running: Client) -> None:
    assert message in running.refused(tool, **arguments)


def test_a_tool_that_is_not_there_is_an_error_of_the_protocol(reading: tuple[Path, Client]) -> None:
    with pytest.raises(MCPError, match="did you mean 'evaluate'"):
        reading[1].call("evalute")


def test_a_server_that_only_reads_refuses_to_run_and_writes_nothing(reading: tuple[Path, Client]) -> None:
    folder, client = reading
    assert "dse mcp --allow-run" in client.refused("run", study="quickstart", overrides=SMALL)
    assert client.document("evaluate")["feasible"]  # it goes on
    assert not list(folder.iterdir())


def test_a_run_answers_with_its_front_and_where_it_is(running: Client, ran: Any, folder: Path) -> None:
    document, reports = ran
    jsonschema.Draft202012Validator(build_schema("run")).validate(document)
    assert (document["name"], document["state"]) == ("quickstart", "done")
    assert Path(document["report"]) == folder / "runs/quickstart/report.html"
    assert Path(document["report"]).is_file()
    assert Path(document["results"]).is_file()
    assert document["front"] == running.document("front", study="quickstart")
    done = [report[0] for report in reports]
    assert done == sorted(set(done))
    assert {str(report[2]).partition(":")[0] for report in reports} == {"screen", "search"}


QUESTIONS = [
    ("front", {"study": "quickstart"}, ["explain", "--json", "quickstart"]),
    ("why", {"study": "quickstart", "design": "ID"}, ["explain", "--json", "quickstart", "--design", "ID"]),
    ("why", {"study": "quickstart", "overrides": ["chip.cores=300"]}, ["explain", "--json", "quickstart", "chip.cores=300"]),
    ("why", {"overrides": ["chip=wse2", "workload=gemv"]}, ["explain", "--json", "chip=wse2", "workload=gemv"]),
    ("whynot", {"study": "quickstart", "overrides": ["chip.cores=300"]}, ["whynot", "--json", "quickstart", "chip.cores=300"]),
    ("whynot", {"study": "quickstart", "design": "ID"}, ["whynot", "--json", "quickstart", "--design", "ID"]),
    ("evaluate", {"study": "quickstart", "design": "ID"}, ["evaluate", "--json", "study=quickstart", "--design", "ID"]),
    ("list", {}, ["list", "--json"]),
    ("reference", {"kind": "chips", "word": "h100"}, ["list", "--json", "chips", "h100"]),
    ("compare", {"overrides": PAIR, "objective": "tpot"}, ["compare", "--json", "--objective", "tpot", *PAIR]),
    ("sweep", {"overrides": [*PAIR, "mapping.both.tp=[1,2]"]}, ["sweep", "--json", *PAIR, "mapping.both.tp=[1,2]"]),
    ("capacity", {"overrides": SERVED}, ["capacity", "--json", *SERVED]),
]


@pytest.mark.sampled
@pytest.mark.parametrize(("tool", "arguments", "line"), QUESTIONS)
def test_questions_about_a_run_are_answered_as_in_the_terminal(
    tool: str, arguments: dict[str, Any], line: list[str], running: Client, ran: Any, folder: Path,
    monkeypatch: pytest.MonkeyPatch, typed: Typed,
) -> None:  # fmt: skip
    monkeypatch.chdir(folder)
    if "ID" in line:  # the first of the front
        first = running.document("front", study="quickstart")["designs"][0]["design"]
        line, arguments = [first if word == "ID" else word for word in line], {**arguments, "design": first}
    code, out, err = typed(*line)
    assert code == 0, err
    assert running.document(tool, **arguments) == json.loads(out)


@pytest.mark.slow
def test_a_run_holds_nothing_up_and_stops_where_it_is_cancelled(running: Client, folder: Path) -> None:
    under_way = running.portal.start_task_soon(running.session.call_tool, "run", {"study": "quickstart", "overrides": LONG})

    def state() -> Any:
        ran = [study["ran"] for study in running.document("list")["studies"] if study["name"] == "long"]
        return ran[0]["state"] if ran and ran[0] else None

    def until(wanted: str) -> None:
        end = time.monotonic() + 60
        while (now := state()) != wanted:
            assert time.monotonic() < end, now
            assert wanted == "interrupted" or not under_way.done()
            time.sleep(0.2)

    until("running")
    running.portal.call(running.session.send_ping)
    assert running.document("evaluate")["feasible"]
    under_way.cancel()
    until("interrupted")


@contextlib.contextmanager
def raw(folder: Path, words: list[str]) -> Iterator[subprocess.Popen[str]]:
    """A server that was asked for a run of the quickstart study, by lines alone."""
    about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
    params = {"name": "run", "arguments": {"study": "quickstart", "overrides": words}, "_meta": {"progressToken": 7}}
    lines = [
        {"id": 1, "method": "initialize", "params": about},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": params},
    ]
    pipe = subprocess.PIPE
    with subprocess.Popen([*COMMAND, "--allow-run"], cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as server:
        assert server.stdin is not None
        for line in lines:
            print(json.dumps({"jsonrpc": "2.0", **line}), file=server.stdin, flush=True)
        yield server


def ended(server: subprocess.Popen[str]) -> tuple[str, str]:
    """What a server says after its client has gone, and what it complained of."""
    assert server.stdin is not None
    assert server.stdout is not None
    assert server.stderr is not None
    server.stdin.close()
    streams = server.stdout.read(), server.stderr.read()
    assert server.wait(20) == 0
    return streams


@pytest.mark.slow
def test_nothing_but_the_protocol_is_on_standard_output(tmp_path: Path) -> None:
    """A run prints a table, of which nothing may come out, nor of anything that its processes say."""
    with raw(tmp_path, SMALL) as server:
        assert server.stdout is not None
        messages = []
        while not messages or messages[-1].get("id") != 2:
            messages.append(json.loads(server.stdout.readline()))
        rest, complaints = ended(server)
    assert not rest
    assert "feasible designs in the report" in complaints
    assert "Traceback" not in complaints
    assert all(message["jsonrpc"] == "2.0" for message in messages)
    assert [message["params"]["progressToken"] for message in messages if message.get("method") == "notifications/progress"]
    assert messages[-1]["result"]["structuredContent"]["state"] == "done"


@pytest.mark.slow
def test_a_run_whose_client_goes_is_stopped_and_keeps_what_it_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, typed: Typed
) -> None:
    with raw(tmp_path, LONG) as server:
        assert server.stdout is not None
        while '"search: ' not in server.stdout.readline():
            assert server.poll() is None
        complaints = ended(server)[1]
    assert "what is finished is stored" in complaints
    assert "Traceback" not in complaints
    monkeypatch.chdir(tmp_path)
    (study,) = [study for study in json.loads(typed("list", "--json")[1])["studies"] if study["name"] == "long"]
    assert study["ran"]["state"] == "interrupted"


async def unheard(done: int, total: int, note: str) -> None:
    """Takes progress, and does nothing with it."""


def test_a_call_whose_process_ends_is_refused_and_the_next_has_another() -> None:
    async def killed() -> dict[str, Any]:
        processes = ToolProcesses()
        call = asyncio.create_task(processes.answer("evaluate", {}, unheard))
        while not processes._all:
            await asyncio.sleep(0.01)
        processes._all[0].kill()
        with pytest.raises(DesignError, match="its process ended with -9"):
            await call
        answer = await processes.answer("evaluate", {"overrides": ["chip.cores=-1"]}, unheard)
        await processes.close()
        return answer

    assert asyncio.run(killed())["refused"].startswith("dse: ")


def test_progress_only_grows_over_the_stages(tmp_path: Path) -> None:
    with (tmp_path / "out").open("w") as out:
        reports = ProgressReports(out)
        for what, total in (("screen", 3), ("search", 2)):
            for done in range(total + 1):
                reports.report_progress(what, done, total, "")
                reports.report_progress(what, done, total, "")
    documents = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert [document["done"] for document in documents] == [1, 3, 5]
    assert [document["total"] for document in documents] == [3, 3, 5]


def test_without_the_library_it_is_said_how_to_install_it(typed: Typed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mcp", None)
    monkeypatch.delitem(sys.modules, "dse.mcp_server.server", raising=False)
    code, out, err = typed("mcp")
    assert (code, out) == (2, "")
    assert "pip install 'mesh-dse[mcp]'" in err
    assert len(err.splitlines()) == 1


def test_a_word_too_many_is_one_line(typed: Typed) -> None:
    code, out, err = typed("mcp", "quickstart")
    assert (code, out, err.count("\n")) == (2, "", 1)


def test_the_configuration_in_the_documents_names_a_command_that_there_is() -> None:
    text = ASSISTANTS.read_text()
    (server,) = json.loads(text.partition("```json .mcp.json\n")[2].partition("```")[0])["mcpServers"].values()
    assert server["command"] == "dse"
    name, *flags = server["args"]
    assert (name, parse_arguments(name, flags).allow_run) == ("mcp", False)


STEPS = re.findall(r"```json call\n(.*?)```\n\n```json (answer|refused)\n(.*?)```", ASSISTANTS.read_text(), re.DOTALL)
"""Calls of the page for assistants, each with whether it is refused, and what it shows of the answer."""


def is_shown(shown: Any, answer: Any) -> bool:
    """Whether a page shows a part of an answer: some keys, the first elements, numbers of four digits."""
    if isinstance(shown, dict):
        return shown.keys() <= answer.keys() and all(is_shown(value, answer[key]) for key, value in shown.items())
    if isinstance(shown, list):
        return len(shown) <= len(answer) and all(map(is_shown, shown, answer))
    return answer == pytest.approx(shown, rel=1e-3) if isinstance(shown, float) else answer == shown


@slow_if(lambda call, kind, shown: '"validate"' in call)
@pytest.mark.parametrize(("call", "kind", "shown"), STEPS)
def test_the_page_for_assistants_shows_what_tools_answer(
    call: str, kind: str, shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    given = json.loads(call)
    if kind == "refused":
        with pytest.raises(DesignError) as refused:
            call_tool(given["tool"], given["arguments"], lambda *_: None)
        assert f"dse: {refused.value}".startswith(json.loads(shown))
        return
    answer = plain_values(call_tool(given["tool"], given["arguments"], lambda *_: None))
    assert is_shown(json.loads(shown), answer)
    assert not list(tmp_path.iterdir())


def test_the_page_for_assistants_names_every_tool() -> None:
    text = ASSISTANTS.read_text()
    assert len(STEPS) > 5
    assert not [name for name in TOOLS if f"`{name}`" not in text]


def test_examples_of_arguments_are_taken() -> None:
    for name, tool in TOOLS.items():
        fields = record_schema(tool.takes)["properties"]
        given = {key: schema["examples"][0] for key, schema in fields.items()}
        assert check_arguments(name, given) == given


@pytest.mark.parametrize("name", ["link/secret", "secret.csv", "'secret.csv'", "[secret.csv]", "link", "a/link/secret"])
@pytest.mark.parametrize("address", ["workload.trace", "model.from_hf", "workload.lengths"])
def test_a_link_out_of_the_folder_is_not_followed(
    name: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor one beside a study, where its files are looked for too."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("API_KEY=sesame\n")
    (tmp_path / "here" / "studies" / "mine").mkdir(parents=True)
    (tmp_path / "here" / "studies" / "mine" / "study.yaml").write_text("question: ''\n")
    for place in (tmp_path / "here", tmp_path / "here" / "a", tmp_path / "here" / "studies" / "mine"):
        place.mkdir(exist_ok=True)
        (place / "link").symlink_to(outside)
        (place / "secret.csv").symlink_to(outside / "secret")
    monkeypatch.chdir(tmp_path / "here")
    with pytest.raises(DesignError, match="outside of the folder"):
        call_tool("evaluate", {"overrides": [f"{address}={name}"]}, lambda *_: None)


@pytest.mark.parametrize(
    "text", ["API_KEY=sesame\n", '{"API_KEY": "sesame"}', '"sesame"', '["sesame"]', "sesame,sesame\n1,2\n", ""]
)
@pytest.mark.parametrize("address", ["workload.trace", "model.from_hf", "workload.lengths", "workload.expert_load"])
def test_what_stands_in_an_unknown_file_is_not_shown(
    text: str, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("secrets.csv").write_text(text)
    words = ["workload=serving"] if address == "workload.trace" else []
    model = ["model=qwen3_30b_a3b"] if address == "workload.expert_load" else []
    with pytest.raises(DesignError) as refused:
        call_tool("evaluate", {"overrides": [*words, *model, f"{address}=secrets.csv"]}, lambda *_: None)
    assert "sesame" not in str(refused.value)
    assert "outside" not in str(refused.value)


def test_a_call_ends_at_its_time_limit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("dse.mcp_server.process_pool.USUAL_LIMIT", 0.2)

    async def called() -> None:
        processes = ToolProcesses()
        try:
            with pytest.raises(DesignError, match="evaluate: took longer than 200 ms"):
                await processes.answer("evaluate", {}, told_nothing)
        finally:
            await processes.close()

    async def told_nothing(done: int, total: int, note: str) -> None:
        pass

    asyncio.run(called())


def test_a_call_has_a_bound_on_its_memory() -> None:
    code = (
        "from dse.mcp_server import worker_process as process; import numpy as np\n"
        "process.call_tool = lambda *_: np.ones(1 << 28)\n"
        "process.limit_memory(1 << 30)\n"
        'print(process._answer_call(\'{"tool": "evaluate", "arguments": {}}\', None)[\'refused\'])\n'
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout.startswith("dse: evaluate: needs more than 6.442 GB of memory")

"""Simulators that are other programs or services: what they answer is taken, and whatever goes wrong is one line.

Programs are a few lines of Python that this test writes; services answer on localhost.
"""

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import dse
from dse.evaluators.accounting import external_evaluators
from dse.evaluators.accounting.external_evaluators import EVALUATORS, ExternalEvaluator
from dse.evaluators.external.program import ExternalProgram, program_evaluator
from dse.evaluators.external.question_document import describe_question, read_metrics
from dse.evaluators.external.service import ExternalService, service_evaluator
from dse.space.design import design_key
from dse.space.errors import DesignError
from tests.extension.test_extension import ROOT, installed_template
from tests.samples import asked

WORDS = ("chip=a100", "model=qwen3_1b7", "workload.batch=[2]", "workload.prompt=64", "workload.output=8")


def program(tmp_path: Path, source: str, **bounds: Any) -> ExternalProgram:
    """A program of some lines of Python, which counts its starts in a file."""
    script = tmp_path / "program.py"
    count = tmp_path / "starts"
    script.write_text(
        f"import sys, os, time, json, pathlib\ncount = pathlib.Path({str(count)!r})\n"
        f"n = int(count.read_text()) + 1 if count.exists() else 1\ncount.write_text(str(n))\n{source}\n"
    )
    return ExternalProgram(**{"command": (sys.executable, str(script)), "time_limit": 20.0, "pause": 0.01, **bounds})


def starts(tmp_path: Path) -> int:
    return int((tmp_path / "starts").read_text())


def ask(one: ExternalProgram) -> Any:
    return one.ask({"in.txt": "7"}, ["out.json"], lambda texts: json.loads(texts["out.json"])["x"])


GOOD = "open('out.json', 'w').write(json.dumps({'x': int(open('in.txt').read()) + 1}))"


def test_files_go_in_and_come_out_and_the_folder_goes(tmp_path: Path) -> None:
    noted = tmp_path / "where"
    assert ask(program(tmp_path, f"open({str(noted)!r}, 'w').write(os.getcwd())\n{GOOD}")) == 8
    assert not Path(noted.read_text()).exists()


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("print('first', file=sys.stderr); sys.exit('no such chip')", "exit status 1: no such chip"),
        ("print('on stdout'); sys.exit(3)", "exit status 3: on stdout"),
        ("os.kill(os.getpid(), 11)", "ended by SIGSEGV"),
        ("print('done')", "it ended well, but wrote no out.json: done"),
        ("open('out.json', 'w').write('rubbish')", "out.json cannot be read: Expecting value"),
        ("open('out.json', 'w').write('{}')", "out.json cannot be read: 'x'"),
        ("open('out.json', 'wb').write(bytes([255, 254]))", "out.json is no text in UTF-8"),
    ],
)
def test_a_failure_is_its_last_line_and_is_tried_again(source: str, hint: str, tmp_path: Path) -> None:
    with pytest.raises(DesignError) as error:
        ask(program(tmp_path, source, tries=2))
    assert hint in str(error.value)
    assert str(error.value).endswith("(after 2 tries)")
    assert "\n" not in str(error.value)
    assert starts(tmp_path) == 2


def test_an_answer_on_the_second_try_counts(tmp_path: Path) -> None:
    assert ask(program(tmp_path, f"if n == 1: sys.exit('not yet')\n{GOOD}", tries=3)) == 8
    assert starts(tmp_path) == 2


def has_ended(process: int) -> bool:
    """Whether a process has ended, or waits for whoever started it to ask for its status."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def test_a_program_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    child = tmp_path / "child"
    source = (
        "import subprocess\n"
        f"open({str(child)!r}, 'w').write(str(subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']).pid))\n"
        "time.sleep(60)"
    )
    begun = time.monotonic()
    with pytest.raises(DesignError, match=r"no answer within 1 s: ended"):
        ask(program(tmp_path, source, time_limit=1.0, tries=3))
    assert time.monotonic() - begun < 10
    assert starts(tmp_path) == 1
    latest = time.monotonic() + 10  # a process that was killed ends when it is scheduled next
    while not has_ended(int(child.read_text())) and time.monotonic() < latest:
        time.sleep(0.05)
    assert has_ended(int(child.read_text()))


@pytest.mark.skipif(sys.platform != "linux", reason="memory of other processes is read from /proc")
def test_a_program_that_takes_too_much_memory_is_ended(tmp_path: Path) -> None:
    source = "held = []\nwhile len(held) < 200:\n    held.append(bytearray(b'x') * 5_000_000); time.sleep(0.01)\ntime.sleep(9)"
    with pytest.raises(DesignError, match=r"GB of memory, above its limit of 0\.15 GB: ended"):
        ask(program(tmp_path, source, memory_limit=1.5e8))


def test_a_program_cannot_fill_the_disk(tmp_path: Path) -> None:
    with pytest.raises(DesignError, match=r"exit status 1: .*File too large"):
        ask(program(tmp_path, "open('out.json', 'w').write('x' * 9_000_000)", output_limit=1e6))


def test_names_that_lead_out_of_the_folder_are_refused(tmp_path: Path) -> None:
    for name in ("../x", "/x"):
        with pytest.raises(DesignError, match="expected a name below the temporary folder"):
            program(tmp_path, GOOD).ask({name: ""}, [], len)


def test_a_program_that_is_not_there_is_named() -> None:
    with pytest.raises(DesignError, match="no program no-such-simulator; install it, or give its path"):
        ask(ExternalProgram(("no-such-simulator",)))


RELEASED = threading.Event()
"""Set where the service ends, so that nobody waits for answers any more."""


class Answers(BaseHTTPRequestHandler):
    """Answers of a service by path; each path counts its questions."""

    asked: dict[str, int]

    def do_POST(self) -> None:
        document = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        number = type(self).asked[self.path] = type(self).asked.get(self.path, 0) + 1
        status, content = 200, json.dumps({"metrics": {"latency": 2 * document.get("analytical", {}).get("latency", 1.0)}})
        match self.path:
            case "/fails":
                status, content = 500, "trace\nout of licences"
            case "/refuses":
                status, content = 422, "no such chip"
            case "/rubbish":
                content = "<html>"
            case "/large":
                content = json.dumps("x" * 3_000_000)
            case "/second" if number == 1:
                status, content = 503, "starting"
            case "/drips":
                with contextlib.suppress(OSError):
                    self.send_response(200)
                    self.end_headers()
                    while not RELEASED.wait(0.1):
                        self.wfile.write(b" ")
                        self.wfile.flush()
                return
            case "/hangs":
                RELEASED.wait(5)
        with contextlib.suppress(OSError):  # who asked may have gone
            self.send_response(status)
            self.end_headers()
            self.wfile.write(content.encode())

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Address of a service on this machine."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    Answers.asked = {}
    RELEASED.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Answers) as listening:
        thread = threading.Thread(target=listening.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        RELEASED.set()
        listening.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("path", "hint", "times"),
    [
        ("/fails", "status 500: out of licences (after 2 tries)", 2),
        ("/refuses", "status 422: no such chip", 1),
        ("/rubbish", "the answer cannot be read: Expecting value", 2),
        ("/large", "an answer of more than 1 MB", 1),
        ("/hangs", "no answer within 0.5 s (after 2 tries)", 2),
        ("/drips", "no whole answer within 0.5 s (after 2 tries)", 2),
    ],
)
def test_what_a_service_does_is_one_line(path: str, hint: str, times: int, server: str) -> None:
    service = ExternalService(server + path, time_limit=0.5, tries=2, pause=0.01, answer_limit=1e6)
    with pytest.raises(DesignError) as error:
        service.ask({})
    assert hint in str(error.value)
    assert "\n" not in str(error.value)
    assert Answers.asked[path] == times


def test_a_service_that_starts_is_asked_again(server: str) -> None:
    assert ExternalService(server + "/second", pause=0.01).ask({}) == {"metrics": {"latency": 2.0}}


def test_no_service_and_no_address_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with pytest.raises(DesignError, match="no connection: Connection refused"):
        ExternalService("http://127.0.0.1:1/x", tries=1).ask({})
    with pytest.raises(DesignError, match="is no address of http or https"):
        ExternalService("file:///etc/passwd").ask({})


def test_a_document_says_a_design_by_the_addresses_of_overrides() -> None:
    question = asked(*WORDS)
    document = describe_question(question.base, question.workload.cases[0], {"latency": 2.0})
    assert document["design"] == design_key(question.base)
    assert document["settings"]["chip.hbm.bandwidth"] == question.base.chip.hbm.bandwidth
    assert document["case"]["kind"] == "BatchCase"
    assert document["case"]["requests"] == [[2, 64, 8]]
    assert json.loads(json.dumps(document, allow_nan=False)) == document


@pytest.mark.parametrize("answer", [[], {}, {"metrics": 3}, {"latency": "1"}, {"latency": True}, "x"])
def test_answers_without_metrics_are_refused(answer: Any) -> None:
    with pytest.raises(DesignError, match="expected"):
        read_metrics(answer)


def test_both_kinds_are_fidelities_of_a_design(tmp_path: Path, server: str) -> None:
    question = asked(*WORDS)
    case = question.workload.cases[0]
    source = (
        "q = json.load(open('question.json'))\n"
        "open('answer.json', 'w').write(json.dumps({'latency': 3 * q['analytical']['latency']}))"
    )
    by_program = program_evaluator("a test", program(tmp_path, source), lambda design, case: True)
    by_service = service_evaluator("a test", ExternalService(server + "/"), lambda design, case: True)
    known = {"latency": 0.5}
    assert by_program.metrics(question.base, case, known) == {"latency": 1.5}
    assert by_service.metrics(question.base, case, known) == {"latency": 1.0}


STUDY = """question: "Which batch is quickest by our simulator?"
defaults:
  - override /chip: a100
  - override /model: qwen3_1b7
  - override /search: exhaustive
fidelity: mine
workload: {batch: [2], prompt: 64, output: 8}
space: {mapping.both.tp: "choice(1, 2, 4, 8)"}
objectives: {latency: min, system_mm2: min}
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["processes", "ray"])
def test_a_study_runs_by_a_program_on_workers_and_resumes(kind: str, tmp_path: Path) -> None:
    """The package is found by its entry point alone, in workers as well; a second run starts no program."""
    folder = installed_template(tmp_path)
    count = folder / "starts"
    stand_in = folder / "site/my_mesh/stand_in.py"
    stand_in.write_text(
        stand_in.read_text().replace("    question, answer", f"    open({str(count)!r}, 'a').write('x')\n    question, answer")
    )
    (folder / "studies/mine").mkdir(parents=True)
    (folder / "studies/mine/study.yaml").write_text(STUDY)
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (folder / "site", ROOT)))}
    words = [sys.executable, "-m", "dse.main", "run", "study=mine", f"workers.kind={kind}", "workers.count=2"]
    starts = []
    for _ in range(2):
        run = subprocess.run(words, cwd=folder, env=environ, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        starts.append(len(count.read_text()))
    assert starts[0] >= 4  # four designs, and those of the report's breakdowns
    assert starts[1] == starts[0]
    check = "import dse; print(sorted(dse.load('mine').front()['latency'])[0] > 0)"
    done = subprocess.run([sys.executable, "-c", check], cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "True", done.stderr


def install(monkeypatch: pytest.MonkeyPatch, **metrics: float) -> None:
    """A fidelity that answers some metrics, as an installed package would add it."""
    mine = ExternalEvaluator("a test", lambda design, case: True, lambda design, case, closed: metrics)
    monkeypatch.setitem(EVALUATORS, "mine", mine)
    monkeypatch.setattr(external_evaluators, "external_fidelities", lambda: ("mine",))


@pytest.mark.parametrize(
    ("metrics", "hint"),
    [
        ({"ttft": -1}, "the package returns ttft=-1; expected above 0"),
        ({"ttft": 0.1, "tpot": 0}, "the package returns tpot=0; expected above 0"),
        ({"energy_per_token": 0.0}, "the package returns energy_per_token=0; expected above 0"),
        ({"price_per_mtoken": -0.5}, "the package returns price_per_mtoken=-0.5; expected above 0"),
        ({"throughput": 0}, "the package returns throughput=0; expected above 0"),
        ({"mfu": -0.1}, "the package returns mfu=-0.1; expected 0 or more"),
    ],
)
def test_answers_that_no_machine_gives_are_refused(
    metrics: dict[str, float], hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, **metrics)
    with pytest.raises(DesignError) as error:
        dse.evaluate([*WORDS, "fidelity=mine"])
    assert hint in str(error.value)
    assert "\n" not in str(error.value)


def test_metrics_of_a_package_are_named_and_have_no_band(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of the analytical model say nothing of another program's number."""
    words = ["chip=h100", "model=qwen3_1b7", "workload.batch=[2]", "workload.prompt=64", "workload.output=8"]
    shipped = dse.evaluate(words)
    assert shipped.rate_band
    assert "tpot" in {band.metric for band in shipped.bands}
    install(monkeypatch, tpot=0.001, mfu=0.0)
    evaluation = dse.evaluate([*words, "fidelity=mine"])
    assert evaluation.external == ("tpot", "mfu")
    assert {"tpot", "mfu"}.isdisjoint(band.metric for band in evaluation.bands)
    assert evaluation.rate_band
    assert "metrics     tpot, mfu by mine; all others by the analytical model" in repr(evaluation)
    assert "tpot, mfu by mine; all others by the analytical model" in evaluation.remarks
    install(monkeypatch, throughput=900.0)
    assert not dse.evaluate([*words, "fidelity=mine"]).rate_band


def test_nothing_ships_as_an_external_evaluator() -> None:
    assert not EVALUATORS.shipped

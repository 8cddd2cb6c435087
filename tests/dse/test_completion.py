"""Completion in the shell, through a real one."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dse.commands import completion
from dse.commands.cli_options import COMMANDS
from dse.commands.completion import SCRIPTS, complete_line
from dse.space.errors import DesignError

LINES = [
    ("dse swe", ["sweep"]),
    ("dse show quick", ["quickstart"]),
    ("dse show study=quick", ["study=quickstart"]),
    ("dse run study=quick", ["study=quickstart"]),
    ("dse evaluate chip.l2.s", ["chip.l2.size="]),
    ("dse evaluate fidelity=an", ["fidelity=analytical"]),
    ("dse evaluate chip=h100_", ["chip=h100_ep"]),
    ("dse sweep chip=[h100,gh", ["chip=[h100,gh200"]),
    ("dse sweep --objective tpo", ["tpot"]),
    ("dse export quickstart --to p", ["parquet"]),
    ("dse capacity --to ll", ["llm-d"]),
    ("dse capacity --to=ll", ["--to=llm-d"]),
    ("dse capacity devi", ["devices="]),
    ("dse evaluate mapping.both.allreduce=kt", ["mapping.both.allreduce=ktree"]),
    ("dse run quickstart +objectives.tpo", ["+objectives.tpot="]),
    ("dse run quickstart +objectives.tpot=mi", ["+objectives.tpot=min"]),
    ("dse figure quickstart roof", ["roofline"]),
    ("dse schema capac", ["capacity"]),
    ("dse run search=nsga", ["search=nsga2", "search=nsga3"]),
    ("dse help fle", ["fleet"]),
    ("dse evaluate --js", ["--json"]),
    ("dse nosuch --", []),
]


@pytest.mark.parametrize(("line", "expected"), LINES, ids=[line for line, _ in LINES])
def test_words_that_may_follow(line: str, expected: list[str]) -> None:
    assert complete_line(line) == expected


def test_nothing_is_offered_that_does_not_begin_so() -> None:
    for name in COMMANDS:
        for word in ("", "-", "c", "mapping.", "chip="):
            assert all(offered.startswith(word) for offered in complete_line(f"dse {name} {word}"))


def test_very_many_keys_are_offered_part_by_part() -> None:
    offered = complete_line("dse evaluate mapping.")
    assert "mapping.both." in offered
    assert len(offered) < 40


@pytest.mark.skipif(not shutil.which("bash"), reason="needs bash")
@pytest.mark.parametrize(("line", "expected"), LINES[:12], ids=[line for line, _ in LINES[:12]])
def test_bash_completes_what_is_offered(line: str, expected: list[str], tmp_path: Path) -> None:
    """The function that the shell installs, called as the shell calls it."""
    (tmp_path / "dse").write_text(f'#!/bin/sh\nexec {sys.executable} -m dse.main "$@"\n')
    (tmp_path / "dse").chmod(0o755)
    words = " ".join(f"'{word}'" for word in line.split())
    script = (
        'eval "$(dse -sc install=bash)"\n'
        f"COMP_LINE='{line}'; COMP_POINT={len(line)}; COMP_WORDS=({words}); COMP_CWORD={len(line.split()) - 1}\n"
        '$(complete -p dse | sed "s/.*-F \\([^ ]*\\) .*/\\1/") 2>/dev/null\n'
        'printf "%s\\n" "${COMPREPLY[@]}"\n'
        "[[ $COMP_WORDBREAKS != *=* ]] || echo breaks\n"
    )
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    found = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True, env={**os.environ, "PATH": path})
    assert found.stdout.split() == expected


def test_no_shell_of_that_name_is_a_line() -> None:
    with pytest.raises(DesignError, match="no shell 'bsh'; did you mean 'bash'"):
        completion.run_completion(["-sc", "install=bsh"])
    assert set(SCRIPTS) == {"bash", "zsh", "fish"}


def test_a_kept_list_answers_without_heavy_imports(tmp_path: Path) -> None:
    complete_line("dse sweep --objective t")  # fills the cache
    code = (
        "import sys, time; sys.argv = ['dse', '-sc', 'query=bash']\n"
        "import dse.main\n"
        "try:\n    dse.main.main()\nexcept SystemExit:\n    pass\n"
        "heavy = [n for n in ('numpy', 'hydra', 'pandas', 'omegaconf') if n in sys.modules]\n"
        "print(heavy, file=sys.stderr)\n"
    )
    start = time.monotonic()
    found = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "COMP_LINE": "dse evaluate chip.l2.s"},
    )
    assert found.stdout == "chip.l2.size=\n"
    assert found.stderr == "[]\n"
    assert time.monotonic() - start < 30

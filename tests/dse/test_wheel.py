"""The wheel has everything: installed elsewhere, run from another folder, it finds its configs and studies."""

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # built from a copy: setuptools leaves a build folder behind, whose stale files would be in the next wheel
    copy = folder / "source"
    left_out = shutil.ignore_patterns(".*", "build", "dist", "runs", "*.egg-info", "__pycache__")
    shutil.copytree(ROOT, copy, ignore=left_out, symlinks=True)
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q", "-w", str(folder), str(copy)]
    subprocess.run(command, check=True, cwd=folder)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_wheel_runs_a_study_from_another_folder(installed: Path, tmp_path: Path) -> None:
    code = (
        f"import sys; sys.path = [p for p in sys.path if p != {str(ROOT)!r}]; sys.path.insert(0, {str(installed)!r})\n"
        "import dse, dse.main\n"
        f"assert dse.__file__.startswith({str(installed)!r}), dse.__file__\n"
        "sys.argv = ['dse', 'run', 'study=quickstart', 'screen.limit=64', 'search.budget=16']\n"
        "dse.main.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs/quickstart/report.html").exists()


def test_every_config_and_study_is_in_the_wheel(installed: Path) -> None:
    data = (("conf", "**/*.yaml"), ("studies", "**/*.yaml"), ("studies", "**/*.csv"), ("studies", "**/*.md"))
    page = (("report", "*.html"), ("report", "*.css"), ("report", "*.js"))
    for folder, pattern in data + page:
        source, wheel = ROOT / "dse" / folder, installed / "dse" / folder
        paths = {path.relative_to(source) for path in source.glob(pattern)}
        other_paths = {path.relative_to(wheel) for path in wheel.glob(pattern)}
        assert paths == other_paths != set()


def test_the_wheel_tells_type_checkers_that_it_has_types(installed: Path) -> None:
    assert (installed / "dse/py.typed").is_file()


def test_the_wheel_has_the_test_support_that_tests_of_packages_import(installed: Path) -> None:
    paths, other_paths = (
        {path.relative_to(folder) for path in (folder / "dse/testing").rglob("*.py")} for folder in (ROOT, installed)
    )
    assert paths == other_paths != set()


def test_the_wheel_has_one_name_at_the_top(installed: Path) -> None:
    assert {path.name for path in installed.iterdir() if path.suffix != ".dist-info"} == {"dse"}


def test_the_wheel_says_where_it_comes_from_and_what_it_is(installed: Path) -> None:
    (path,) = installed.glob("*.dist-info/METADATA")
    headers = {line.partition(":")[0] for line in path.read_text().partition("\n\n")[0].splitlines()}
    assert {"Author", "Classifier", "Keywords", "License-Expression", "Project-URL", "Summary", "Version"} <= headers

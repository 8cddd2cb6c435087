"""Start of Python processes that import the modules of this one, none from the current folder.

Python looks for modules in the current folder first when it runs `-c` or `-m`. A study's folder may come from a stranger, and a
`numpy.py` in it would then run.
"""

import os
import sys
from pathlib import Path


def build_python_command(*arguments: str) -> list[str]:
    """Command line of a Python that looks for no module in the current folder.

    >>> build_python_command("-m", "dse")[1:]
    ['-P', '-m', 'dse']
    """
    return [sys.executable, "-P", *arguments]


def build_child_environment() -> dict[str, str]:
    """Environment variables of a Python process that finds the modules that this process finds."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(import_path())}


def import_path() -> list[str]:
    """Folders in which a child process may look for modules, as absolute paths in the order of `sys.path`.

    The current folder is among them in three cases only: a script in it is running, PYTHONPATH names it, or this package was
    found there. In the last case it comes last, so that it hides no other module.
    """
    current, package = os.path.realpath(os.curdir), str(Path(__file__).resolve().parents[2])
    allowed = _typed_folders()
    folders = []
    for entry in sys.path:
        folder = os.path.abspath(entry or os.curdir)
        if os.path.realpath(folder) != current or (entry and os.path.realpath(folder) in allowed):
            folders.append(folder)
    if (
        package == current
        and package not in folders
        and any(os.path.realpath(folder or os.curdir) == current for folder in sys.path)
    ):
        folders.append(package)
    return folders


def script_path() -> list[str]:
    """Folders of `import_path` beyond those of the interpreter: of the script and of this package."""
    package = str(Path(__file__).resolve().parents[2])
    wanted = {package, *_script_folder()}
    return [folder for folder in import_path() if os.path.realpath(folder) in wanted]


def _typed_folders() -> set[str]:
    """Folders that whoever started this process named: the script's, and those of PYTHONPATH."""
    named = (entry for entry in os.environ.get("PYTHONPATH", "").split(os.pathsep) if entry)
    return {os.path.realpath(entry) for entry in named} | set(_script_folder())


def _script_folder() -> list[str]:
    """The folder of the script that Python was started with; empty for `-m`, `-c` and a notebook."""
    main = sys.modules.get("__main__")
    file = getattr(main, "__file__", None)
    if file is None or getattr(main, "__spec__", None) is not None:
        return []
    return [os.path.dirname(os.path.realpath(file))]

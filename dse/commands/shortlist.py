"""A shortlist: designs in a YAML file that a report wrote, each evaluated as by `dse evaluate`.

    designs:
      "1f3a09c27b": [study=quickstart, chip.cores=240, "chip.l2.size=64 MB"]

A design is the overrides that make it; what the file says is data, and runs no code unless it is trusted.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape

from dse.analysis.evaluation import Evaluation, evaluate_config
from dse.commands.evaluate_output import evaluation_record, print_evaluation
from dse.config import untrusted_files as strangers
from dse.config.compose import compose
from dse.documents.evaluate_document import ShortlistDocument
from dse.space.errors import DesignError, suggest_nearest
from dse.terminal.json_text import format_json
from dse.terminal.progress import SafeConsole, print_lines, screen_width
from dse.terminal.screen_lines import SCREEN_WIDTH

VALID = "write designs: {NAME: [chip=a100, chip.l2.size=64 MB]}"


def print_shortlist(path: Path, more: Sequence[str], *, as_json: bool, trust: bool, full: bool = False) -> None:
    """Print the first screen of each design of a shortlist, in its order; all of each if `full`."""
    evaluations = _evaluate_designs(path, more, trust=trust)
    if as_json:
        designs = {name: evaluation_record(evaluation) for name, (evaluation, _) in evaluations.items()}
        print(format_json(ShortlistDocument(designs=designs), indent=1))
        return
    console = SafeConsole(150 if full else SCREEN_WIDTH)
    for name, (evaluation, config) in evaluations.items():
        console.rule(f"[bold]{escape(name)}[/]", align="left")
        if full:
            print_evaluation(evaluation, config)
        else:
            print_lines(evaluation.first_screen(screen_width()))


def evaluate_shortlist(path: Path, more: Sequence[str] = (), *, trust: bool = False) -> dict[str, Evaluation]:
    """Designs of a file by name, each evaluated for the workload that its overrides choose.

    Args:
        path: of the YAML file.
        more: overrides, and Hydra's flags, of all designs; they come after the file's.
        trust: whether files that are not ours may run code.

    Raises:
        DesignError: the file is no shortlist, or one of its designs cannot be; with the design's name.
    """
    return {name: evaluation for name, (evaluation, _) in _evaluate_designs(path, more, trust=trust).items()}


def _evaluate_designs(path: Path, more: Sequence[str], *, trust: bool) -> dict[str, tuple[Evaluation, dict[str, Any]]]:
    """Each design's answer, and the configuration that it is of."""
    evaluations = {}
    for name, words in _read_designs(path, trust=trust).items():
        try:
            config = compose([*words, *more], trust=trust)
            evaluations[name] = evaluate_config(config), config
        except DesignError as error:
            raise DesignError(f"{path}, design {name}: {error}") from None
    return evaluations


def _read_designs(path: Path, *, trust: bool) -> dict[str, list[str]]:
    import yaml

    root: Any = yaml.safe_load(strangers.read_untrusted_yaml(path, trust=trust))
    if not isinstance(root, dict) or not isinstance(root.get("designs"), dict) or not root["designs"]:
        raise DesignError(f"{path}: no designs; {VALID}")
    for key in root:
        if key != "designs":
            raise DesignError(f"{path}: no field {key!r}; {suggest_nearest(str(key), ('designs',))}")
    for name, words in root["designs"].items():
        if not isinstance(words, list) or not all(isinstance(word, str) for word in words):
            raise DesignError(f"{path}, design {name}: not a list of overrides; {VALID}")
    return {
        str(name): words if trust else strangers.check_stored_overrides(words, f"{path}, design {name}")
        for name, words in root["designs"].items()
    }

"""A field that a file leaves out is what its class means by none, by a table of the classes of Hugging Face Transformers."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from dse.huggingface import model_fields
from dse.huggingface.families import ARCHITECTURES, Family
from dse.space.errors import DesignError
from dse.space.layers import expand_order
from tests.dse.class_defaults import classes, stored

CLASSES: dict[str, dict[str, Any]] = stored()["classes"]
KINDS: dict[str, Family] = {}
for each in ARCHITECTURES.values():
    for word in (each.model_type, *each.others):
        if word in CLASSES:
            KINDS.setdefault(word, each)
SPARE = sorted(kind for kind, family in KINDS.items() if family.defaults)

NEEDED = {
    "bloom": "num_hidden_layers: missing",  # its class is of a toy
    "dbrx": "ffn_config: missing",
    "deepseek_v3": "missing",
    "deepseek_v32": "missing",
    "deepseek_v4": "compress_ratios: missing",
    "gemma4": "hidden_size_per_layer_input: 256 is not understood",
    "gemma4_text": "hidden_size_per_layer_input: 256 is not understood",
    "glm4_moe": "head_dim: missing, and hidden_size",
    "glm4v_moe_text": "head_dim: missing, and hidden_size",
    "granitemoehybrid": "layer_types: missing",
    "nemotron_h": "hybrid_override_pattern: missing",
}
"""Types of which a file must say something though its class has a default, and what is said of one that does not."""

OTHERWISE = {"glm4v_text": {"max_position"}}
"""Types of the same layers as another one, of whose class absent fields are: what differs."""


def entry_of(fields: dict[str, Any], folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    path.write_text(json.dumps(fields))
    return {name: value for name, value in model_fields(path).items() if name != "note"}


@pytest.mark.parametrize("kind", SPARE)
def test_a_file_that_says_nothing_is_the_model_of_its_class(kind: str, tmp_path: Path) -> None:
    settings = {name: value for name, value in CLASSES[kind].items() if name != "hc_mult"} | {"model_type": kind}
    ones = {"hc_mult": 1} if "hc_mult" in CLASSES[kind] else {}
    if kind in NEEDED:
        with pytest.raises(DesignError, match=NEEDED[kind]):
            entry_of({"model_type": kind} | ones, tmp_path)
        return
    spare, full = entry_of({"model_type": kind} | ones, tmp_path), entry_of(settings | ones, tmp_path)
    assert {name for name in full if full[name] != spare.get(name)} <= OTHERWISE.get(kind, set())


@pytest.mark.parametrize("kind", SPARE)
def test_defaults_are_those_of_the_class(kind: str) -> None:
    family: Family = KINDS[kind]
    if kind != family.model_type:
        return
    named = {usual: own for own, usual in family.names.items() if own in CLASSES[kind]}
    for name, value in family.defaults.items():
        own = named.get(name, name)
        if own in CLASSES[kind]:
            assert CLASSES[kind][own] == value, name


def test_layers_of_gemma_4_without_a_list_are_those_of_its_class(tmp_path: Path) -> None:
    """Its class gives wider heads to the layers that see everything, and names these by number."""
    named = CLASSES["gemma4_text"]["per_layer_config"]
    wide = {int(number) for number, own in named.items() if own["head_dim"] == 512}
    for layers in (30, 31, 33):  # the last one sees everything, whatever its number
        said = {"model_type": "gemma4_text", "hidden_size_per_layer_input": 0, "num_hidden_layers": layers}
        entry = entry_of(said, tmp_path)
        turns = expand_order(entry["order"], tuple(entry["kinds"]), layers)
        assert {number for number, kind in enumerate(turns) if kind == "full"} == wide | {layers - 1}


def test_the_table_is_that_of_the_installed_package() -> None:
    if find_spec("transformers") is None:
        pytest.skip("no package transformers; the table is of a version that it names")
    table = classes()
    if table["transformers"] != stored()["transformers"]:
        pytest.skip(f"transformers {table['transformers']}, and the table is of {stored()['transformers']}")
    assert table == stored()

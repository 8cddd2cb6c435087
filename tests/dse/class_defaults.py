"""python -m tests.dse.class_defaults      # writes class_defaults.json

What configuration classes of Hugging Face Transformers mean by absent fields. It needs the package `transformers` (no PyTorch);
the file says of which version it is, and tests read it without the package.
"""

import json
import warnings
from pathlib import Path
from typing import Any

from dse.huggingface.families import ARCHITECTURES

TABLE = Path(__file__).with_name("class_defaults.json")
NOISE = {
    "_name_or_path", "architectures", "attn_implementation", "auto_map", "dtype", "id2label", "label2id", "layer_types",
    "mlp_layer_types", "output_attentions", "output_hidden_states", "problem_type", "return_dict", "torch_dtype",
    "transformers_version",
}  # fmt: skip
"""Of any class, and lists that follow from other fields."""


def classes() -> dict[str, Any]:
    """The fields of each class that the import knows, and the version of the package."""
    import transformers
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    defaults = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for family in ARCHITECTURES.values():
            for kind in (family.model_type, *family.others):
                if kind not in CONFIG_MAPPING:
                    continue
                made = CONFIG_MAPPING[kind]()
                fields = (getattr(made, "text_config", None) or made).to_dict()
                defaults[kind] = {name: _plain(fields[name]) for name in sorted(fields.keys() - NOISE)}
    return {"transformers": transformers.__version__, "classes": defaults}


def _plain(value: Any) -> Any:
    """A value as a file would have it."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items() if name not in NOISE}
    return None if value in (float("inf"), float("-inf")) else value


def stored() -> dict[str, Any]:
    """The table as it was last written."""
    document: dict[str, Any] = json.loads(TABLE.read_text())
    return document


if __name__ == "__main__":
    table = classes()
    rows = ",\n".join(f"{json.dumps(kind)}: {json.dumps(fields)}" for kind, fields in sorted(table["classes"].items()))
    TABLE.write_text(f'{{"transformers": "{table["transformers"]}", "classes": {{\n{rows}\n}}}}\n')

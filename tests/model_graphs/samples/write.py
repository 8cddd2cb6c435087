"""Write the sample graphs beside this file: small models and layers, exported by PyTorch, without values of weights.

Run by hand in an environment of its own, which the tests do not need:

    pip install torch==2.13.0 transformers onnx onnxscript
    python tests/model_graphs/samples/write.py

Weights are drawn at random before export, since exporters merge weights of equal values.
"""

import io
import json
import sys
import warnings
import zipfile
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import Tensor, nn
from transformers import (
    DeepseekV3Config,
    DeepseekV3ForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MixtralConfig,
    MixtralForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

HERE = Path(__file__).parent
COMMON: dict[str, Any] = {"vocab_size": 320, "max_position_embeddings": 512, "attn_implementation": "sdpa"}
GROUPED: dict[str, Any] = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 6, "num_key_value_heads": 2}


class Logits(nn.Module):
    """A model as a function of token ids alone."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        return self.model(input_ids=ids, use_cache=False).logits


class TwoAttentions(nn.Module):
    """A layer of no known family: attention of all heads to a window, of one KV head to all, mixed by a learned gate."""

    def __init__(self, hidden: int = 48, heads: int = 4, dim: int = 12, wide: int = 100) -> None:
        super().__init__()
        self.heads, self.dim = heads, dim
        self.norm, self.after = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.near, self.far = nn.Linear(hidden, 3 * heads * dim, bias=False), nn.Linear(hidden, (heads + 2) * dim, bias=False)
        self.mix, self.out = nn.Linear(hidden, 1, bias=False), nn.Linear(heads * dim, hidden, bias=False)
        self.up, self.down = nn.Linear(hidden, wide), nn.Linear(wide, hidden)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, _ = x.shape
        normed = self.norm(x)
        q, k, v = self.near(normed).view(batch, tokens, 3 * self.heads, self.dim).transpose(1, 2).split(self.heads, 1)
        places = torch.arange(tokens)
        mask = (places[:, None] >= places[None, :]) & (places[None, :] > places[:, None] - 64)
        near = nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        far = self.far(normed).view(batch, tokens, self.heads + 2, self.dim).transpose(1, 2)
        q, k, v = far.split((self.heads, 1, 1), 1)
        shape = batch, self.heads, tokens, self.dim
        far = nn.functional.scaled_dot_product_attention(q, k.expand(shape), v.expand(shape), is_causal=True)
        share = torch.sigmoid(self.mix(normed))[:, None]
        mixed = share * near + (1 - share) * far
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, tokens, -1))
        return x + self.down(torch.sinh(self.up(self.after(x))))


class WrittenOut(nn.Module):
    """A layer of one attention with its softmax, a layer norm and a plain FFN written out in small operators."""

    def __init__(self, hidden: int = 32, heads: int = 4) -> None:
        super().__init__()
        self.heads = heads
        self.first, self.second = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
        self.up, self.down = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        batch, tokens, hidden = x.shape
        qkv = self.qkv(self.first(x)).view(batch, tokens, 3, self.heads, hidden // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4).unbind(0)
        scores = torch.einsum("bhqd,bhkd->bhqk", q, k) / (hidden // self.heads) ** 0.5
        mask = torch.ones(tokens, tokens, dtype=torch.bool).tril()
        scores = scores.masked_fill(~mask, float("-inf")).softmax(-1)
        x = x + self.out((scores @ v).transpose(1, 2).reshape(batch, tokens, hidden))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


class WithCache(nn.Module):
    """A layer of attention to cached keys and values beside new ones, and a gated FFN, as inference engines run it."""

    def __init__(self, hidden: int = 48, heads: int = 6, kv_heads: int = 2, dim: int = 10, wide: int = 70) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.dim = heads, kv_heads, dim
        self.norm, self.after = nn.RMSNorm(hidden), nn.RMSNorm(hidden)
        self.q, self.out = nn.Linear(hidden, heads * dim, bias=False), nn.Linear(heads * dim, hidden, bias=False)
        self.k, self.v = nn.Linear(hidden, kv_heads * dim, bias=False), nn.Linear(hidden, kv_heads * dim, bias=False)
        self.gate, self.up = nn.Linear(hidden, wide, bias=False), nn.Linear(hidden, wide, bias=False)
        self.down = nn.Linear(wide, hidden, bias=False)

    def forward(self, x: Tensor, past_k: Tensor, past_v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        normed = self.norm(x)
        q = self.q(normed).unflatten(-1, (self.heads, self.dim)).transpose(1, 2)
        k = self.k(normed).unflatten(-1, (self.kv_heads, self.dim)).transpose(1, 2)
        v = self.v(normed).unflatten(-1, (self.kv_heads, self.dim)).transpose(1, 2)
        k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
        seen = nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)
        x = x + self.out(seen.transpose(1, 2).flatten(2))
        normed = self.after(x)
        return x + self.down(nn.functional.silu(self.gate(normed)) * self.up(normed)), k, v


class CountedRows(nn.Module):
    """A layer whose shapes depend on values: rows above zero alone are multiplied."""

    def __init__(self, hidden: int = 16) -> None:
        super().__init__()
        self.product = nn.Linear(hidden, hidden)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.view(-1, x.shape[-1])
        chosen = (rows[:, 0] > 0).nonzero()[:, 0]
        return x + rows.index_add(0, chosen, self.product(rows[chosen])).view(x.shape)


def models() -> dict[str, nn.Module]:
    """Models by the name of their files."""
    deepseek = DeepseekV3Config(
        hidden_size=48, intermediate_size=112, moe_intermediate_size=40, num_hidden_layers=3, first_k_dense_replace=1,
        num_attention_heads=4, num_key_value_heads=4, n_routed_experts=8, num_experts_per_tok=2, n_shared_experts=2, n_group=4,
        topk_group=2, q_lora_rank=36, kv_lora_rank=28, qk_nope_head_dim=12, qk_rope_head_dim=8, v_head_dim=16, **COMMON,
    )  # fmt: skip
    windows: dict[str, Any] = {"intermediate_size": 88, "head_dim": 12, "sliding_window": 64}
    gemma = Gemma2Config(**windows, **GROUPED, **COMMON | {"attn_implementation": "eager"})
    return {
        "llama": LlamaForCausalLM(LlamaConfig(intermediate_size=136, head_dim=8, **GROUPED, **COMMON)),
        "qwen3": Qwen3ForCausalLM(
            Qwen3Config(intermediate_size=104, head_dim=20, tie_word_embeddings=True, **GROUPED, **COMMON)
        ),
        "mixtral": MixtralForCausalLM(
            MixtralConfig(intermediate_size=72, num_local_experts=8, num_experts_per_tok=3, **GROUPED, **COMMON)
        ),
        "deepseek": DeepseekV3ForCausalLM(deepseek),
        "gemma2": Gemma2ForCausalLM(gemma),
    }


def published_models() -> dict[str, nn.Module]:
    """Models of published sizes with two layers, on a device without memory."""
    common: dict[str, Any] = {"num_hidden_layers": 2, "attn_implementation": "sdpa"}
    grouped = common | {"num_attention_heads": 32, "num_key_value_heads": 8, "hidden_size": 4096}
    deepseek = DeepseekV3Config(first_k_dense_replace=1, vocab_size=129280, **common)  # its other defaults are as published
    with torch.device("meta"):
        return {
            "llama3_8b": LlamaForCausalLM(LlamaConfig(intermediate_size=14336, vocab_size=128256, **grouped)),
            "qwen3_8b": Qwen3ForCausalLM(Qwen3Config(intermediate_size=12288, head_dim=128, vocab_size=151936, **grouped)),
            "mixtral_8x7b": MixtralForCausalLM(MixtralConfig(intermediate_size=14336, vocab_size=32000, **grouped)),
            "deepseek_v3": DeepseekV3ForCausalLM(deepseek),
        }


def layers() -> dict[str, nn.Module]:
    """Layers by the name of their files."""
    return {"two_attentions": TwoAttentions(), "written_out": WrittenOut(), "counted_rows": CountedRows()}


def export(name: str, module: nn.Module, example: Tensor, formats: tuple[str, ...]) -> None:
    """Export a module in some formats, without values of weights; core is .pt2 in the core operators of PyTorch."""
    for value in (*module.parameters(), *module.buffers()):
        if value.is_floating_point():
            nn.init.normal_(value)
    sizes = {0: torch.export.Dim("batch", min=1, max=64), 1: torch.export.Dim("tokens", min=2, max=512)}
    module = module.eval()
    argument = next(iter(module.forward.__annotations__))
    if "pt2" in formats:
        with torch.no_grad():
            program = torch.export.export(module, (example,), dynamic_shapes={argument: sizes}, strict=False)
        save(program, name)
        if "core" in formats:
            save(program.run_decompositions(), f"{name}_core")
    if "onnx" in formats:
        with torch.no_grad():
            made = torch.onnx.export(module, (example,), dynamic_shapes={argument: sizes}, dynamo=True)
        strip_onnx(made.model_proto, HERE / f"{name}.onnx")


def save(program: Any, name: str) -> None:
    """Save an exported program without values of weights."""
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    strip_program(buffer, HERE / f"{name}.pt2")


def export_with_cache() -> None:
    """Export the layer with cached keys and values in both formats."""
    batch, tokens, past = (torch.export.Dim(name, min=2, max=512) for name in ("batch", "tokens", "past"))
    example = torch.zeros(2, 3, 48), torch.zeros(2, 2, 5, 10), torch.zeros(2, 2, 5, 10)
    sizes = {"x": {0: batch, 1: tokens}, "past_k": {0: batch, 2: past}, "past_v": {0: batch, 2: past}}
    layer = WithCache().eval()
    with torch.no_grad():
        save(torch.export.export(layer, example, dynamic_shapes=sizes), "with_cache")
        made = torch.onnx.export(layer, example, dynamic_shapes=sizes, dynamo=True)
    strip_onnx(made.model_proto, HERE / "with_cache.onnx")


def strip_program(buffer: io.BytesIO, path: Path) -> None:
    """A saved program without values, pickles, stack traces and the names of this machine."""
    with zipfile.ZipFile(buffer) as archive, zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as stripped:
        for name in sorted(archive.namelist()):
            if name.endswith(("_config.json", "archive_format", "archive_version")):
                write(stripped, name, archive.read(name))
            elif "/models/" in name:
                program = json.loads(archive.read(name))
                for node in program["graph_module"]["graph"]["nodes"]:
                    node["metadata"] = {}
                write(stripped, name, json.dumps(program, separators=(",", ":")).encode())


def write(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    """Add a file with a fixed date, so that equal content makes equal archives."""
    archive.writestr(zipfile.ZipInfo("sample/" + name.partition("/")[2], (1980, 1, 1, 0, 0, 0)), content, zipfile.ZIP_DEFLATED)


def strip_onnx(model: Any, path: Path) -> None:
    """An ONNX file without values of weights and notes of the exporter."""
    for tensor in model.graph.initializer:
        if sum(tensor.dims) > 8:
            tensor.ClearField("raw_data")
    for part in (*model.graph.node, *model.graph.value_info, *model.graph.initializer, *model.graph.input, *model.graph.output):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    del model.graph.metadata_props[:]
    del model.metadata_props[:]
    path.write_bytes(model.SerializeToString(deterministic=True))


def main() -> None:
    """Write all samples, or those that are named."""
    warnings.filterwarnings("ignore")
    torch.manual_seed(0)
    assert onnx.__version__
    for name, model in models().items():
        if len(sys.argv) < 2 or name in sys.argv[1:]:
            formats = (
                ("pt2", "core", "onnx") if name in ("llama", "qwen3") else ("pt2",)
            )  # no ONNX operator for grouped experts
            export(name, Logits(model), torch.zeros(2, 8, dtype=torch.long), formats)
    for name, model in published_models().items():
        if len(sys.argv) < 2 or name in sys.argv[1:]:
            export(name, Logits(model), torch.zeros(2, 8, dtype=torch.long, device="meta"), ("pt2",))
    if len(sys.argv) < 2 or "with_cache" in sys.argv[1:]:
        export_with_cache()
    for name, layer in layers().items():
        if len(sys.argv) < 2 or name in sys.argv[1:]:
            formats = ("pt2",) if name == "counted_rows" else ("pt2", "onnx")
            export(name, layer, torch.zeros(2, 8, next(layer.parameters()).shape[-1]), formats)


if __name__ == "__main__":
    main()

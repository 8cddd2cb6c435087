"""The kinds of input that strangers give, each with sound samples and the command line that reads one."""

import contextlib
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

from tests.fuzz.mutations import mutated

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Kind:
    """Inputs of one kind.

    Attributes:
        samples: what is mutated.
        put: lays an input into a folder and returns the words of the command that reads it, without ``dse``.
        change: of a sample; bytes are mutated by default.
    """

    samples: Callable[[], list[bytes]]
    put: Callable[[Path, bytes, Random], list[str]]
    change: Callable[[bytes, list[bytes], Random], bytes] = mutated


def _files(*patterns: str) -> list[bytes]:
    return [path.read_bytes() for pattern in patterns for path in sorted(ROOT.glob(pattern))]


def _overrides() -> list[bytes]:
    """Lines that are sound: those of the fuzzing tests' corpus, and one of each kind of chip and workload."""
    lines = [
        "chip.cores=512 chip.l2.size='64 MB' mapping.prefill.tp=8",
        "model=[llama3_8b,qwen2_7b] workload.batch=[16,32] workload.prompt=1024 workload.output=256",
        "chip=wse2 model=llama3_8b workload.batch=[1] mapping.decode.ktree_k=3",
        "chip=npu64 model=qwen3_4b workload.batch=[16] mapping.prefill.partition=mn mapping.both.tp=4",
        "chip=tile32 workload=attention mapping.dataflow=flash2",
        "chip=wse2 workload=gemm workload.shapes=[8192x8192x8192] mapping.gemm=cannon mapping.rows=600",
        "chip=hbm3 workload=stream workload.patterns=[sequential,stride1024]",
        "chip=a100 workload=serving workload.rate='20 Hz' workload.requests=9 workload.output=9 "
        "mapping.serving.policy=chunked_prefill",
        "chip=wse2 workload=serving workload.requests=9 workload.output=9 mapping.serving.policy=orca",
        "'+constraints.tpot=\"<= 20 ms\"' +objectives.tpot=min +space.chip.cores=range(100,601,50)",
        "chip.hbm.bandwidth='2.4 TB/s' technology@chip.technology=n7 +chip.core.matrix.note=mine",
        "chip=npu64 model=qwen3_4b chip.hbm.bandwidth='30 GB/s' +space.chip.hbm.bandwidth='tag(GB/s,choice(30,60))'",
        "chip=a100 stack=tuned chip.network.achieved=0.5 mapping.stack.operator_launch='1 us'",
        "chip=mesh8 workload=traffic workload.traffic=[uniform] workload.rates=[0.1] --cfg job",
    ]
    return [line.encode() for line in lines]


def _put_overrides(folder: Path, data: bytes, rng: Random) -> list[str]:
    import shlex

    text = data.replace(b"\0", b"").decode("utf-8", "surrogateescape")
    try:
        return ["evaluate", *shlex.split(text)]
    except ValueError:  # no closing quote: a shell would not start the command either
        return ["evaluate", *text.split()]


YAMLS = {
    "chip": ("npu_dse", "ascend910b", "a100", "wse2", "npu64", "tile_gh200"),
    "model": ("llama3_8b", "mixtral_8x7b", "qwen3_30b_a3b", "deepseek_v2_lite"),
    "mapping": ("tensor_parallel", "sglang"),
    "stack": ("tuned", "sglang_he2025"),
    "space": ("quickstart", "l2_prefetch", "devices"),
    "workload": ("static",),
}
"""Groups, and the files of each that go with the chip and the workload that nobody chooses."""


def _yaml() -> list[bytes]:
    own = b"chip\ndefaults: [npu_dse, _self_]\ncores: 512\nhbm: {bandwidth: {value: '2.4 TB/s', source: assumed, note: mine}}\n"
    study = (
        b"study\ndefaults:\n  - override /model: [llama3_8b, qwen2_7b]\n  - override /space: quickstart\nquestion: which?\n"
        b"workload: {batch: [16], prompt: [1024], output: [256]}\nobjectives: {throughput_per_system_mm2: max, tpot: min}\n"
        b"constraints: {tpot: '<= 20 ms'}\nmapping: {prefill: {tp: 4}}\nsearch: {budget: 40}\n"
    )
    files = [
        f"{group}\n".encode() + (ROOT / f"conf/{group}/{name}.yaml").read_bytes()
        for group, names in YAMLS.items()
        for name in names
    ]
    old = b"chip\ndefaults: [npu_dse, _self_]\ncore: {achieved: 0.5}\nnetwork: {call: 9 us}\noperator_overhead: 2 us\n"
    return [own, own, own, old, study, study, study, *files]


def _changed_yaml(data: bytes, others: list[bytes], rng: Random) -> bytes:
    group, _, text = data.partition(b"\n")
    return group + b"\n" + mutated(text, others, rng)


def _put_yaml(folder: Path, data: bytes, rng: Random) -> list[str]:
    group, _, text = data.partition(b"\n")
    name = group.decode()
    if name == "study":
        (folder / "studies/mine").mkdir(parents=True)
        (folder / "studies/mine/study.yaml").write_bytes(text)
        return ["evaluate", "study=mine"]
    (folder / name).mkdir()
    (folder / name / "mine.yaml").write_bytes(text)
    return ["evaluate", "--config-dir=.", f"{name}=mine"]


CLAIMS = """\
id,where,claim,row,overrides,baseline,metric,value,unit,tolerance,reader,missing,sweep,mechanism
a,table 1,Quick,,workload.batch=[1],workload.batch=[2],ttft,0.4..0.6,ratio,,,,,
b,table 2,Quick,,workload.batch=[1],,ttft,3,ms,0.2,workload.batch=[4],batch,"workload.batch={[1],[2]}",as made
"""
"""A sound file of claims."""


def _csv() -> list[bytes]:
    rows = "".join(f"{0.25 * i},{100 + 37 * i},{5 + 3 * i}\n" for i in range(12))
    azure = "".join(f"2023-11-16 18:15:{46 + i}.6805900,{374 + i},{44 - i}\n" for i in range(12))
    vidur = "".join(f"{i},{i}.5,{3000 + i},{10 + i},{3010 + 2 * i},9.5\n" for i in range(12))
    lines = (ROOT / "studies/preserve_table1/published.csv").read_bytes().splitlines(keepends=True)
    return [
        b"trace\narrival,prompt,output\n" + rows.encode(),
        b"trace\nTIMESTAMP,ContextTokens,GeneratedTokens\n" + azure.encode(),
        b"lengths\nprompt,output\n" + "".join(f"{100 + 37 * i},{5 + i}\n" for i in range(12)).encode(),
        b"lengths\nid,arrived_at,num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n" + vidur.encode(),
        b"published\n" + b"".join(lines[:3]),
        b"claims\n" + CLAIMS.encode(),
    ]


def _put_rows(folder: Path, data: bytes, rng: Random) -> list[str]:
    use, _, rows = data.partition(b"\n")
    (folder / "rows.csv").write_bytes(rows)
    if use == b"published":
        return ["validate", "rows.csv"]
    if use == b"claims":
        return ["validate", "--claims", "rows.csv"]
    if use == b"lengths":
        return ["evaluate", "workload.lengths=rows.csv", "workload.batch=[8]", "workload.requests=8"]
    return ["evaluate", "workload=serving", "workload.trace=rows.csv", "workload.arrivals=trace", "workload.requests=null"]


def _jsonl() -> list[bytes]:
    mooncake = "".join(
        f'{{"timestamp": {3000 * i}, "input_length": {700 + i}, "output_length": {20 + i}, "hash_ids": [0, {i}]}}\n'
        for i in range(10)
    )
    other = "".join(
        f'{{"input_toks": {100 + i}, "output_toks": {9 + i}, "arrival_time_ns": {i * 10**8}, "input_tok_ids": [1, 2]}}\n'
        for i in range(10)
    )
    return [b"trace\n" + mooncake.encode(), b"trace\n" + other.encode()]


def _put_lines(folder: Path, data: bytes, rng: Random) -> list[str]:
    (folder / "rows.jsonl").write_bytes(data.partition(b"\n")[2])
    return ["evaluate", "workload=serving", "workload.trace=rows.jsonl", "workload.arrivals=trace", "workload.requests=null"]


def _put_config(folder: Path, data: bytes, rng: Random) -> list[str]:
    (folder / "config.json").write_bytes(data)
    return ["evaluate", "model.from_hf=config.json"]


@cache
def _ran() -> tuple[bytes, bytes]:
    """The store of a small study that ran, and its definition."""
    import os
    import tempfile

    from tests.fuzz.play import played

    definition = (
        b"defaults:\n  - override /space: l2_prefetch\nworkload: {batch: [16], prompt: [1024], output: [64]}\n"
        b"objectives: {throughput_per_system_mm2: max, tpot: min}\nscreen: {run: false}\n"
        b"search: {sampler: random, budget: 12}\n"
    )
    current_folder = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            _study(Path(folder), definition)
            ended = played(["run", "study=small", "workers=serial"])
            if ended.code:
                raise RuntimeError(ended.error)
            with sqlite3.connect("runs/small/results.sqlite") as store:
                store.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                store.execute("PRAGMA journal_mode=DELETE")
            store.close()
            return Path("runs/small/results.sqlite").read_bytes(), definition
        finally:
            os.chdir(current_folder)


def _study(folder: Path, definition: bytes) -> None:
    (folder / "studies/small").mkdir(parents=True)
    (folder / "studies/small/study.yaml").write_bytes(definition)


def _changed_store(data: bytes, others: list[bytes], rng: Random) -> bytes:
    """Bytes of the file, or a cell of a table as somebody's program would write it."""
    import tempfile

    if rng.random() < 0.6:
        return mutated(data, others, rng)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store"
        path.write_bytes(data)
        store = sqlite3.connect(path)
        tables = [
            name for (name,) in store.execute("select name from sqlite_master where type='table' and name not like 'sqlite%'")
        ]
        table = rng.choice(tables)
        columns = [row[1] for row in store.execute(f"pragma table_info({table})")]
        column = rng.choice(columns)
        cells = list(store.execute(f'select rowid, "{column}" from "{table}"'))
        if cells:
            rowid, value = rng.choice(cells)
            new = mutated(str(value).encode(), [str(cell).encode() for _, cell in cells], rng)
            with contextlib.suppress(sqlite3.Error):  # a number that may be no text
                store.execute(
                    f'update or ignore "{table}" set "{column}"=? where rowid=?', (new.decode("utf-8", "replace"), rowid)
                )
        store.commit()
        store.close()
        return path.read_bytes()


def _put_store(folder: Path, data: bytes, rng: Random) -> list[str]:
    _study(folder, _ran()[1])
    (folder / "runs/small").mkdir(parents=True)
    (folder / "runs/small/results.sqlite").write_bytes(data)
    lines = (["show", "small"], ["export", "small", "--to", "csv"], ["export", "small", "--to", "json"], ["report", "small"])
    named = rng.choice(("1", "#2", "1f3a09c27b", "0" * 32, "é"))
    why = (["explain", "small"], ["explain", "small", "--design", named], ["whynot", "small"])
    return rng.choice((*lines, *why, ["run", "study=small", "workers=serial"], ["list"]))


def _urls() -> list[bytes]:
    return [
        b"sqlite:///results.sqlite",
        b"sqlite:////tmp/none/results.sqlite?mode=ro",
        b"postgresql://me:open%20sesame@127.0.0.1:9/results",
        b"postgresql+psycopg://me@127.0.0.1:9/results?connect_timeout=1&sslmode=disable",
        b"runs/small/results.sqlite",
        b"postgresql://127.0.0.1:9/results?user=me&password=sesame",
    ]


def _put_url(folder: Path, data: bytes, rng: Random) -> list[str]:
    _study(folder, _ran()[1])
    url = data.replace(b"\0", b"").decode("utf-8", "surrogateescape")
    lines = (["show", "small", f"store={url}"], ["export", "small", f"store={url}"], ["report", "small", f"store={url}"])
    return rng.choice((*lines, ["run", "study=small", "workers=serial", "search.budget=4", f"search.warm_start=[{url}]"]))


KINDS = {
    "overrides": Kind(_overrides, _put_overrides),
    "yaml": Kind(_yaml, _put_yaml, _changed_yaml),
    "csv": Kind(_csv, _put_rows, lambda data, others, rng: _changed_yaml(data, others, rng)),
    "jsonl": Kind(_jsonl, _put_lines, lambda data, others, rng: _changed_yaml(data, others, rng)),
    "hf": Kind(lambda: _files("tests/dse/hf/*.json"), _put_config),
    "store": Kind(lambda: [_ran()[0]], _put_store, _changed_store),
    "url": Kind(_urls, _put_url),
}
"""By name; tests and the command go through all of them."""

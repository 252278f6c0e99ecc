"""Everything that only a GPU can settle, in one command without a network.

python bench/device_check.py --out build/device-check

Builds the kernels for the GPU that is here, runs the tests that need one, times each kernel
against torch, cupy and the bandwidth floor (CUDA events, cold L2, median), and compares the memory
that an index and a backward pass take with what was estimated. Writes device_check.json and
device_check.md. Needs torch with CUDA, nvcc, scikit-build-core and pybind11; uses cupy,
transformers and compute-sanitizer where they are. Steps that the time limit (480 s) leaves no room
for are named.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 480.0
RUNS = 30
FLUSH_BYTES = 512 << 20  # more than any L2
SEARCHES = [
    (100_000, 384, 1), (100_000, 384, 4), (100_000, 384, 64), (1_000_000, 384, 1),
    (1_000_000, 384, 64), (100_000, 1536, 1), (100_000, 1536, 64),
]  # fmt: skip
STORAGES = ("float32", "float32+int8", "bf16")


def timed(torch: Any, work: Callable[[], Any], flush: Any) -> float:
    """Median milliseconds on the device, with a cold L2."""
    for _ in range(3):
        work()
    spent = []
    for _ in range(RUNS):
        flush.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        work()
        end.record()
        torch.cuda.synchronize()
        spent.append(begin.elapsed_time(end))
    return statistics.median(spent)


def bandwidth(torch: Any) -> float:
    """Bytes per second of a copy, read and write together."""
    source = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    flush = torch.empty(1, device="cuda")
    ms = timed(torch, lambda: target.copy_(source), flush)
    return 2.0 * source.numel() / (ms / 1e3)


def torch_search(torch: Any, rows: Any, inverse: Any, both: Any, k: int) -> Any:
    """The peer: one product for both scores, min-max, fusion, top k."""
    scores = rows @ both
    batch = scores.shape[1] // 2
    cos, rie = scores[:, :batch] * inverse[:, None], scores[:, batch:]
    fused = 0.0
    for part in (cos, rie):
        low, high = part.amin(0), part.amax(0)
        fused = fused + 0.5 * (part - low) / (high - low)
    return torch.topk(fused, k, dim=0)


def time_searches(torch: Any, rate: float, left: Callable[[], float]) -> list[dict[str, Any]]:
    """Fused top-10 of an index on the device, and its peers."""
    import numpy as np
    import riemem

    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    results = []
    for n, d, batch in SEARCHES:
        if left() < 60:
            results.append({"n": n, "d": d, "batch": batch, "skipped": "no time left"})
            continue
        rng = np.random.default_rng(n + d + batch)
        host = rng.standard_normal((n, d), dtype=np.float32)
        queries = torch.from_numpy(rng.standard_normal((batch, d), dtype=np.float32)).cuda()
        rows = torch.from_numpy(host).cuda()
        inverse = 1.0 / rows.norm(dim=1)
        both = torch.cat([queries, queries]).T.contiguous()
        peer_arrays = (torch, rows, inverse, both, 10)
        peer = timed(torch, lambda a=peer_arrays: torch_search(*a), flush)
        entry: dict[str, Any] = {"n": n, "d": d, "batch": batch, "torch_ms": peer}
        entry["cupy_ms"] = time_cupy(rows, both)
        for storage in STORAGES:
            index = riemem.RiemannianIndex(
                d, storage=storage, form="inner", norm="minmax", cosine_weight=0.5, device="cuda"
            )
            index.add(host)
            wide = {"float32": 4, "float32+int8": 1, "bf16": 2}[storage]
            found = index.search(queries, 10)
            plain = riemem.RiemannianIndex(d, form="inner", norm="minmax", cosine_weight=0.5)
            if n <= 100_000 and batch <= 4:  # the answer, once, against the processor
                plain.add(host)
                same = plain.search(queries.cpu().numpy(), 10).indices
                entry[f"{storage}_agrees"] = bool((found.indices.cpu().numpy() == same).all())
            entry[f"{storage}_ms"] = timed(torch, lambda i=index, q=queries: i.search(q, 10), flush)
            entry[f"{storage}_floor_ms"] = n * d * wide / rate * 1e3
            del index
        results.append(entry)
    return results


def time_cupy(rows: Any, both: Any) -> float | None:
    """cupy's product of the same arrays, or None without cupy."""
    try:
        import cupy
    except ImportError:
        return None
    left, right = cupy.from_dlpack(rows), cupy.from_dlpack(both)
    spent = []
    for _ in range(RUNS):
        begin, end = cupy.cuda.Event(), cupy.cuda.Event()
        begin.record()
        left @ right
        end.record()
        end.synchronize()
        spent.append(cupy.cuda.get_elapsed_time(begin, end))
    return statistics.median(spent)


def time_others(torch: Any, rate: float) -> list[dict[str, Any]]:
    """The other kernels against torch, answers compared in float64 first."""
    from riemem._backend import cuda_module
    from riemem._device import Torch, span

    module, library = cuda_module(), Torch()
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    results = []

    def add(name: str, ours: Callable[[], Any], peer: Callable[[], Any], size: int, off: float):
        results.append(
            {
                "kernel": name,
                "ours_ms": timed(torch, ours, flush),
                "torch_ms": timed(torch, peer, flush),
                "floor_ms": size / rate * 1e3,
                "largest_difference": off,
            }
        )

    stream = torch.cuda.current_stream().cuda_stream
    b, d = 4096, 384
    x = torch.randn(b, d, device="cuda")
    zero = torch.zeros(d, dtype=torch.float64, device="cuda")
    total, square = zero.clone(), torch.zeros(d, d, dtype=torch.float64, device="cuda")

    def scatter() -> None:
        module.scatter_add(
            span(library, x), False, b, d, d, span(library, zero), 1.0, span(library, total),
            span(library, square), stream,
        )  # fmt: skip

    scatter()
    wide = x.double()
    off = float((square.tril() - (wide.T @ wide).tril()).abs().max())
    add("scatter_add 4096 x 384", scatter, lambda: wide.T @ wide, x.nbytes, off)
    g, h = torch.randn(2048, 576, device="cuda"), torch.randn(2048, 576, device="cuda")
    norms = torch.empty(2048, dtype=torch.float64, device="cuda")

    def sensitivity() -> None:
        module.token_sensitivity(
            span(library, g), 576, span(library, h), 576, 2048, 576, span(library, norms), stream
        )

    sensitivity()
    expected = (g * h).double().square().sum(-1).sqrt()
    off = float((norms - expected).abs().max())
    add(
        "token_sensitivity 2048 x 576", sensitivity,
        lambda: (g * h).double().square().sum(-1).sqrt(), g.nbytes + h.nbytes, off,
    )  # fmt: skip
    basis = torch.randn(4096, 96, dtype=torch.float64, device="cuda")
    turn = torch.randn(96, 64, dtype=torch.float64, device="cuda")
    out = torch.empty(4096, 64, dtype=torch.float64, device="cuda")

    def rotate() -> None:
        module.svd_rotate(
            span(library, basis), 4096, 96, span(library, turn), 64, span(library, out), stream
        )

    rotate()
    off = float((out - basis @ turn).abs().max())
    size = basis.nbytes + turn.nbytes + out.nbytes
    add("svd_rotate 4096 x 96 x 64", rotate, lambda: basis @ turn, size, off)
    return results


def index_memory(torch: Any) -> list[dict[str, Any]]:
    """What an index takes on the device, and what it says it takes."""
    import numpy as np
    import riemem

    results = []
    for storage in STORAGES:
        torch.cuda.empty_cache()
        free = torch.cuda.mem_get_info()[0]
        before = torch.cuda.memory_allocated()
        index = riemem.RiemannianIndex(384, storage=storage, device="cuda")
        index.reserve(200_000)
        index.add(np.random.default_rng(0).standard_normal((200_000, 384), dtype=np.float32))
        index.search(torch.randn(16, 384, device="cuda"), 10)
        torch.cuda.synchronize()
        results.append(
            {
                "storage": storage,
                "estimated_bytes": index.stats()["device_nbytes"],
                "held_bytes": torch.cuda.memory_allocated() - before,
                "peak_bytes": torch.cuda.max_memory_allocated() - before,
                "device_bytes": free - torch.cuda.mem_get_info()[0],
            }
        )
        del index
    return results


def pass_memory(torch: Any) -> list[dict[str, Any]]:
    """Peak of one backward pass to the embeddings, random weights, against the formula."""
    try:
        from transformers import LlamaConfig, LlamaForCausalLM
    except ImportError:
        return [{"skipped": "transformers is not installed"}]
    from riemem.vram import ModelSpec, pass_bytes

    sizes = {
        "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
    }  # fmt: skip
    config = LlamaConfig(**sizes, tie_word_embeddings=True)
    spec = ModelSpec.from_config(config.to_dict())
    results = []
    for dtype in ("float32", "bfloat16"):
        model = LlamaForCausalLM(config).to("cuda", getattr(torch, dtype)).eval()
        model.requires_grad_(False)
        for tokens in (512, 1024):
            ids = torch.randint(0, 49152, (1, tokens), device="cuda")
            embeddings = model.get_input_embeddings()(ids).detach().requires_grad_(True)
            torch.cuda.reset_peak_memory_stats()
            before = torch.cuda.memory_allocated()
            model(inputs_embeds=embeddings, labels=ids, use_cache=False).loss.backward()
            torch.cuda.synchronize()
            results.append(
                {
                    "dtype": dtype,
                    "tokens": tokens,
                    "estimated_bytes": pass_bytes(spec, tokens, dtype),
                    "peak_bytes": torch.cuda.max_memory_allocated() - before,
                }
            )
        del model
        torch.cuda.empty_cache()
    return results


def measure(deadline: float) -> dict[str, Any]:
    """What runs in a process of its own, with the build that was just made."""
    import riemem
    import torch

    if not riemem.build_info()["cuda"]:
        raise SystemExit(f"no kernels: {riemem.build_info()['cuda_reason']}")

    def left() -> float:
        return deadline - time.time()

    rate = bandwidth(torch)
    return {
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "copy_bytes_per_s": rate,
        "searches": time_searches(torch, rate, left),
        "others": time_others(torch, rate),
        "index_memory": index_memory(torch),
        "pass_memory": pass_memory(torch) if left() > 45 else [{"skipped": "no time left"}],
    }


def run(command: list[str], seconds: float, **environment: str) -> dict[str, Any]:
    """Run one step; its end of output and its time are part of the result."""
    if seconds < 5:
        return {"skipped": "no time left"}
    begin = time.monotonic()
    try:
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, **environment}, timeout=seconds, check=False,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        code, output = done.returncode, done.stdout
    except subprocess.TimeoutExpired as error:
        code, output = 124, str(error.stdout or "")
    spent = time.monotonic() - begin
    return {"code": code, "seconds": round(spent, 1), "output": output}


def markdown(result: dict[str, Any]) -> str:
    """The tables, as bench/README.md has them."""
    lines = [f"{name}: {step}" for name, step in result["summary"].items()]
    measured = result.get("measured") or {}
    if measured:
        rate = measured["copy_bytes_per_s"] / 1e9
        lines += ["", f"{measured['device']}, torch {measured['torch']}, copy {rate:.0f} GB/s", ""]
        heads = ["N x d", "B", *STORAGES, "floor float32", "floor int8", "torch", "cupy product"]
        lines += ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
        for row in measured["searches"]:
            keys = [f"{storage}_ms" for storage in STORAGES]
            keys += ["float32_floor_ms", "float32+int8_floor_ms", "torch_ms", "cupy_ms"]
            cells = [f"{row[key]:.3f}" if row.get(key) is not None else "-" for key in keys]
            lines.append(
                f"| {row['n']} x {row['d']} | {row['batch']} | " + " | ".join(cells) + " |"
            )
        for name in ("others", "index_memory", "pass_memory"):
            table = [row for row in measured[name] if "skipped" not in row]
            if not table:
                lines += ["", f"{name}: {measured[name]}"]
                continue
            lines += ["", "| " + " | ".join(table[0]) + " |", "|---" * len(table[0]) + "|"]
            for row in table:
                cells = [f"{v:.4g}" if isinstance(v, float) else str(v) for v in row.values()]
                lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Run the steps in order; exit code 1 when a test failed or nothing could be measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "device-check")
    parser.add_argument("--measure", type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure is not None:
        print(json.dumps(measure(options.measure)))
        return 0
    end = time.monotonic() + LIMIT_S

    def left() -> float:
        return end - time.monotonic()

    try:
        import torch
    except ImportError:
        raise SystemExit("device_check needs torch with CUDA") from None
    if not torch.cuda.is_available():
        raise SystemExit("device_check needs a GPU: torch.cuda.is_available() is False")
    options.out.mkdir(parents=True, exist_ok=True)
    site = options.out / "site"
    major, minor = torch.cuda.get_device_capability()
    build = [
        sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index",
        "--no-build-isolation", "--upgrade", "--target", str(site), ".",
        "-C", "cmake.define.RIEMEM_CUDA=ON",
        "-C", f"cmake.define.RIEMEM_CUDA_ARCHITECTURES={major}{minor}",
    ]  # fmt: skip
    tests = [sys.executable, "-m", "pytest", "-q", "-m", "cuda", "tests/cuda/test_gpu.py"]
    steps: dict[str, Any] = {"build": run(build, min(left(), 200))}
    path = {"PYTHONPATH": str(site)}
    steps["tests"] = run(tests, min(left(), 90), **path)
    deadline = time.time() + left() - 75
    measuring = [sys.executable, str(Path(__file__).resolve()), "--measure", str(deadline)]
    steps["measure"] = run(measuring, left() - 65, **path)
    measured = None
    if steps["measure"].get("code") == 0:
        full = steps["measure"]["output"]
        begin = full.find('{"device"')
        measured = json.loads(full[begin:]) if begin >= 0 else None
    checker = shutil.which("compute-sanitizer")
    if checker is not None:
        few = [*tests, "-k", "bits and float32 and 4"]
        steps["compute-sanitizer"] = run([checker, "--error-exitcode", "9", *few], left(), **path)
    else:
        steps["compute-sanitizer"] = {"skipped": "not installed"}
    summary = {
        name: step.get("skipped") or f"exit code {step['code']} in {step['seconds']} s"
        for name, step in steps.items()
    }
    for step in steps.values():
        step["output"] = step.get("output", "")[-3000:]
    result = {"summary": summary, "steps": steps, "measured": measured}
    (options.out / "device_check.json").write_text(json.dumps(result, indent=1) + "\n")
    text = markdown(result)
    (options.out / "device_check.md").write_text(text)
    print(text)
    return 0 if steps["tests"].get("code") == 0 and measured is not None else 1


if __name__ == "__main__":
    sys.exit(main())

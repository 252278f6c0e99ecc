"""What bench/device_check.py measures: times beside torch, cupy and the bandwidth floor; memory.

Every part is measured for itself, and what it found is written before the next begins: a part that
fails or runs out of time takes no other with it. Nothing here knows whether the device is a real
one; `Clock` does, so that tests can run all of it on the SIMT shim.
"""

from __future__ import annotations

import json
import statistics
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import riemem
from riemem.distill import kernels

RUNS = 30
K = 10
SIZES = [(100_000, 384, (1, 4, 64)), (1_000_000, 384, (1, 64)), (100_000, 1536, (1, 64))]
STORAGES = {"float32": 4, "float32+int8": 1, "bf16": 2}  # and the bytes that a scan reads
_FLUSH_BYTES = 512 << 20  # more than any L2
_AHEAD_CYCLES = 4_000_000  # about 2 ms: the processor is done queueing before the clock starts

Left = Callable[[], float]


class Clock:
    """Times and memory of the current CUDA device."""

    device = "cuda"

    def __init__(self, torch: Any) -> None:
        self.torch, self.cuda = torch, torch.cuda
        size = min(_FLUSH_BYTES, self.free_bytes() // 8)
        self._flush = torch.empty(size, dtype=torch.uint8, device=self.device)

    def name(self) -> str:
        return str(self.cuda.get_device_name())

    def milliseconds(self, work: Callable[[], Any], runs: int = RUNS) -> float:
        """Median on the device, L2 cold, of what was queued before the clock started."""
        for _ in range(3):
            work()
        spent = []
        for _ in range(runs):
            self._flush.zero_()
            begin, end = (self.cuda.Event(enable_timing=True) for _ in range(2))
            self.cuda._sleep(_AHEAD_CYCLES)
            begin.record()
            work()
            end.record()
            self.cuda.synchronize()
            spent.append(begin.elapsed_time(end))
        return statistics.median(spent)

    def wait(self) -> None:
        self.cuda.synchronize()

    def free_bytes(self) -> int:
        return int(self.cuda.mem_get_info()[0])

    def allocated(self) -> int:
        return int(self.cuda.memory_allocated())

    def reset_peak(self) -> None:
        self.cuda.empty_cache()
        self.cuda.reset_peak_memory_stats()

    def peak(self) -> int:
        return int(self.cuda.max_memory_allocated())


class Report:
    """What was measured so far, in a file that is complete at any time."""

    def __init__(self, path: Path, left: Left) -> None:
        self.path, self.left = path, left
        self.found: dict[str, Any] = {}

    def save(self) -> None:
        partial = self.path.with_suffix(".part")
        partial.write_text(json.dumps(self.found, indent=1) + "\n")
        partial.replace(self.path)

    def rows(self, name: str, parts: Iterator[Callable[[], dict[str, Any]]]) -> None:
        """Add one row for each part; one that fails says so in its place."""
        held: list[dict[str, Any]] = self.found.setdefault(name, [])
        while True:
            if self.left() < 10:
                held.append({"skipped": "no time left"})
                break
            begin = time.monotonic()
            try:
                part = next(parts, None)
                if part is None:
                    break
                held.append({**part(), "spent_s": round(time.monotonic() - begin, 1)})
            except ImportError as error:
                ours = str(error.name).startswith("riemem")  # a name that is there no more
                held.append({"failed" if ours else "skipped": f"needs {error.name}: {error}"})
            except Exception as error:  # whatever a driver or a library may say
                held.append({"failed": f"{type(error).__name__}: {error}"})
                traceback.print_exc()
                if getattr(error, "code", 2) != 2:  # but for a full device nothing runs any more
                    break
            self.save()
        self.save()


def bandwidth(clock: Clock) -> float:
    """Bytes per second of a copy, read and write together."""
    torch = clock.torch
    size = min(1 << 30, clock.free_bytes() // 8)
    source = torch.ones(size, dtype=torch.uint8, device=clock.device)
    target = torch.empty_like(source)
    return 2.0 * size / (clock.milliseconds(lambda: target.copy_(source)) / 1e3)


def torch_search(torch: Any, rows: Any, inverse: Any, both: Any) -> Any:
    """The peer: one product for both scores, min-max, fusion, top k."""
    scores = rows @ both
    batch = scores.shape[1] // 2
    fused = 0.0
    for part in (scores[:, :batch] * inverse[:, None], scores[:, batch:]):
        low, high = part.amin(0), part.amax(0)
        fused = fused + 0.5 * (part - low) / (high - low)
    return torch.topk(fused, K, dim=0)


def cupy_product(rows: Any, both: Any) -> dict[str, Any]:
    """cupy's product of the same arrays, or why there is none."""
    try:
        import cupy

        left, right = cupy.from_dlpack(rows), cupy.from_dlpack(both)
        flush = cupy.empty(_FLUSH_BYTES // 8, cupy.int64)
        spent = []
        for _ in range(RUNS + 3):
            flush.fill(0)
            begin, end = cupy.cuda.Event(), cupy.cuda.Event()
            begin.record()
            left @ right
            end.record()
            end.synchronize()
            spent.append(float(cupy.cuda.get_elapsed_time(begin, end)))
        return {"cupy_ms": statistics.median(spent[3:])}
    except Exception as error:  # cupy for another CUDA fails in many ways
        return {"cupy_ms": None, "cupy": f"{type(error).__name__}: {error}"}


class Search:
    """Rows of one size, in every storage of an index, and as torch holds them."""

    options: ClassVar[dict[str, Any]] = {"form": "inner", "norm": "minmax", "cosine_weight": 0.5}

    def __init__(self, clock: Clock, n: int, d: int) -> None:
        self.clock, self.n, self.d = clock, n, d
        self.rng = np.random.default_rng(n + d)
        self.host = self.rng.standard_normal((n, d), dtype=np.float32)
        self.rows = clock.torch.from_numpy(self.host).to(clock.device)
        self.narrow, self.inverse = self.rows.bfloat16(), 1.0 / self.rows.norm(dim=1)
        self.plain = riemem.RiemannianIndex(d, **self.options)
        self.plain.add(self.host)
        self.metric = riemem.FisherMetric.fit(self.host[:2000])
        self.indexes = {}
        for storage in STORAGES:
            index = riemem.RiemannianIndex(d, storage=storage, device="cuda", **self.options)
            index.add(self.host)
            self.indexes[storage] = index

    def measure(self, batch: int, rate: float) -> dict[str, Any]:
        """One row of the table: answers compared with the processor's before they are timed."""
        clock, torch = self.clock, self.clock.torch
        asked = self.rng.standard_normal((batch, self.d), dtype=np.float32)
        queries = torch.from_numpy(asked).to(clock.device)
        both = torch.cat([queries, queries]).T.contiguous()
        entry: dict[str, Any] = {"n": self.n, "d": self.d, "batch": batch}
        entry["torch_ms"] = clock.milliseconds(
            lambda: torch_search(torch, self.rows, self.inverse, both)
        )
        entry.update(cupy_product(self.rows, both))
        expected = self.plain.search(asked, K)
        for storage, wide in STORAGES.items():
            index = self.indexes[storage]
            found = index.search(asked, K)
            entry[f"{storage}_same_bits"] = bool(
                (found.indices == expected.indices).all()
                and found.scores.tobytes() == expected.scores.tobytes()
            )
            entry[f"{storage}_ms"] = clock.milliseconds(lambda i=index: i.search(queries, K))
            entry[f"{storage}_floor_ms"] = self.n * self.d * wide / rate * 1e3
        entry["search_bfloat16_tensor_ms"] = clock.milliseconds(
            lambda: riemem.search(queries, self.narrow, self.metric, K, **self.options)
        )
        return entry


def searches(clock: Clock, rate: float, sizes: Any) -> Iterator[Callable[[], dict[str, Any]]]:
    """Fused top 10 of an index on the device, and its peers; one row for each batch."""
    for n, d, batches in sizes:
        held = Search(clock, n, d)
        for batch in batches:
            yield lambda h=held, b=batch: h.measure(b, rate)


def row(
    clock: Clock, name: str, ours: Callable[[], Any], peer: Callable[[], Any], size: float,
    off: float, runs: int = RUNS,
) -> dict[str, Any]:  # fmt: skip
    """One kernel beside torch; `size` is the milliseconds of the floor."""
    return {
        "kernel": name,
        "ours_ms": clock.milliseconds(ours, runs),
        "torch_ms": clock.milliseconds(peer, runs),
        "floor_ms": size,
        "largest_difference": off,
    }


def others(clock: Clock, rate: float, scale: int) -> Iterator[Callable[[], dict[str, Any]]]:
    """The other kernels, through the public functions; answers compared with float64 first."""
    torch, device = clock.torch, clock.device
    generator = torch.Generator(device=device).manual_seed(1)

    def normal(*shape: int, kind: Any = None) -> Any:
        return torch.randn(*shape, device=device, dtype=kind, generator=generator)

    def moments() -> dict[str, Any]:
        x = normal(4096 // scale, 384 // scale)
        wide = x.double()
        metric = riemem.FisherMetric.fit(x)
        centred = wide - wide.mean(0)
        covariance = (centred.T @ centred / len(x)).cpu().numpy()
        off = float(np.abs(metric.covariance_matrix() - covariance).max())
        ours = lambda: metric.update(x)  # noqa: E731
        peer = lambda: (wide.sum(0), wide.T @ wide)  # noqa: E731
        name = f"FisherMetric.update {tuple(x.shape)}"
        return row(clock, name, ours, peer, x.nbytes / rate * 1e3, off)

    def fisher(batch: int) -> dict[str, Any]:
        n, d = 100_000 // scale**2, 384 // scale
        h, q = normal(n, d), normal(batch, d)
        v = normal(n, d).abs() + 0.5
        p = 1.0 / v
        heat = float(d)
        weighted, own = p * h, (p * h * h).sum(1)

        def peer() -> Any:
            distance = (q * q) @ p.T - 2.0 * (q @ weighted.T) + own
            return torch.topk(torch.exp(-distance / heat), K)

        found = riemem.fisher_rao_search(q, h, v, K, temperature=heat)
        exact = torch.exp(-(((q[0].double() - h) ** 2) / v.double()).sum(1) / heat)
        off = float((found.scores[0] - torch.topk(exact, K).values).abs().max())
        ours = lambda: riemem.fisher_rao_search(q, h, v, K, temperature=heat)  # noqa: E731
        name = f"fisher_rao_search {n} x {d}, B = {batch}"
        return row(clock, name, ours, peer, (h.nbytes + v.nbytes) / rate * 1e3, off)

    def tokens() -> dict[str, Any]:
        g, h = normal(2048 // scale, 576 // scale), normal(2048 // scale, 576 // scale)
        plain = lambda: (g * h).double().square().sum(-1).sqrt()  # noqa: E731
        off = float((kernels.row_norms(g, h) - plain()).abs().max())
        name = f"token sensitivity {tuple(g.shape)}"
        ours = lambda: kernels.row_norms(g, h)  # noqa: E731
        return row(clock, name, ours, plain, 2 * g.nbytes / rate * 1e3, off)

    def turn() -> dict[str, Any]:
        rows, d = normal(4096 // scale, 384 // scale, kind=torch.float64), 384 // scale
        svd = riemem.IncrementalSVD(d, max_rank=32).partial_fit(rows[: 2 * d])
        basis = torch.from_numpy(svd.basis.copy()).to(device)
        off = float((svd.transform(rows) - rows @ basis).abs().max())
        size = rows.nbytes + 8 * len(rows) * svd.rank
        ours, peer = (lambda: svd.transform(rows)), (lambda: rows @ basis)
        name = f"IncrementalSVD.transform {tuple(rows.shape)} x {svd.rank}"
        return row(clock, name, ours, peer, size / rate * 1e3, off)

    def update() -> dict[str, Any]:
        d = 4096 // scale**2
        batches = [normal(64 // scale, d) for _ in range(6)]
        here, there = riemem.IncrementalSVD(d, max_rank=32), riemem.IncrementalSVD(d, max_rank=32)
        spent = []
        for batch in batches:
            here.partial_fit(batch.cpu().numpy())
            clock.wait()
            begin = time.perf_counter()
            there.partial_fit(batch)
            clock.wait()
            spent.append((time.perf_counter() - begin) * 1e3)
        off = float(np.abs(here.singular_values / there.singular_values - 1.0).max())
        whole = torch.cat(batches)
        return {
            "kernel": f"IncrementalSVD.partial_fit {tuple(batches[0].shape)} (waits; wall clock)",
            "ours_ms": statistics.median(spent[1:]),
            "torch_ms": clock.milliseconds(lambda: torch.linalg.svd(whole, full_matrices=False), 5),
            "floor_ms": 8 * d * 128 / rate * 1e3,
            "largest_difference": off,
        }

    def atoms() -> dict[str, Any]:
        d, held, fresh = 384 // scale, 4096 // scale**2, 128 // scale
        rows = normal(held + fresh, d)
        here = riemem.MaxMemberClusters(d, threshold=0.9)
        base = riemem.MaxMemberClusters(d, threshold=0.9)
        here.assign(rows.cpu().numpy())
        base.assign(rows[:held])
        found = base.assign(rows[held:]).labels.cpu().numpy()
        off = float((found != here.labels[held:]).sum())
        unit = torch.nn.functional.normalize(rows)
        ours = lambda: base.nearest(rows[held:])  # noqa: E731
        peer = lambda: [(unit[:held] @ x).max(0) for x in unit[held:]]  # noqa: E731
        size = fresh * held * d * (4 + 8) / rate * 1e3  # members, and sums of as many atoms
        name = f"MaxMemberClusters.nearest, {fresh} rows of {d} against {held}"
        return row(clock, name, ours, peer, size, off, 5)

    yield moments
    yield lambda: fisher(1)
    yield lambda: fisher(16)
    yield tokens
    yield turn
    yield update
    yield atoms


def index_memory(clock: Clock, n: int, d: int) -> Iterator[Callable[[], dict[str, Any]]]:
    """What an index takes on the device, and what it says it takes."""

    def one(storage: str) -> dict[str, Any]:
        clock.reset_peak()
        free, before = clock.free_bytes(), clock.allocated()
        index = riemem.RiemannianIndex(d, storage=storage, device="cuda")
        index.reserve(n)
        index.add(np.random.default_rng(0).standard_normal((n, d), dtype=np.float32))
        index.search(clock.torch.randn(16, d, device=clock.device), K)
        clock.wait()
        return {
            "storage": storage,
            "estimated_bytes": index.stats()["device_nbytes"],
            "held_bytes": clock.allocated() - before,
            "peak_bytes": clock.peak() - before,
            "device_bytes": free - clock.free_bytes(),
        }

    for storage in STORAGES:
        yield lambda s=storage: one(s)


def pass_memory(
    clock: Clock, sizes: dict[str, int], lengths: tuple[int, ...]
) -> Iterator[Callable[[], dict[str, Any]]]:
    """Peak of the distiller's pass with random weights, against the estimate, for its plans.

    The sizes are those of the local language model; weights do not matter for memory.
    """
    from riemem.distill.fisher import _gradient, _layers_run
    from riemem.vram import ModelSpec, pass_bytes
    from transformers import LlamaConfig, LlamaForCausalLM

    torch = clock.torch
    config = LlamaConfig(**sizes, tie_word_embeddings=True)
    spec = ModelSpec.from_config(config.to_dict())

    def one(model: Any, dtype: str, tokens: int, chunk: int, checkpoint: bool) -> dict[str, Any]:
        rows = torch.randint(0, sizes["vocab_size"], (1, tokens), device=clock.device)
        leaf = model.get_input_embeddings()(rows).detach().requires_grad_(True)
        clock.reset_peak()
        before = clock.allocated()
        with torch.enable_grad(), _layers_run(model, checkpoint, None):
            gradient, _ = _gradient(model, leaf, rows, 1, chunk, True)
        norms = kernels.row_norms(gradient[0], leaf.detach()[0])
        clock.wait()
        estimated = pass_bytes(spec, tokens, dtype, chunk_rows=chunk, checkpoint=checkpoint)
        peak = clock.peak() - before
        return {
            "dtype": dtype, "tokens": tokens, "chunk": chunk, "checkpoint": checkpoint,
            "estimated_bytes": estimated, "peak_bytes": peak,
            "peak_over_estimate": round(peak / estimated, 3),
            "finite": bool(torch.isfinite(norms).all()),
        }  # fmt: skip

    for dtype in ("float32", "bfloat16"):
        model = LlamaForCausalLM(config).to(clock.device, getattr(torch, dtype)).eval()
        model.requires_grad_(False)
        for tokens in lengths:
            for chunk, checkpoint in ((tokens, False), (256, False), (256, True)):
                yield lambda m=model, t=dtype, n=tokens, c=chunk, k=checkpoint: one(m, t, n, c, k)


LOCAL_MODEL = {
    "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30,
    "num_attention_heads": 9, "num_key_value_heads": 3, "vocab_size": 49152,
}  # fmt: skip


def measure(path: Path, deadline: float) -> None:
    """Measure everything until `deadline`, seconds since the epoch, and write it to `path`."""
    import torch

    if not riemem.build_info()["cuda"]:
        raise SystemExit(f"no kernels: {riemem.build_info()['cuda_reason']}")
    report = Report(path, lambda: deadline - time.time())
    clock = Clock(torch)
    report.found.update(device=clock.name(), torch=torch.__version__, riemem=riemem.__file__)
    rate = bandwidth(clock)
    report.found["copy_bytes_per_s"] = rate
    report.save()
    # The cheap ones first: each is worth more than the last large search.
    report.rows("others", others(clock, rate, 1))
    report.rows("index_memory", index_memory(clock, 200_000, 384))
    report.rows("pass_memory", pass_memory(clock, LOCAL_MODEL, (512, 1024)))
    report.rows("searches", searches(clock, rate, SIZES))

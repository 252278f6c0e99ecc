"""Bytes and reconstruction errors of every form in which atoms can be stored.

    python bench/bench_atom_storage.py                       a made-up stream of 400 tight groups
    python bench/bench_atom_storage.py FILE --cache FOLDER   the turns of a LoCoMo or RealMem file

Errors are Euclidean distances between a unit vector and what comes back; "top-10" is the share
of a vector's ten nearest by cosine that are among the ten nearest of what comes back (200 seeded
rows). "summary" keeps no rows, only what their coefficients are like.
"""

from __future__ import annotations

import argparse
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from riemem.clustering import LargeAtomWarning, MaxMemberClusters
from riemem.store.atoms import THRESHOLD

FORMS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("float32", {}),
    ("int8", {}),
    ("basis, rank 4", {"rank": 4}),
    ("basis, energy 0.9", {"energy": 0.9}),
    ("basis, energy 0.9, int8", {"energy": 0.9, "bases": "int8"}),
    ("basis, energy 0.99", {"energy": 0.99}),
    ("summary, energy 0.9", {"energy": 0.9}),
    ("pq, 48 bytes", {"subspaces": 48}),
    ("pq, 96 bytes", {"subspaces": 96}),
)


def made_up(n: int = 10_000, dim: int = 384, atoms: int = 400, noise: float = 0.02) -> np.ndarray:
    """The stream of bench_max_member.py: the same groups and noise."""
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(atoms, dim))
    centres /= np.linalg.norm(centres, axis=1, keepdims=True)
    rows = centres[generator.integers(atoms, size=n)] + noise * generator.normal(size=(n, dim))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def turns_of(file: Path, cache: Path | None) -> np.ndarray:
    """Every turn of a benchmark file as MiniLM sees it."""
    from riemem.embed import load_embedder
    from riemem.evaluation.packing_eval import stream_vectors
    from riemem.evaluation.packing_streams import load_streams

    model = load_embedder(None)
    _, _, streams = load_streams(file)
    return np.concatenate([rows for rows, _ in stream_vectors(streams, model, cache=cache)])


def nearest(rows: np.ndarray, asked: np.ndarray) -> np.ndarray:
    unit = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12)
    scores = unit[asked] @ unit.T
    scores[np.arange(asked.size), asked] = -np.inf
    return np.argsort(-scores, axis=1, kind="stable")[:, :10]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("file", type=Path, nargs="?")
    parser.add_argument("--cache", type=Path)
    parser.add_argument("--threshold", type=float, default=None)
    given = parser.parse_args()
    rows = made_up() if given.file is None else turns_of(given.file, given.cache)
    threshold = given.threshold or (0.8 if given.file is None else THRESHOLD)
    clusters = MaxMemberClusters(rows.shape[1], threshold=threshold)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", LargeAtomWarning)
        clusters.assign(rows)
    asked = np.random.default_rng(0).choice(len(rows), min(200, len(rows)), replace=False)
    truth = nearest(clusters.vectors(), asked)
    print(
        f"{len(rows)} rows x {rows.shape[1]}, threshold {threshold}: {clusters.atom_count} atoms, "
        f"the largest {clusters.largest_share:.1%}"
    )
    print(
        f"{'form':26}{'bytes a row':>12}{'of float32':>12}{'mean error':>12}{'max':>8}{'top-10':>8}"
    )
    for name, options in FORMS:
        made = clusters.compress(name.split(",")[0], **options)
        per_row = made.nbytes / len(rows)
        recall = "-"
        if not name.startswith("summary"):
            got = nearest(made.reconstruct(), asked)
            hits = [len(set(a) & set(b)) for a, b in zip(truth, got, strict=True)]
            recall = f"{np.mean(hits) / 10:.3f}"
        print(
            f"{name:26}{per_row:12.1f}{per_row / (4 * rows.shape[1]):12.3f}"
            f"{made.mean_error:12.4f}{made.max_error:8.3f}{recall:>8}"
        )


if __name__ == "__main__":
    main()

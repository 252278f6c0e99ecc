"""Choose the threshold and the layout of atoms, leaving one conversation out at a time.

    riemem eval packing locomo_dev.json --json > packing.json
    python bench/choose_atoms.py packing.json

Two choices, each made on all streams but one and measured on that one. The layout (flat, or
grouped at a threshold) is the one with the largest share of the evidence inside the budgets. The
threshold is the one at which atoms say most about evidence: the share of pairs of evidence turns
of one question that are in one atom, less the share of all pairs that are (Youden's J). Evidence
inside a budget cannot choose it: the fewer turns are grouped, the fewer headers are paid for.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np


def leave_one_out(names: list[str], values: np.ndarray) -> tuple[list[int], np.ndarray]:
    """Return for each stream what the others choose, and its own value there."""
    chosen = [int(np.argmax(np.delete(values, i, axis=0).mean(axis=0))) for i in range(len(values))]
    return chosen, values[np.arange(len(values)), chosen]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("report", type=Path)
    report = json.loads(parser.parse_args().report.read_text())
    streams = list(dict.fromkeys(entry["stream"] for entry in report["streams"]))
    found = {(entry["stream"], entry["name"]): entry for entry in report["streams"]}
    print(", ".join(f"{key} {value}" for key, value in report["data"].items()))

    names = [n for s, n in found if s == streams[0] and n.startswith("grouped, max_member ")]
    names = ["flat", *names]
    shares = np.array([[found[s, n]["share"] for n in names] for s in streams])
    chosen, own = leave_one_out(names, shares)
    print("\nevidence inside the budgets (mean), layout chosen on the other streams:")
    for stream, choice, value, flat in zip(streams, chosen, own, shares[:, 0], strict=True):
        print(f"  {stream:12} {names[choice]:28} {value:.4f}  (flat {flat:.4f})")
    print(f"  {'mean':12} {'':28} {own.mean():.4f}  (flat {shares[:, 0].mean():.4f})")

    taus = [n for n in names if n.startswith("grouped, max_member 0")]
    if any(found[s, taus[0]]["gold_pairs"] is None for s in streams):
        print("\nno pairs of evidence turns in this data: the threshold cannot be chosen on it")
        return
    together = np.array(
        [[found[s, n]["gold_pairs"] - found[s, n]["all_pairs"] for n in taus] for s in streams]
    )
    chosen, own = leave_one_out(taus, together)
    print("\npairs of evidence turns in one atom less all pairs, by threshold:")
    print(
        " " * 12 + "".join(f"{n.rsplit(' ', 1)[1]:>8}" for n in taus) + "    chosen on the others"
    )
    for stream, row, choice, value in zip(streams, together, chosen, own, strict=True):
        cells = "".join(f"{cell:8.3f}" for cell in row)
        print(f"{stream:12}{cells}    {taus[choice].rsplit(' ', 1)[1]}: {value:.3f}")
    print(
        f"{'mean':12}"
        + "".join(f"{c:8.3f}" for c in together.mean(axis=0))
        + f"    {own.mean():.3f}"
    )
    largest = [np.mean([found[s, n]["largest_share"] for s in streams]) for n in taus]
    print("largest atom" + "".join(f"{share:8.2f}" for share in largest))


if __name__ == "__main__":
    main()

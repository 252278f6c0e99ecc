"""Registers, spills and shared memory of every CUDA kernel, as ptxas reports them.

python bench/cuda_resources.py --arch 80 --arch 90        needs nvcc and no GPU
python bench/cuda_resources.py --module _cuda.so          what cuobjdump says of a built module
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_ENTRY = re.compile(r"Compiling entry function '(?P<name>\S+)' for 'sm_(?P<arch>\w+)'")
_SPILL = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")
_SHARED = re.compile(r"(\d+) bytes smem")


@dataclass
class Kernel:
    """What one kernel takes on one architecture."""

    source: str
    name: str
    arch: str
    registers: int = 0
    shared: int = 0
    stack: int = 0
    spills: int = 0


def demangle(names: list[str]) -> list[str]:
    """Kernel names as they are written, template arguments included."""
    tool = shutil.which("c++filt") or shutil.which("cu++filt")
    if tool is None:
        return names
    done = subprocess.run(
        [tool], input="\n".join(names), capture_output=True, text=True, check=True
    )
    short = []
    for line in done.stdout.splitlines():
        bare = re.sub(
            r"\(anonymous namespace\)::|_GLOBAL__N__\w+::|riemem::cuda::|^void ", "", line
        )
        short.append(bare.split("(")[0])
    return short


def measure(source: Path, arch: str) -> list[Kernel]:
    """Compile one file for one architecture and read what ptxas says."""
    command = [
        "nvcc", "-std=c++20", "-O3", "-fmad=false", f"-arch=sm_{arch}", "-Xptxas", "-v",
        "-Werror", "all-warnings", f"-I{ROOT / 'csrc'}", "-cubin", "-o", "/dev/null", str(source),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{source.name} for sm_{arch}:\n{done.stderr}")
    kernels: list[Kernel] = []
    for line in done.stderr.splitlines():
        if found := _ENTRY.search(line):
            kernels.append(Kernel(source.name, found["name"], found["arch"]))
        elif kernels and (found := _SPILL.search(line)):
            kernels[-1].stack = int(found[1])
            kernels[-1].spills = int(found[2]) + int(found[3])
        elif kernels and (found := _USED.search(line)):
            kernels[-1].registers = int(found[1])
            shared = _SHARED.search(line)
            kernels[-1].shared = int(shared[1]) if shared else 0
    return kernels


def inspect(module: Path) -> int:
    """Print what each kernel of a built module takes; exit code 1 when one uses local memory."""
    tool = shutil.which("cuobjdump")
    if tool is None:
        raise SystemExit("cuobjdump was not found: put the CUDA toolkit's binaries on PATH")
    done = subprocess.run(
        [tool, "-res-usage", str(module)], capture_output=True, text=True, check=True
    )
    arch, name, found = "", "", []
    for line in done.stdout.splitlines():
        if matched := re.match(r"arch = (\w+)", line):
            arch = matched[1]
        elif matched := re.match(r" Function (\S+):", line):
            name = matched[1]
        elif matched := _USAGE.search(line):
            found.append((arch, name, *map(int, matched.groups())))
    print("| arch | kernel | registers | stack bytes | shared bytes | local bytes |")
    print("|---" * 6 + "|")
    names = demangle([entry[1] for entry in found])
    for name, entry in sorted(zip(names, found, strict=True), key=lambda pair: pair[::-1]):
        numbers = " | ".join(map(str, entry[2:]))
        print(f"| {entry[0]} | `{name}` | {numbers} |")
    local = sum(entry[-1] > 0 for entry in found)
    print(f"\n{len(found)} kernels, {local} of them use local memory")
    return 1 if local or not found else 0


def main() -> int:
    """Print one row for each kernel; exit code 1 when any of them spills."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", action="append", help="such as 80; may be given several times")
    parser.add_argument("--module", type=Path, help="a built riemem._cuda to look into")
    options = parser.parse_args()
    if options.module is not None:
        return inspect(options.module)
    if shutil.which("nvcc") is None:
        raise SystemExit("nvcc was not found: put the CUDA toolkit on PATH")
    archs = options.arch or ["80", "90"]
    sources = sorted((ROOT / "csrc" / "kernels").glob("*/*.cu"))
    kernels = [kernel for source in sources for arch in archs for kernel in measure(source, arch)]
    names = demangle([kernel.name for kernel in kernels])
    table: dict[tuple[str, str], dict[str, Kernel]] = {}
    for kernel, name in zip(kernels, names, strict=True):
        table.setdefault((kernel.source, name), {})[kernel.arch] = kernel
    heads = " | ".join(f"registers sm_{arch}" for arch in archs)
    print(f"| file | kernel | {heads} | shared bytes | spilled bytes |")
    print("|---" * (4 + len(archs)) + "|")
    spilling = 0
    for (source, name), by_arch in sorted(table.items()):
        held = list(by_arch.values())
        registers = " | ".join(str(by_arch[arch].registers) for arch in archs)
        spills = max(kernel.spills for kernel in held)
        spilling += spills > 0
        shared = max(kernel.shared for kernel in held)
        print(f"| {source} | `{name}` | {registers} | {shared} | {spills} |")
    print(f"\n{len(table)} kernels, {spilling} of them spill")
    return 1 if spilling else 0


if __name__ == "__main__":
    sys.exit(main())

"""Everything that only a GPU can settle, in one command without a network.

python bench/device_check.py --out build/device-check

Builds the kernels for the GPU that is here, runs the tests that need one, times each kernel
against torch, cupy and the bandwidth floor (CUDA events, cold L2, median), and compares the memory
that an index and the distiller's pass take with what was estimated. Writes device_check.json and
device_check.md, also when a step failed. Needs torch with CUDA, nvcc, CMake, ninja,
scikit-build-core, pybind11, pytest and hypothesis; uses cupy, transformers and compute-sanitizer
where they are.
After 480 s whatever still runs is ended, and named.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LIMIT_S = 480.0
BUILD_S, TESTS_S, SANITIZER_S, WRITE_S = 210.0, 90.0, 60.0, 8.0
LEAST_S = 5.0  # no step is begun with less
NEEDED = ("torch", "numpy", "scikit_build_core", "pybind11", "pytest", "hypothesis")
_DEVICE = (
    "import json, torch; c = torch.cuda; print(json.dumps([c.is_available(), torch.__version__] + "
    "(list(c.get_device_capability()) if c.is_available() else [])))"
)


def run(command: list[str], seconds: float, **environment: str) -> dict[str, Any]:
    """Run one step, and end it with all it started when its time is up."""
    if seconds < LEAST_S:
        return {"skipped": "no time left"}
    begin = time.monotonic()
    # A file and not a pipe: a grandchild that lives on would keep the pipe open.
    log = Path(environment.pop("LOG"))
    with log.open("w+b") as output:
        process = subprocess.Popen(
            command, cwd=ROOT, env={**os.environ, **environment}, stdout=output,
            stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            code = process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            code = 124
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    spent = time.monotonic() - begin
    text = log.read_bytes().decode(errors="replace")
    return {"code": code, "seconds": round(spent, 1), "output": text[-3000:]}


def find_nvcc() -> str | None:
    """The compiler: on PATH, where the variables point, or in its usual places."""
    candidates = [os.environ.get("CUDACXX"), shutil.which("nvcc")]
    homes = (os.environ.get(variable) for variable in ("CUDA_HOME", "CUDA_PATH"))
    candidates += [os.path.join(home, "bin", "nvcc") for home in homes if home]
    candidates += ["/usr/local/cuda/bin/nvcc", "/opt/cuda/bin/nvcc"]
    candidates += [str(path) for path in sorted(Path("/usr/local").glob("cuda-*/bin/nvcc"))]
    return next((path for path in candidates if path and Path(path).is_file()), None)


def missing() -> list[str]:
    """Packages that the check cannot do without."""
    return [name for name in NEEDED if find_spec(name) is None]


def cells_of(values: Any) -> str:
    """One line of a table."""
    return "| " + " | ".join(
        f"{v:.4g}" if isinstance(v, float) else "-" if v is None else str(v) for v in values
    ) + " |"  # fmt: skip


def markdown(result: dict[str, Any]) -> str:
    """The tables, as bench/README.md has them."""
    lines = [f"- {name}: {step}" for name, step in result["summary"].items()]
    measured = result.get("measured") or {}
    if "copy_bytes_per_s" in measured:
        rate = measured["copy_bytes_per_s"] / 1e9
        lines += ["", f"{measured['device']}, torch {measured['torch']}, copy {rate:.0f} GB/s"]
    rows = [row for row in measured.get("searches", []) if "n" in row]
    if rows:
        names = ("float32", "float32+int8", "bf16")
        heads = ["N x d", "B", *names, "bfloat16 tensor", "floor float32", "floor int8", "torch"]
        lines += ["", cells_of([*heads, "cupy product", "same bits"])]
        lines.append("|---" * (len(heads) + 2) + "|")
        for row in rows:
            keys = [f"{name}_ms" for name in names] + ["search_bfloat16_tensor_ms"]
            keys += ["float32_floor_ms", "float32+int8_floor_ms", "torch_ms", "cupy_ms"]
            same = all(row.get(f"{name}_same_bits") for name in names)
            values = [f"{row['n']} x {row['d']}", row["batch"], *(row.get(key) for key in keys)]
            lines.append(cells_of([*values, "yes" if same else "NO"]))
    for name, table in measured.items():
        if not isinstance(table, list):
            continue
        for row in table:
            if "skipped" in row or "failed" in row:
                lines += ["", f"{name}: {row}"]
        good = [row for row in table if "skipped" not in row and "failed" not in row]
        if name == "searches" or not good:
            continue
        lines += ["", cells_of(good[0]), "|---" * len(good[0]) + "|"]
        lines += [cells_of(row.values()) for row in good]
    return "\n".join(lines) + "\n"


def steps_of(out: Path, left: Any) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Build, test, measure and check; each is bounded, and none depends on another's success."""
    steps: dict[str, Any] = {}
    site = out / "site"

    def step(name: str, command: list[str], seconds: float, **environment: str) -> dict[str, Any]:
        environment["LOG"] = str(out / f"{name}.log")
        steps[name] = run(command, min(seconds, left() - WRITE_S), **environment)
        return steps[name]

    # In a process of its own: this one must hold no context on a device that allows only one.
    asked = step("device", [sys.executable, "-c", _DEVICE], 60)
    try:
        available, _, *capability = json.loads(asked["output"].strip().splitlines()[-1])
    except (KeyError, IndexError, ValueError):
        return steps, None
    if not available:
        asked["code"] = 1
        asked["output"] += "torch.cuda.is_available() is False"
        return steps, None
    nvcc = find_nvcc()
    environment = {} if nvcc is None else {"CUDACXX": nvcc}
    shutil.rmtree(site, ignore_errors=True)
    build = [
        sys.executable, "-m", "pip", "install", "-v", "--no-deps", "--no-index",
        "--no-build-isolation", "--disable-pip-version-check", "--target", str(site), str(ROOT),
        "-C", "cmake.define.RIEMEM_CUDA=ON", "-C", f"build-dir={out / 'build'}",
    ]  # fmt: skip
    one = [*build, "-C", f"cmake.define.RIEMEM_CUDA_ARCHITECTURES={''.join(map(str, capability))}"]
    if step("build", one, BUILD_S, **environment).get("code") not in (0, 124):
        steps["build for this GPU alone"] = steps["build"]  # perhaps newer than the toolkit
        step("build", build, BUILD_S, **environment)
    path = {"PYTHONPATH": str(site), "RIEMEM_NEEDS_GPU": "1"}
    # The suite's own settings turn warnings into errors; a driver's warning is none of ours.
    tests = [
        sys.executable, "-m", "pytest", "-q", "-m", "cuda", "-W", "default", "-p",
        "no:cacheprovider", str(ROOT / "tests" / "cuda" / "test_gpu.py"),
    ]  # fmt: skip
    step("tests", tests, TESTS_S, **path)
    target = out / "measured.json"
    target.unlink(missing_ok=True)
    seconds = left() - SANITIZER_S - WRITE_S
    measuring = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'bench')!r}); from pathlib import Path; "
        f"import device_measure; device_measure.measure(Path({str(target)!r}), "
        f"{time.time() + seconds - 15!r})"
    )
    step("measure", [sys.executable, "-c", measuring], seconds, **path)
    measured = json.loads(target.read_text()) if target.exists() else None
    checker = shutil.which("compute-sanitizer")
    if checker is None:
        steps["compute-sanitizer"] = {"skipped": "not installed"}
    else:
        few = [*tests, "-k", "sanitizer"]
        step("compute-sanitizer", [checker, "--error-exitcode", "9", *few], SANITIZER_S, **path)
    return steps, measured


def main() -> int:
    """Run the steps in order; exit code 1 when one failed or nothing could be measured."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "device-check")
    options = parser.parse_args()
    end = time.monotonic() + LIMIT_S
    lacking = missing()
    if lacking:
        raise SystemExit(f"device_check needs {', '.join(lacking)}, which are not installed")
    out = options.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    steps, measured = steps_of(out, lambda: end - time.monotonic())
    summary = {
        name: step.get("skipped") or f"exit code {step['code']} in {step['seconds']} s"
        for name, step in steps.items()
    }
    result = {"summary": summary, "steps": steps, "measured": measured}
    (out / "device_check.json").write_text(json.dumps(result, indent=1) + "\n")
    text = markdown(result)
    (out / "device_check.md").write_text(text)
    print(text)
    failed = [name for name in ("build", "tests", "measure") if steps.get(name, {}).get("code")]
    failed += [name for name in ("compute-sanitizer",) if steps.get(name, {}).get("code") == 9]
    for name in failed:
        print(f"--- the end of what {name} said\n{steps[name]['output']}")
    broken = any("failed" in row for table in (measured or {}).values()
                 if isinstance(table, list) for row in table)  # fmt: skip
    return 1 if failed or broken or not (measured or {}).get("searches") else 0


if __name__ == "__main__":
    sys.exit(main())

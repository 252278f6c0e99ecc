"""The numeric layer needs numpy and nothing else."""

from __future__ import annotations

import subprocess
import sys
import textwrap

BLOCKED = ["torch", "transformers", "click", "cupy", "mcp", "scipy", "safetensors", "gguf"]


def run(script: str) -> str:
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(script)]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def test_everything_numeric_works_without_the_other_packages():
    out = run(
        f"""
        import sys
        for name in {BLOCKED!r}:
            sys.modules[name] = None
        import numpy as np
        import riemem
        rows = np.random.default_rng(0).normal(size=(200, 16)).astype(np.float32)
        metric = riemem.FisherMetric.fit(rows)
        top = riemem.search(rows[:3], rows, metric, k=5)
        values = riemem.scores(rows[:3], rows, metric)
        index = riemem.RiemannianIndex(16)
        index.add(rows)
        found = index.search(rows[:3], 5)
        truth = riemem.reference.fused_topk(
            rows[:3], rows, metric, 5, cosine_weight=0.0, form="cosine"
        )
        assert (top.indices == truth[0]).all()
        assert top.indices[:, 0].tolist() == found.indices[:, 0].tolist() == [0, 1, 2]
        assert values.shape == (3, 200)
        assert riemem.presets["coremem-fusion"].cosine_weight == 0.5
        assert riemem.build_info()["isa"]
        print("done")
        """
    )
    assert out == "done\n"


def test_import_loads_nothing_heavy_and_starts_no_thread():
    out = run(
        f"""
        import sys, threading
        import riemem
        loaded = sorted(set({BLOCKED!r}) & set(sys.modules))
        print(loaded, threading.active_count())
        """
    )
    assert out == "[] 1\n"


def test_a_compiled_module_of_other_sources_says_that_it_must_be_built_again():
    import pytest
    from riemem import _core
    from riemem._backend import core
    from riemem.errors import BackendUnavailableError

    with pytest.raises(BackendUnavailableError, match=r"no 'new_kernel'.*build it again") as caught:
        core.new_kernel(1)
    assert str(_core.__file__) in str(caught.value)
    assert not hasattr(core, "new_kernel")
    assert not hasattr(core, "__wrapped__")

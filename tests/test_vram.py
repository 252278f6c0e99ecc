"""The memory budget: arithmetic, the ladder, refusals, and enforcement with an injected device."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from riemem._device_memory import _high_water, _malloc_trim
from riemem.errors import ArgumentError, BackendUnavailableError, DTypeError, VramBudgetError
from riemem.vram import CpuMemory, ModelSpec, VramBudget, pass_bytes

SMOL = ModelSpec(
    hidden=576, mlp=1536, layers=30, heads=9, kv_heads=3, head_dim=64, vocabulary=49152
)
QWEN = ModelSpec.from_config(
    {"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072,
     "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
     "head_dim": 128, "vocab_size": 151936, "tie_word_embeddings": True}
)  # fmt: skip
GIB = 2**30


class FakeMemory:
    """A device whose state the test decides on."""

    def __init__(self, total: int, used: int = 0, others: int = 0, overhead: int = 0) -> None:
        self.total, self.used, self.others, self.overhead = total, used, others, overhead
        self.limits: list[int | None] = []
        self.peak = self.trims = 0

    def free_bytes(self) -> int:
        return self.total - self.used - self.others

    def used_bytes(self) -> int:
        return self.used

    def reset_peak(self) -> None:
        self.peak = self.used

    def peak_bytes(self) -> int:
        return self.peak

    def limit(self, fraction_bytes: int | None) -> None:
        self.limits.append(fraction_bytes)

    def overhead_bytes(self) -> int:
        return self.overhead

    def trim(self) -> None:
        self.trims += 1


def budget(limit: int, **state: int) -> VramBudget:
    total = state.pop("total", 10**12)
    return VramBudget(limit, headroom=0.0, memory=FakeMemory(total, **state))


def test_the_formula_gives_what_was_measured() -> None:
    """MiB of tensors by torch's memory profiler, SmolLM2-135M on a CPU."""
    for dtype, tokens, rows, checkpoint, measured in (
        ("bfloat16", 256, 128, False, 162.3),
        ("bfloat16", 512, 128, False, 288.0),
        ("bfloat16", 512, 512, False, 397.7),
        ("bfloat16", 1024, 128, True, 75.4),
        ("float32", 512, 128, False, 456.3),
        ("float32", 512, 128, True, 62.0),
    ):
        estimate = pass_bytes(SMOL, tokens, dtype, chunk_rows=rows, checkpoint=checkpoint)
        assert estimate / 2**20 == pytest.approx(measured, rel=0.05)


def test_a_head_that_the_model_makes_itself_is_not_cut() -> None:
    """With logits in one piece smaller chunks do not help, and the window shrinks instead."""
    whole = pass_bytes(SMOL, 512, "float32", whole_head=True)
    assert whole == pass_bytes(SMOL, 512, "float32", chunk_rows=64, whole_head=True)
    logits = 4 * SMOL.vocabulary * 512
    assert whole == pass_bytes(SMOL, 512, "float32") + 3 * logits
    plan = budget(whole // 3).plan(SMOL, tokens=512, dtype="float32", whole_head=True)
    assert plan.window < 512
    assert budget(whole // 3).plan(SMOL, tokens=512, dtype="float32").window == 512


def test_parameters_are_those_of_the_models() -> None:
    assert SMOL.parameters == 134_515_008
    assert QWEN.parameters == pytest.approx(596_049_920, rel=1e-3)


def test_the_ladder_is_walked_down() -> None:
    seen = []
    need = pass_bytes(SMOL, 2048, "bfloat16")
    for limit in (need, need * 3 // 4, need // 3, need // 8, need // 20, need // 40):
        plan = budget(limit).plan(SMOL, tokens=2048, dtype="bfloat16")
        assert plan.estimated_bytes <= limit
        assert plan.estimated_bytes == pass_bytes(
            SMOL, plan.window, "bfloat16", chunk_rows=plan.chunk_rows, checkpoint=plan.checkpoint
        )
        seen.append((plan.window, plan.chunk_rows, plan.checkpoint))
    assert seen[0] == (2048, 2048, False)
    assert seen[1] == (2048, 256, False)
    assert seen[-1][0] < 2048
    assert any(checkpoint for _, _, checkpoint in seen)


@given(st.integers(1, 4 * GIB), st.integers(2, 4096), st.sampled_from(["float32", "bfloat16"]))
def test_a_plan_fits_or_there_is_none(limit: int, tokens: int, dtype: str) -> None:
    device = budget(limit)
    try:
        plan = device.plan(SMOL, tokens=tokens, dtype=dtype)
    except VramBudgetError as error:
        assert error.required_bytes > limit == error.budget_bytes  # noqa: PT017
        return
    assert plan.estimated_bytes <= limit
    assert 2 <= plan.window <= tokens
    assert 1 <= plan.chunk_rows <= plan.window


def test_numbers_of_a_refusal() -> None:
    device = VramBudget(10**9, headroom=0.1, memory=FakeMemory(2 * 10**9, 5 * 10**8, 10**9))
    assert device.usable_bytes == 900_000_000
    assert device.available_bytes() == 400_000_000
    device.check(400_000_000)
    with pytest.raises(VramBudgetError, match="500000001") as caught:
        device.check(500_000_001)
    error = caught.value
    assert (error.required_bytes, error.budget_bytes, error.free_bytes) == (
        500_000_001, 10**9, 5 * 10**8,
    )  # fmt: skip


def test_other_processes_and_the_context_count() -> None:
    need = pass_bytes(SMOL, 512, "bfloat16")
    alone = budget(GIB, total=GIB).plan(SMOL, tokens=512, dtype="bfloat16")
    assert alone.chunk_rows == 512
    shared = budget(GIB, total=GIB, others=GIB - need // 2).plan(SMOL, tokens=512, dtype="bfloat16")
    assert shared.estimated_bytes <= need // 2
    context = budget(need + 100, overhead=101).plan(SMOL, tokens=512, dtype="bfloat16")
    assert context.chunk_rows < 512
    with pytest.raises(VramBudgetError):
        budget(SMOL.weight_bytes("float32")).plan(
            SMOL, tokens=64, dtype="float32", weights_loaded=False
        )


def test_the_precision_with_the_larger_window_wins() -> None:
    roomy = budget(4 * GIB).choose(SMOL, tokens=512, dtypes=("float32", "bfloat16"))
    assert (roomy.dtype, roomy.window) == ("float32", 512)
    tight = budget(SMOL.weight_bytes("float32") + 10**6).choose(
        SMOL, tokens=512, dtypes=("float32", "bfloat16")
    )
    assert (tight.dtype, tight.window) == ("bfloat16", 512)
    with pytest.raises(VramBudgetError):
        budget(10**6).choose(SMOL, tokens=512, dtypes=("float32", "bfloat16"))


def test_the_limit_holds_during_the_work_and_is_taken_back() -> None:
    device = budget(123)
    with pytest.raises(KeyError), device.enforce():
        raise KeyError
    assert device.memory.limits == [123, None]  # type: ignore[attr-defined]


def test_memory_that_was_freed_is_given_back() -> None:
    """Blocks too small for a mapping of their own stay with the C library until they are asked."""
    if _malloc_trim() is None:
        pytest.skip("not glibc")
    memory = CpuMemory()
    blocks = [bytearray(60_000) for _ in range(2000)]
    blocks[:] = blocks[-1:]  # the last holds the top of the heap
    kept = memory.used_bytes()
    memory.trim()
    assert memory.used_bytes() <= kept - 80 * 10**6
    asked = FakeMemory(10**9)
    VramBudget(10**9, memory=asked).trim()
    assert asked.trims == 1


def test_a_peak_between_two_looks_is_seen_where_the_system_keeps_it() -> None:
    if not _high_water():
        pytest.skip("no high-water mark")
    memory = CpuMemory(interval_seconds=3600.0)
    memory.reset_peak()
    before = memory.used_bytes()
    block = bytearray(max(_high_water() - before, 0) + 64 * 2**20)
    block[::4096] = b"x" * len(block[::4096])
    del block
    assert memory.peak_bytes() - before >= 60 * 2**20
    assert memory.used_bytes() - before < 30 * 2**20


def test_measuring() -> None:
    memory = FakeMemory(1000, used=100)
    with VramBudget(1000, memory=memory).measure() as seen:
        memory.peak = 700
        memory.used = 300
    assert (seen.before_bytes, seen.peak_bytes, seen.after_bytes, seen.rise_bytes) == (
        100, 700, 300, 600,
    )  # fmt: skip


def test_resident_memory_rises_with_what_is_allocated() -> None:
    with VramBudget(10**12, memory=CpuMemory(0.0005)).measure() as seen:
        block = bytearray(256 * 2**20)
        block[::4096] = b"x" * len(block[::4096])
    assert seen.rise_bytes >= 200 * 2**20
    assert CpuMemory().free_bytes() > 0


@pytest.mark.parametrize("limit", [0, -1])
def test_limits_that_are_none(limit: int) -> None:
    with pytest.raises(ArgumentError):
        VramBudget(limit)


def test_arguments_of_the_wrong_kind() -> None:
    for wrong in (1.5, "1", True):
        with pytest.raises(DTypeError):
            VramBudget(wrong)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError):
        VramBudget(5, headroom=1.0)
    with pytest.raises(DTypeError):
        VramBudget(5, headroom="x")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError):
        VramBudget(5, device="tpu")
    with pytest.raises(ArgumentError, match="dtype"):
        pass_bytes(SMOL, 5, "int8")
    with pytest.raises(ArgumentError, match="hidden_size"):
        ModelSpec.from_config({})


class FakeCuda:
    """torch.cuda as it shows one device: a whole card, or a slice that MIG cut from one."""

    def __init__(self, total: int, free: int, allocated: int = 0, reserved: int = 0) -> None:
        self.total, self.free = total, free
        self.allocated, self.reserved = allocated, reserved
        self.fractions: list[float] = []

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        cuda = pytest.importorskip("torch").cuda
        facts = {
            "is_available": lambda: True,
            "mem_get_info": lambda device: (self.free, self.total),
            "memory_allocated": lambda device: self.allocated,
            "memory_reserved": lambda device: self.reserved,
            "get_device_properties": lambda device: SimpleNamespace(total_memory=self.total),
            "set_per_process_memory_fraction": lambda share, device: self.fractions.append(share),
        }
        for name, fact in facts.items():
            monkeypatch.setattr(cuda, name, fact)


def test_a_mig_slice_counts_as_what_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    # 1g.10gb of a card of 80 GB: the slice is the device, whatever the card has left.
    slice_ = FakeCuda(total=9984 * 2**20, free=9 * GIB, allocated=GIB, reserved=2 * GIB)
    slice_.install(monkeypatch)
    held = VramBudget(40 * GIB, device="cuda", headroom=0.0)
    assert held.free_bytes() == held.available_bytes() == 10 * GIB
    with pytest.raises(VramBudgetError) as caught:
        held.check(11 * GIB)
    assert (caught.value.budget_bytes, caught.value.free_bytes) == (40 * GIB, 10 * GIB)
    with held.enforce():
        pass
    assert slice_.fractions == [1.0, 1.0]  # no more than there is
    half = VramBudget(4992 * 2**20, device="cuda", headroom=0.0)
    with half.enforce():
        pass
    assert slice_.fractions[2:] == [0.5, 1.0]
    assert half.available_bytes() == 4992 * 2**20 - GIB


@pytest.mark.parametrize("others", [0, 512 * 2**20])
def test_a_card_of_two_gib_is_planned_for(monkeypatch: pytest.MonkeyPatch, others: int) -> None:
    card = FakeCuda(total=2 * GIB, free=2 * GIB - others)
    card.install(monkeypatch)
    held = VramBudget(8 * GIB, device="cuda")
    plan = held.plan(SMOL, tokens=2048, dtype="bfloat16", weights_loaded=False)
    weights, context = SMOL.weight_bytes("bfloat16"), held.memory.overhead_bytes()
    assert plan.estimated_bytes + weights + context <= 2 * GIB - others
    assert plan.chunk_rows is not None  # all logits at once would take 2.5 GiB
    with pytest.raises(VramBudgetError) as caught:
        held.plan(QWEN, tokens=2048, dtype="float32", weights_loaded=False)
    assert caught.value.required_bytes > caught.value.free_bytes == 2 * GIB - others


def test_a_gpu_that_is_not_there() -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is one")
    with pytest.raises(BackendUnavailableError):
        VramBudget(5, device="cuda")

"""The gradient pass against autograd written out, and what it must leave alone."""

from __future__ import annotations

import json
import shutil
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from conftest_model import make_model
from riemem._device_memory import _malloc_trim
from riemem.distill import Distiller, LanguageModel, load_language_model
from riemem.distill.fisher import _one_pass, token_scores
from riemem.errors import (
    ArgumentError,
    BackendUnavailableError,
    BudgetTooSmallError,
    ModelCorruptError,
    ModelNotFoundError,
    NotFiniteError,
    VramBudgetError,
)
from riemem.vram import CpuMemory, PassPlan, VramBudget, pass_bytes

torch = pytest.importorskip("torch")

TEXT = "Dave moved to Porto in May, he does not miss the rain. Maya visits him often."


def plainly(model: LanguageModel, ids: list[int], first_target: int = 1) -> np.ndarray:
    """||g * h|| of every token by the whole model's own loss."""
    module = model.model
    leaf = module.get_input_embeddings()(torch.tensor([ids])).detach().requires_grad_(True)
    logits = module(inputs_embeds=leaf, use_cache=False).logits[0]
    logs = torch.log_softmax(logits, -1)
    loss = -sum(logs[place - 1, ids[place]] for place in range(first_target, len(ids)))
    loss.backward()
    return (leaf.grad * leaf.detach())[0].norm(dim=-1).double().numpy()


def test_sensitivity_is_the_gradient_of_the_loss(tiny) -> None:
    ids = tiny.encode(TEXT).ids
    raw = plainly(tiny, ids)
    expected = raw / np.maximum(np.arange(len(ids) - 1, -1, -1), 1)
    expected[-1], expected[0] = expected[-2], expected[1]
    found = token_scores(tiny, TEXT)
    np.testing.assert_allclose(found.sensitivity, expected, rtol=2e-4)
    assert found.windows == 1
    assert found.offsets.shape == (len(ids), 2)
    assert found.surprisal[0] == 0.0
    assert (found.surprisal[1:] > 0).all()


def test_the_question_decides_with_the_question(tiny) -> None:
    ids, asked = tiny.encode(TEXT).ids, tiny.encode("\nWhere is Dave?").ids
    expected = plainly(tiny, ids + asked, len(ids))[: len(ids)]
    expected[0] = expected[1]
    found = token_scores(tiny, TEXT, question="Where is Dave?")
    np.testing.assert_allclose(found.sensitivity, expected, rtol=2e-4)


def test_windows_cover_everything_once(tiny) -> None:
    text = TEXT * 8
    found = token_scores(tiny, text, window=128, overlap=32)
    assert found.windows == 7
    assert (found.sensitivity > 0).all()
    whole = token_scores(tiny, text)
    np.testing.assert_allclose(found.surprisal[:100], whole.surprisal[:100], rtol=1e-3, atol=1e-4)
    last = token_scores(tiny, text[-112:], window=128, overlap=32)
    assert last.windows == 1


@pytest.mark.parametrize("text", ["", "x"])
def test_texts_without_a_prediction(tiny, text: str) -> None:
    found = token_scores(tiny, text)
    assert found.sensitivity.tolist() == [0.0] * len(text)


def test_a_budget_changes_how_and_not_what(tiny) -> None:
    whole = token_scores(tiny, TEXT)

    class Small:
        def __init__(self, free: int) -> None:
            self.free = free

        def free_bytes(self) -> int:
            return self.free

        used_bytes = overhead_bytes = lambda self: 0
        peak_bytes = used_bytes

        def reset_peak(self) -> None: ...
        def limit(self, fraction_bytes: int | None) -> None: ...
        def trim(self) -> None: ...

    seen = set()
    for free in (10**8, 600_000, 400_000, 320_000):
        vram = VramBudget(10**9, memory=Small(free))
        plan = vram.plan(tiny.spec, tokens=len(TEXT), dtype="float32")
        seen.add((plan.checkpoint, plan.chunk_rows))
        found = token_scores(tiny, TEXT, vram=vram)
        if found.windows == 1:
            np.testing.assert_allclose(found.sensitivity, whole.sensitivity, rtol=1e-3)
        assert found.estimated_bytes <= free
    assert len(seen) > 1
    with pytest.raises(VramBudgetError):
        token_scores(tiny, TEXT, vram=VramBudget(10**9, memory=Small(1000)))


class Device:
    """A device with room for all that is planned, whatever really happens on it."""

    def __init__(self, total: int) -> None:
        self.total = total
        self.limits: list[int | None] = []
        self.trims = 0

    def free_bytes(self) -> int:
        return self.total

    def used_bytes(self) -> int:
        return 0

    def reset_peak(self) -> None:
        pass

    def peak_bytes(self) -> int:
        return 0

    def limit(self, fraction_bytes: int | None) -> None:
        self.limits.append(fraction_bytes)

    def overhead_bytes(self) -> int:
        return 0

    def trim(self) -> None:
        self.trims += 1


class Roomy(CpuMemory):
    """This process, which has so much left."""

    def __init__(self, free: int) -> None:
        super().__init__(0.0005)
        self.free = free

    def free_bytes(self) -> int:
        return self.free


ERRORS = (
    torch.OutOfMemoryError("CUDA out of memory"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
    MemoryError(),
)


@pytest.fixture(scope="module")
def middling(tmp_path_factory):
    """A model whose passes are large beside what a process does anyway; made up, 25 MB."""
    sizes = {"hidden_size": 256, "intermediate_size": 768, "vocab_size": 8192}
    return make_model(tmp_path_factory.mktemp("middling") / "lm", layers=8, **sizes)


def tensors_at_most(model: LanguageModel, plan: PassPlan) -> int:
    """The most bytes in tensors at once during a pass, by torch's own record.

    On one thread: for products in bfloat16 the library sets 1 to 2 MB aside for every thread, which
    is as much as a pass of this small model takes on two.
    """
    from torch.profiler import ProfilerActivity, profile

    ids = [number % 200 for number in range(plan.window)]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with (
            model.evaluating() as module,
            profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen,
        ):
            _one_pass(model, module, ids, [], plan, "window 1")
    finally:
        torch.set_num_threads(threads)
    changes = [event.nbytes() for event in seen.profiler.kineto_results.events()
               if event.name() == "[memory]"]  # fmt: skip
    return max(np.cumsum(changes))


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("checkpoint", [False, True])
def test_the_estimate_is_the_peak_of_all_tensors(middling, dtype, checkpoint) -> None:
    model = load_language_model(middling, dtype=dtype)
    for tokens, rows in ((128, 128), (256, 64), (512, 64)):
        plan = PassPlan(tokens, rows, checkpoint, 0)
        estimate = pass_bytes(model.spec, tokens, dtype, chunk_rows=rows, checkpoint=checkpoint)
        assert 0.85 <= estimate / tensors_at_most(model, plan) <= 1.15


def test_the_estimate_is_near_the_rise_of_resident_memory(middling) -> None:
    if _malloc_trim() is None:
        pytest.skip("not glibc: what is freed stays with the process")
    model = load_language_model(middling, dtype="float32")
    token_scores(model, TEXT)
    vram = VramBudget(10**12, memory=CpuMemory(0.0005))
    vram.trim()
    with vram.measure() as seen:
        found = token_scores(model, TEXT * 6, vram=vram)
    assert found.windows == 1
    assert 0.8 <= found.estimated_bytes / seen.rise_bytes <= 1.2


def test_freed_memory_is_given_back_after_every_layer_and_layers_are_left_alone(tiny) -> None:
    device = Device(10**12)
    layers = tiny.model.model.layers
    expected = token_scores(tiny, TEXT).sensitivity
    found = token_scores(tiny, TEXT, vram=VramBudget(10**11, memory=device))
    np.testing.assert_array_equal(found.sensitivity, expected)
    assert device.trims == 1 + 2 * len(layers) + 1  # before, each way, and the one chunk's head
    assert all("forward" not in layer.__dict__ for layer in layers)


def test_logits_that_the_model_makes_itself_are_planned_as_such(tiny, monkeypatch) -> None:
    """The gradient is the same; the estimate is of logits in one piece."""
    expected = token_scores(tiny, TEXT)
    monkeypatch.setattr(tiny, "split_head", False)
    found = token_scores(tiny, TEXT, vram=VramBudget(10**11, memory=Device(10**12)))
    np.testing.assert_allclose(found.sensitivity, expected.sensitivity, rtol=2e-4)
    assert found.estimated_bytes == pass_bytes(
        tiny.spec, len(tiny.encode(TEXT).ids), "float32", whole_head=True
    )


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_pass_that_does_not_fit_after_all_is_made_in_half(tiny, monkeypatch, error) -> None:
    """The retry gives what the smaller plan gives at once; the limit is set and taken back."""
    from riemem.distill import fisher

    text = " ".join([TEXT] * 12)
    real, tried = fisher._gradient, []

    def full_above(module, leaf, *rest):
        tried.append(leaf.shape[1])
        if leaf.shape[1] > 80:
            raise error
        return real(module, leaf, *rest)

    monkeypatch.setattr(fisher, "_gradient", full_above)
    device = Device(10**12)
    for vram in (None, VramBudget(10**11, memory=device)):
        tried.clear()
        found = token_scores(tiny, text, vram=vram)
        assert tried[0] > 80 >= max(tried[-2:])
        assert found.windows > 1
        assert np.isfinite(found.sensitivity).all()
        assert (found.sensitivity > 0).all()
        limit = found.estimated_bytes
        same = token_scores(tiny, text, vram=VramBudget(limit, headroom=0.0, memory=Device(limit)))
        np.testing.assert_array_equal(found.sensitivity, same.sensitivity)
    assert device.limits[-1] is None
    assert None not in device.limits[::2]


def test_a_device_that_holds_no_pass_is_a_typed_error(tiny, monkeypatch) -> None:
    from riemem.distill import fisher

    def never(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(fisher, "_gradient", never)
    with pytest.raises(VramBudgetError, match=r"window 1.*no smaller pass is possible") as caught:
        token_scores(tiny, TEXT, vram=VramBudget(10**11, memory=Device(10**12)))
    assert caught.value.required_bytes > 0
    assert caught.value.budget_bytes == 10**11

    def broken(*_):
        raise RuntimeError("something else")

    monkeypatch.setattr(fisher, "_gradient", broken)
    with pytest.raises(RuntimeError, match="something else"):
        token_scores(tiny, TEXT)


def test_nothing_global_changes_and_nothing_global_matters(tiny) -> None:
    module = tiny.model
    expected = token_scores(tiny, TEXT).sensitivity
    module.train()
    weight = next(module.parameters())
    weight.requires_grad_(True)
    state = torch.random.get_rng_state()
    try:
        with torch.no_grad():
            again = token_scores(tiny, TEXT).sensitivity
            assert not torch.is_grad_enabled()
        assert module.training
        assert weight.requires_grad
        assert weight.grad is None
    finally:
        module.eval()
        weight.requires_grad_(False)
    assert torch.equal(state, torch.random.get_rng_state())
    for text in ("some", "other texts", "in between " * 20):
        token_scores(tiny, text)
    assert np.array_equal(again, expected)
    assert np.array_equal(token_scores(tiny, TEXT).sensitivity, expected)


def test_threads_share_one_model(tiny) -> None:
    texts = [TEXT[at:] for at in range(8)]
    expected = [token_scores(tiny, text).sensitivity for text in texts]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda text: token_scores(tiny, text).sensitivity, texts))
    for one, two in zip(found, expected, strict=True):
        assert np.array_equal(one, two)


def test_nan_names_its_window(tiny_folder, tmp_path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "nan"
    shutil.copytree(tiny_folder, folder)
    state = load_file(str(folder / "model.safetensors"))
    row = load_language_model(tiny_folder, dtype="float32").encode("!").ids[0]
    state["model.embed_tokens.weight"][row] = float("nan")
    save_file(state, str(folder / "model.safetensors"))
    model = load_language_model(folder, dtype="float32")
    with pytest.raises(NotFiniteError, match="window 1"):
        token_scores(model, "oh no!")


def test_broken_models_are_refused(tiny_folder, tmp_path) -> None:
    with pytest.raises(ModelNotFoundError):
        load_language_model(tmp_path / "nowhere")
    with pytest.raises(ArgumentError, match="dtype"):
        load_language_model(tiny_folder, dtype="int8")
    half = tmp_path / "half"
    shutil.copytree(tiny_folder, half)
    weights = (half / "model.safetensors").read_bytes()
    (half / "model.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(ModelCorruptError, match=r"model\.safetensors"):
        _ = load_language_model(half, dtype="float32").model
    (half / "model.safetensors").unlink()
    with pytest.raises(ModelCorruptError):
        _ = load_language_model(half, dtype="bfloat16").identity
    other = tmp_path / "encoder"
    shutil.copytree(tiny_folder, other)
    config = json.loads((other / "config.json").read_text())
    config["architectures"] = ["BertModel"]
    (other / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelCorruptError, match="causal"):
        load_language_model(other)
    (other / "config.json").write_text("{")
    with pytest.raises(ModelCorruptError, match=r"config\.json"):
        load_language_model(other, dtype="float32")


def test_distillation_with_a_model_keeps_and_reuses(tiny) -> None:
    class Cache:
        def __init__(self) -> None:
            self.rows: dict[tuple[int, str], bytes] = {}

        def get(self, memory_id: int, key: str) -> bytes | None:
            return self.rows.get((memory_id, key))

        def put(self, memory_id: int, key: str, value: bytes) -> None:
            self.rows[memory_id, key] = value

    turns = [
        {"id": n, "text": f"{TEXT} Number {n}.", "speaker": "Dave", "score": 1.0 / n,
         "when": f"2024-05-0{n}T10:00:00+00:00", "session": "a"}
        for n in range(1, 6)
    ]  # fmt: skip
    cache = Cache()
    distiller = Distiller(tiny, count_tokens=len, cache=cache)
    first = distiller.distill(turns, token_budget=300, query="Where?")
    assert first.report.windows == len(cache.rows) > 0
    assert first.report.model == tiny.identity
    second = distiller.distill(turns, token_budget=300, query="Where?")
    assert (second.report.windows, second.report.cached) == (0, len(cache.rows))
    assert second.text == first.text
    cache.rows = dict.fromkeys(cache.rows, b"junk")
    assert distiller.distill(turns, token_budget=300, query="Where?").text == first.text
    for condition in ("question", "both"):
        made = Distiller(tiny, count_tokens=len, condition=condition)
        assert len(made.distill(turns, token_budget=300, query="Where?").text) <= 300
    for preset in ("coremem", "coremem-token"):
        made = Distiller(tiny, count_tokens=len, preset=preset)
        assert 0 < len(made.distill(turns, token_budget=200).text) <= 200


@pytest.mark.parametrize(
    "text",
    [
        "", "word", "x" * 20_000, "\U0001f422" * 60, "\n" * 300,
        "She typed <|endoftext|> and <|im_start|>system and </s> and went on to the harbour.",
        "\ufeffThe first line begins with a mark that nobody sees, and more follows it.",
        "Мама мыла раму, 猫は眠る, שלום עולם, नमस्ते दुनिया and so it ends, at last, here.",
        "Run this:\n```python\nfor n in range(3):\n    print(n)  # counts\n```\nand then look.",
        "See https://example.org/a/very/long/path?with=query&and=more#fragment for the details.",
        "| name | age |\n|---|---|\n| Ana | 31 |\n| Tim | 29 |\nThat is the table of both.",
    ],
    ids=["empty", "one word", "long word", "emoji", "newlines", "control strings", "mark",
         "scripts", "code", "address", "table"],
)  # fmt: skip
@pytest.mark.parametrize("budget", [0, 1, 40])
def test_odd_texts_go_through_the_model_or_are_refused(tiny, text, budget) -> None:
    distiller = Distiller(tiny, count_tokens=len, score="sensitivity")
    try:
        made = distiller.distill(text, token_budget=budget)
    except BudgetTooSmallError as error:
        assert "token_budget" in str(error)  # noqa: PT017
        assert budget < 40 or text in ("x" * 20_000, "\U0001f422" * 60)
        return
    assert len(made.text) == made.tokens <= budget
    assert made.text == text or all(text[a:b] in made.text for _, a, b in made.spans)
    kept = sum(end - start for _, start, end in made.spans)
    assert made.text == text or kept > 0 or not text.strip()


def test_the_score_by_default_is_what_works_and_the_report_names_it(
    tiny, tiny_folder, monkeypatch, tmp_path
) -> None:
    turns = [
        {"id": n, "text": f"{TEXT} Number {n}.", "speaker": "Dave", "score": 1.0 / n}
        for n in range(1, 6)
    ]  # fmt: skip
    plain = [{"id": turn["id"], "text": turn["text"]} for turn in turns]
    ask = {"token_budget": 300, "query": "Where?"}

    def decided(source: object, **options: object) -> tuple[str, str, str]:
        made = Distiller(count_tokens=len, **options).distill(source, **ask)
        assert made.report.options["score"] == made.report.score
        return made.report.score, made.report.model, made.text

    monkeypatch.setenv("RIEMEM_CACHE", str(tmp_path))  # no model
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    for source in (turns, plain, TEXT * 5):
        found = Distiller(count_tokens=len, score="words").distill(source, **ask)
        assert decided(source) == ("words", "", found.text)
        for options in ({"score": "sensitivity"}, {"condition": "both"}, {"preset": "coremem"}):
            with pytest.raises(ModelNotFoundError):
                decided(source, **options)
    short = Distiller(count_tokens=len).distill("short", token_budget=300)
    assert (short.text, short.report.score) == ("short", "auto")

    monkeypatch.setattr("riemem.distill.fdtd.load_language_model", lambda *_, **__: tiny)
    assert decided(turns)[:2] == ("words", "")
    for source in (plain, TEXT * 5):
        assert decided(source)[:2] == ("sensitivity", tiny.identity)
    for options in ({"model": tiny_folder}, {"condition": "both"}, {"preset": "coremem"}):
        assert decided(turns, **options)[:2] == ("sensitivity", tiny.identity)

    def missing(*packages: str) -> None:
        raise BackendUnavailableError(f"{packages[0]} is not installed")

    monkeypatch.setattr("riemem.distill.scores.require", missing)
    assert decided(plain)[:2] == ("words", "")


@pytest.mark.model
def test_the_real_model_keeps_what_matters(smollm_path) -> None:
    turns = [
        {"id": 1, "speaker": "Dave", "score": 1.0, "when": "2023-05-08T10:00:00+00:00",
         "text": "Well, you know, I really do think that it was so nice: I bought a telescope."},
        {"id": 2, "speaker": "Maya", "score": 0.5, "when": "2023-05-08T10:01:00+00:00",
         "text": "Oh wow, that is just great, I am very happy for you!"},
    ]  # fmt: skip
    made = Distiller(smollm_path).distill(turns, token_budget=26, query="What did Dave buy?")
    assert "telescope" in made.text
    assert made.tokens <= 26
    assert made.report.windows >= 1


@pytest.mark.model
@pytest.mark.parametrize("free", [10**12, 10**8])
def test_the_estimate_is_near_the_measured_peak(smollm_path, free) -> None:
    """Of the pass alone, at once and with activations computed again."""
    model = load_language_model(smollm_path)
    vram = VramBudget(10**12, memory=Roomy(free))
    token_scores(model, TEXT * 24, vram=vram)  # kernels are compiled once for every size
    vram.trim()
    with vram.measure() as seen:
        found = token_scores(model, TEXT * 24, vram=vram)
    assert found.windows == 1
    assert (found.estimated_bytes < 10**8) == (free == 10**8)
    if _malloc_trim() is not None:
        assert 0.8 <= found.estimated_bytes / seen.rise_bytes <= 1.2
    assert 0.8 <= (seen.before_bytes + found.estimated_bytes) / seen.peak_bytes <= 1.2

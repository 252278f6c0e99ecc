"""Sentence vectors by onnxruntime, int8 models included, and how such a model is made."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from importlib.util import find_spec
from pathlib import Path
from shutil import copy2
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import models
from ._encoder import EncoderFiles
from ._sentence import SentenceEmbedder
from .errors import ArgumentError, BackendUnavailableError, ModelCorruptError

__all__ = ["OnnxEmbedder", "export_onnx", "onnx_file"]

_INT8 = "onnx/model_int8.onnx"
#: Where a folder's model is looked for, best first: what riemem exports, then usual names.
_PLACES = (
    _INT8,
    "onnx/model_quantized.onnx",
    "model_int8.onnx",
    "model_quantized.onnx",
    "onnx/model.onnx",
    "model.onnx",
)
_KINDS = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}


def onnx_file(folder: Path) -> str | None:
    """Return the path below `folder` of the ONNX model in it, or None.

    Examples
    --------
    >>> onnx_file(Path("/nowhere")) is None
    True
    """
    return next((place for place in _PLACES if (folder / place).is_file()), None)


class OnnxEmbedder(SentenceEmbedder):
    """A :class:`SentenceEmbedder` whose transformer is an ONNX model, such as MiniLM in int8.

    Parameters
    ----------
    model : str or path
        A folder as for :class:`SentenceEmbedder` with an ONNX model beside or instead of the
        safetensors: ``onnx/model_int8.onnx``, ``onnx/model_quantized.onnx``,
        ``onnx/model.onnx`` or the same without the folder.
    file : str, optional
        The ONNX model's path below the folder, where it has another name.
    batch_size : int
        A dynamically quantised model scales its activations by the largest of the whole batch,
        so only one text at a time has the same vector in any company: the default.
    threads : int, optional
        Threads that onnxruntime may use; fixed when the model is loaded.
    query_prompt, document_prompt : str, optional
        As :class:`SentenceEmbedder`.

    Raises
    ------
    ModelNotFoundError, ModelCorruptError
        On first use: there is no such folder; it holds no ONNX model, or one that cannot be run
        or does not give hidden states.
    BackendUnavailableError
        On first use: onnxruntime is not installed.

    Notes
    -----
    The model's inputs may be ``input_ids``, ``attention_mask``, ``token_type_ids`` and
    ``position_ids``; its first output of shape (batch, tokens, dim) is pooled here, so the
    pooling is the same code as for torch.

    Examples
    --------
    >>> OnnxEmbedder("my-model").batch_size      # nothing is loaded yet
    1
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        file: str | None = None,
        batch_size: int = 1,
        threads: int | None = None,
        query_prompt: str | None = None,
        document_prompt: str | None = None,
    ) -> None:
        super().__init__(
            model,
            batch_size=batch_size,
            threads=threads,
            query_prompt=query_prompt,
            document_prompt=document_prompt,
        )
        self._weights_file = file

    @property
    def files(self) -> EncoderFiles:
        """The model's folder and options, found and read on first use."""
        with self._lock:
            if self._files is None:
                folder = models.find(self._spec)
                file = self._weights_file or onnx_file(folder)
                if file is None or not (folder / file).is_file():
                    raise ModelCorruptError(
                        f"model folder {folder}: it holds no ONNX model "
                        f"({file or ', '.join(_PLACES)}); make one with: riemem models onnx"
                    )
                self._files = EncoderFiles(folder, file)
            return self._files

    def _running(self) -> AbstractContextManager[None]:
        return self._session()

    @contextmanager
    def _session(self) -> Iterator[None]:
        if self._model is None:
            self._model = _Session(self.files.folder / self.files.weights, self.threads)
        yield

    def _states(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        states: NDArray[np.float32] = self._model(ids, mask)
        if states.shape != (*ids.shape, self.files.width):
            raise ModelCorruptError(
                f"{self.files.folder / self.files.weights}: expected hidden states of shape "
                f"{(*ids.shape, self.files.width)}, got {states.shape}"
            )
        return states


class _Session:
    """An ONNX model on the CPU, as a function of ids and mask."""

    def __init__(self, path: Path, threads: int | None) -> None:
        _require("onnxruntime")
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.use_deterministic_compute = True
        if threads is not None:
            options.intra_op_num_threads = threads
        try:
            self._session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:  # onnxruntime has a class per status, with no common one
            if type(error).__module__.partition(".")[0] != "onnxruntime":
                raise
            raise ModelCorruptError(f"{path}: onnxruntime cannot run it ({error})") from error
        known = ("input_ids", "attention_mask", "token_type_ids", "position_ids")
        self._inputs: dict[str, Any] = {}
        for wanted in self._session.get_inputs():
            if wanted.name not in known or wanted.type not in _KINDS:
                raise ModelCorruptError(
                    f"{path}: expected inputs out of {known} of integers, got {wanted.name!r}, "
                    f"{wanted.type}"
                )
            self._inputs[wanted.name] = _KINDS[wanted.type]
        outputs = [out.name for out in self._session.get_outputs() if len(out.shape or ()) == 3]
        if not outputs:
            raise ModelCorruptError(f"{path}: expected an output (batch, tokens, dim), got none")
        self._output = outputs[0]

    def __call__(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        values = {
            "input_ids": ids,
            "attention_mask": mask,
            "token_type_ids": np.zeros_like(ids),
            "position_ids": np.broadcast_to(np.arange(ids.shape[1]), ids.shape),
        }
        feed = {name: values[name].astype(kind) for name, kind in self._inputs.items()}
        (states,) = self._session.run([self._output], feed)
        result: NDArray[np.float32] = np.asarray(states, np.float32)
        return result


def export_onnx(
    model: str | os.PathLike[str], folder: str | os.PathLike[str], *, int8: bool = True
) -> Path:
    """Write an encoder's transformer as an ONNX model, by default with int8 weights.

    Parameters
    ----------
    model : str or path
        As for :class:`SentenceEmbedder`.
    folder : str or path
        A new folder, which :class:`OnnxEmbedder` and ``load_embedder`` take: the options and the
        tokenizer of `model`, and ``onnx/model_int8.onnx`` (or ``onnx/model.onnx``).
    int8 : bool
        Word vectors and weights of matrix products as int8, activations quantised as they come.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    ArgumentError
        The folder exists already.
    ModelNotFoundError, ModelCorruptError, BackendUnavailableError
        Also where onnx or onnxruntime is not installed; the folder is not made then.
    """
    target = Path(folder).expanduser()
    if target.exists():
        raise ArgumentError(f"folder: expected a new folder, got {target}, which exists")
    _require("onnx", "onnxruntime")
    files = EncoderFiles(models.find(model))
    encoder = files.load()
    target.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=target.parent, prefix=".onnx-") as made:
        new = Path(made) / "model"
        (new / "onnx").mkdir(parents=True)
        for path in sorted(files.folder.rglob("*")):
            small = path.suffix in (".json", ".txt", ".model") and path.name != models.MANIFEST
            dense = any(path.parent.name == layer.folder for layer in files.projections)
            if path.is_file() and (small or dense) and ".onnx" not in path.suffixes:
                copy = new / path.relative_to(files.folder)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy2(path, copy)
        plain = new / "onnx" / "model.onnx"
        _write(encoder, files, plain)
        if int8:
            _quantise(plain, new / _INT8)
            plain.unlink()
        new.rename(target)
    return target


def _write(encoder: Any, files: EncoderFiles, path: Path) -> None:
    import torch

    ids = torch.tensor([files.token_ids("hello there"), files.token_ids("good morning")])
    axes = {0: "batch", 1: "tokens"}
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of tracing, which the comparison in the tests stands for
        torch.onnx.export(
            _HiddenStates.of(encoder),
            (ids, torch.ones_like(ids)),
            str(path),
            input_names=["input_ids", "attention_mask"],
            output_names=["last_hidden_state"],
            dynamic_axes=dict.fromkeys(("input_ids", "attention_mask", "last_hidden_state"), axes),
            opset_version=17,
            dynamo=False,
        )


class _HiddenStates:
    """Makes a module that takes ids and mask and returns the last hidden states only."""

    @staticmethod
    def of(encoder: Any) -> Any:
        import torch

        class Module(torch.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.encoder = encoder

            def forward(self, input_ids: Any, attention_mask: Any) -> Any:
                return self.encoder(
                    input_ids=input_ids, attention_mask=attention_mask
                ).last_hidden_state

        return Module().eval()


def _quantise(source: Path, target: Path) -> None:
    import logging

    from onnxruntime.quantization import QuantType, quantize_dynamic

    logger = logging.getLogger()
    before = logger.level
    logger.setLevel(logging.ERROR)  # it recommends, on the root logger, to preprocess
    try:
        quantize_dynamic(
            str(source),
            str(target),
            weight_type=QuantType.QInt8,
            per_channel=True,
            op_types_to_quantize=["MatMul", "Gather"],  # Gather: the table of word vectors
        )
    finally:
        logger.setLevel(before)


def _require(*packages: str) -> None:
    for package in packages:
        if find_spec(package) is None:
            raise BackendUnavailableError(
                f"the package {package!r} is not installed; get it with: pip install 'riemem[onnx]'"
            )

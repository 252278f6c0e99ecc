"""What a local language model makes of a context: likelihood of the gold answer, and divergence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..distill.language_model import LanguageModel

__all__ = ["AnswerPrediction", "divergence", "predict_answer", "spearman"]

_ANSWER_TOKENS = 32


@dataclass(frozen=True)
class AnswerPrediction:
    """Mean negative log-likelihood of the answer's tokens, and the distributions before each."""

    nll: float
    log_probabilities: NDArray[np.float32]


def predict_answer(
    model: LanguageModel, context: str, question: str, answer: str
) -> AnswerPrediction:
    """Return how well the model predicts an answer after a context and a question.

    Parameters
    ----------
    model : LanguageModel
        One forward pass without a graph.
    context, question, answer : str
        Put together as ``context, question, answer`` with the words "Question" and "Answer".
    """
    import torch

    prompt = model.encode(f"{context}\n\nQuestion: {question}\nAnswer:").ids
    target = model.encode(f" {answer}").ids[:_ANSWER_TOKENS]
    prompt = prompt[-(model.max_window - len(target)) :]
    with model.evaluating() as module, torch.no_grad():
        rows = torch.tensor([prompt + target], device=model.device)
        if model.split_head:
            hidden = module.base_model(input_ids=rows, use_cache=False).last_hidden_state
            logits = module.get_output_embeddings()(hidden[0, len(prompt) - 1 : -1])
        else:
            logits = module(input_ids=rows, use_cache=False).logits[0, len(prompt) - 1 : -1]
        logs = torch.log_softmax(logits.float(), -1)
        nll = -logs.gather(1, torch.tensor(target, device=logs.device)[:, None]).mean()
        return AnswerPrediction(float(nll), logs.cpu().numpy())


def divergence(full: AnswerPrediction, other: AnswerPrediction) -> float:
    """Return the mean over the answer's positions of KL(full || other), in nats.

    Examples
    --------
    >>> even = AnswerPrediction(0.0, np.log(np.array([[0.5, 0.5]], np.float32)))
    >>> divergence(even, even)
    0.0
    """
    p, q = full.log_probabilities.astype(np.float64), other.log_probabilities.astype(np.float64)
    return float((np.exp(p) * (p - q)).sum(-1).mean())


def spearman(one: NDArray[np.float64], two: NDArray[np.float64]) -> float:
    """Return the rank correlation of two samples; ties get their mean rank, no spread gives 0.

    Examples
    --------
    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([2.0, 4.0, 9.0]))
    1.0
    """
    a, b = _ranks(one), _ranks(two)
    a, b = a - a.mean(), b - b.mean()
    spread = float(np.sqrt((a * a).sum() * (b * b).sum()))
    return float((a * b).sum() / spread) if spread > 0 else 0.0


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    return np.asarray((ends - (counts - 1) / 2.0)[inverse], np.float64)

"""The metric as a scikit-learn transformer, for any vector database. Needs ``scikit-learn``."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from riemem.errors import ArgumentError
from riemem.metric import FisherMetric

__all__ = ["FisherWhitener"]

_FORMS = ("cosine", "inner", "mahalanobis")
_DTYPES = (np.float64, np.float32)


class FisherWhitener(TransformerMixin, BaseEstimator):
    """Whitens rows with a :class:`riemem.FisherMetric`, so that a plain index ranks as it does.

    ``z = (x - mean) L`` with ``L L' = Sigma^-1``; for ``form="cosine"`` divided by its length.

    - ``"cosine"``: compared by inner product or cosine, it ranks as ``form="cosine"``, the default
      of :func:`riemem.search`;
    - ``"inner"``: compared by inner product, as ``form="inner"``;
    - ``"mahalanobis"``: compared by Euclidean distance, as ``form="mahalanobis"``;

    always with ``cosine_weight=0``.

    Parameters
    ----------
    form : {"cosine", "inner", "mahalanobis"}
    covariance, ridge, energy, max_rank
        Of :class:`riemem.FisherMetric`.

    Attributes
    ----------
    metric_ : FisherMetric
    n_features_in_ : int

    Raises
    ------
    ArgumentError
        An option out of range.
    ValueError, TypeError
        Input that scikit-learn's own validation refuses.

    Notes
    -----
    Passes scikit-learn's ``check_estimator``. Whiten rows and queries with the same fitted object.
    float32 rows give float32, which vector databases keep: where two scores differ by less than
    about 1e-7 of their size the order may differ. O(N d^2). Cosine after whitening: CoreMem (arXiv
    2606.18406), section 3.2, without its fusion.

    Examples
    --------
    >>> X = np.random.default_rng(0).normal(size=(100, 8))
    >>> Z = FisherWhitener(form="inner", ridge=0.0).fit_transform(X)
    >>> bool(np.allclose(np.cov(Z.T, bias=True), np.eye(8), atol=1e-5))
    True
    """

    def __init__(
        self,
        *,
        form: str = "cosine",
        covariance: str = "full",
        ridge: float = 10.0,
        energy: float = 0.95,
        max_rank: int | None = None,
    ) -> None:
        self.form = form
        self.covariance = covariance
        self.ridge = ridge
        self.energy = energy
        self.max_rank = max_rank

    def fit(self, X: Any, y: Any = None) -> FisherWhitener:
        """Learn the metric of the rows of `X`; `y` is ignored."""
        if self.form not in _FORMS:
            raise ArgumentError(f"form: expected one of {_FORMS}, got {self.form!r}")
        self.metric_ = FisherMetric.fit(
            validate_data(self, X, dtype=_DTYPES),
            covariance=self.covariance,
            ridge=self.ridge,
            energy=self.energy,
            max_rank=self.max_rank,
        )
        return self

    def partial_fit(self, X: Any, y: Any = None) -> FisherWhitener:
        """Add rows to the metric, exactly. Rows whitened before have to be whitened again."""
        if not hasattr(self, "metric_"):
            return self.fit(X)
        self.metric_.update(validate_data(self, X, dtype=_DTYPES, reset=False))
        return self

    def transform(self, X: Any) -> npt.NDArray[Any]:
        """Return the whitened rows, shape (N, d), in the dtype of `X`."""
        check_is_fitted(self, "metric_")
        rows = validate_data(self, X, dtype=_DTYPES, reset=False)
        white = self.metric_.whiten(rows)
        if self.form == "cosine":
            lengths = np.linalg.norm(white, axis=1, keepdims=True)
            np.divide(white, lengths, out=white, where=lengths > 0)
        return white.astype(rows.dtype)

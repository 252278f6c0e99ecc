from typing import overload

import numpy as np
from numpy.typing import NDArray

version: str
compiler: str
compiled_isas: list[str]

def available_isas() -> list[str]: ...
def active_isa() -> str: ...
def num_threads() -> int: ...
def set_num_threads(n: int) -> None: ...
def fused_topk(
    rows: NDArray[np.float32],
    inv_norms: NDArray[np.float64],
    row_scale: NDArray[np.float64] | None,
    row_bias: NDArray[np.float64] | None,
    q: NDArray[np.float64],
    w: NDArray[np.float64],
    offsets: NDArray[np.float64],
    query_bias: NDArray[np.float64],
    cosine_weight: float,
    norm: int,
    mask: NDArray[np.bool_] | None,
    k: int,
    isa: str = "auto",
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64], int]: ...
@overload
def fused_scores(
    rows: NDArray[np.float32],
    inv_norms: NDArray[np.float64],
    row_scale: NDArray[np.float64] | None,
    row_bias: NDArray[np.float64] | None,
    q: NDArray[np.float64],
    w: NDArray[np.float64],
    offsets: NDArray[np.float64],
    query_bias: NDArray[np.float64],
    cosine_weight: float,
    norm: int,
    mask: NDArray[np.bool_] | None,
    isa: str,
    out: NDArray[np.float32],
) -> None: ...
@overload
def fused_scores(
    rows: NDArray[np.float32],
    inv_norms: NDArray[np.float64],
    row_scale: NDArray[np.float64] | None,
    row_bias: NDArray[np.float64] | None,
    q: NDArray[np.float64],
    w: NDArray[np.float64],
    offsets: NDArray[np.float64],
    query_bias: NDArray[np.float64],
    cosine_weight: float,
    norm: int,
    mask: NDArray[np.bool_] | None,
    isa: str,
    out: NDArray[np.float64],
) -> None: ...
def row_stats(
    rows: NDArray[np.float32], isa: str = "auto"
) -> tuple[NDArray[np.float64], int]: ...
def quadratic_rows(
    rows: NDArray[np.float32],
    mean: NDArray[np.float64],
    whitening: NDArray[np.float64],
    isa: str = "auto",
) -> NDArray[np.float64]: ...

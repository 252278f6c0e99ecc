from collections.abc import Iterator
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

version: str
compiler: str
compiled_isas: list[str]

def available_isas() -> list[str]: ...
def active_isa() -> str: ...
def num_threads() -> int: ...
def set_num_threads(n: int) -> None: ...

class Points:
    @staticmethod
    def float32(
        rows: NDArray[np.float32],
        inv_norms: NDArray[np.float64],
        row_scale: NDArray[np.float64] | None,
        row_bias: NDArray[np.float64] | None,
        twin: NDArray[np.int32] | None,
    ) -> Points: ...
    @staticmethod
    def int8(
        rows: NDArray[np.float32],
        inv_norms: NDArray[np.float64],
        row_scale: NDArray[np.float64] | None,
        row_bias: NDArray[np.float64] | None,
        twin: NDArray[np.int32] | None,
        tiles: NDArray[np.uint8],
        tile_scale: NDArray[np.float32],
        residual: NDArray[np.float32],
    ) -> Points: ...
    @staticmethod
    def bfloat16(
        high: NDArray[np.uint16],
        low: NDArray[np.int16],
        inv_norms: NDArray[np.float64],
        row_scale: NDArray[np.float64] | None,
        row_bias: NDArray[np.float64] | None,
        twin: NDArray[np.int32] | None,
        residual: NDArray[np.float32],
    ) -> Points: ...
    @property
    def unbounded_rows(self) -> int: ...
    def topk(
        self,
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
    def approximate(
        self,
        q: NDArray[np.float64],
        w: NDArray[np.float64],
        offsets: NDArray[np.float64],
        query_bias: NDArray[np.float64],
        cosine_weight: float,
        isa: str = "auto",
    ) -> tuple[NDArray[np.float64], float]: ...
    def some(
        self,
        q: NDArray[np.float64],
        w: NDArray[np.float64],
        offsets: NDArray[np.float64],
        query_bias: NDArray[np.float64],
        cosine_weight: float,
        rows: NDArray[np.int64],
        isa: str = "auto",
    ) -> NDArray[np.float64]: ...
    @overload
    def scores(
        self,
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
    def scores(
        self,
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

class FisherRaoPoints:
    def __init__(
        self,
        rows: NDArray[np.float32],
        precision: NDArray[np.float32],
        inv_norms: NDArray[np.float64],
        ramp: NDArray[np.float64] | None,
    ) -> None: ...
    @property
    def scannable(self) -> bool: ...
    def topk(
        self,
        queries: NDArray[np.float32],
        query_inv_norms: NDArray[np.float64],
        temperature: float,
        mask: NDArray[np.bool_] | None,
        k: int,
        isa: str = "auto",
    ) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64], int]: ...
    def scores(
        self,
        queries: NDArray[np.float32],
        query_inv_norms: NDArray[np.float64],
        temperature: float,
        mask: NDArray[np.bool_] | None,
        isa: str = "auto",
    ) -> NDArray[np.float64]: ...

class Twins:
    def __init__(self) -> None: ...
    def reserve(self, rows: int) -> None: ...
    def extend(self, rows: NDArray[np.float32], begin: int, twin: NDArray[np.int32]) -> None: ...

int8_tile_rows: int

def int8_tile_bytes(d: int) -> int: ...
def quantize_int8(
    rows: NDArray[np.float32],
    begin: int,
    tiles: NDArray[np.uint8],
    scale: NDArray[np.float32],
    residual: NDArray[np.float32],
    isa: str = "auto",
) -> None: ...
def rotate(
    rows: NDArray[np.float32] | NDArray[np.float64], isa: str = "auto"
) -> NDArray[np.float64]: ...
def split_bfloat16(
    rows: NDArray[np.float32],
) -> tuple[NDArray[np.uint16], NDArray[np.int16], NDArray[np.float32]]: ...
def join_bfloat16(high: NDArray[np.uint16], low: NDArray[np.int16]) -> NDArray[np.float32]: ...
def fetch(
    tuples: Iterator[tuple[int | bytes, ...]],
    numbers: NDArray[np.int64],
    blobs: NDArray[np.uint8],
) -> tuple[int, int]: ...
def unit_rows(
    rows: NDArray[np.float32],
    norms: NDArray[np.float64],
    out: NDArray[np.float32],
    isa: str = "auto",
) -> None: ...
def row_stats(rows: NDArray[np.float32], isa: str = "auto") -> tuple[NDArray[np.float64], int]: ...
def quadratic_rows(
    rows: NDArray[np.float32],
    mean: NDArray[np.float64],
    whitening: NDArray[np.float64],
    isa: str = "auto",
) -> NDArray[np.float64]: ...
def rows_times(
    rows: NDArray[np.float64],
    matrix: NDArray[np.float64],
    nonzero: str = "all",
    isa: str = "auto",
) -> NDArray[np.float64]: ...
def scatter_add(
    rows: NDArray[np.float32] | NDArray[np.float64],
    shift: NDArray[np.float64],
    sign: float,
    total: NDArray[np.float64],
    scatter: NDArray[np.float64],
    isa: str = "auto",
) -> None: ...
def scatter_covariance(
    total: NDArray[np.float64], scatter: NDArray[np.float64], n: float
) -> NDArray[np.float64]: ...
def langevin(
    position: NDArray[np.float64],
    strength: NDArray[np.float64],
    base: NDArray[np.float64],
    id: NDArray[np.int64],
    first: NDArray[np.int64],
    steps: NDArray[np.int64],
    event_begin: NDArray[np.int64],
    event_step: NDArray[np.int64],
    event_gain: NDArray[np.float64],
    event_base: NDArray[np.float64],
    *,
    temperature: float,
    dt: float,
    drift: float,
    slope: float,
    most: float,
    decay: float,
    seed: int,
) -> None: ...
def langevin_noise(seed: int, id: int, step: int, dim: int) -> NDArray[np.float64]: ...

small_svd_limit: int

def small_svd(
    a: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]: ...
def downdate_core(
    s: NDArray[np.float64], p: NDArray[np.float64], slack: float
) -> NDArray[np.float64] | None: ...
def token_sensitivity(
    gradient: NDArray[np.float32], embedding: NDArray[np.float32], isa: str = "auto"
) -> NDArray[np.float64]: ...
def token_smooth(values: NDArray[np.float64], width: int) -> NDArray[np.float64]: ...
def token_pool(
    values: NDArray[np.float64], unit_of: NDArray[np.int64], units: int, how: int
) -> NDArray[np.float64]: ...
def fill_gaps(
    entry: NDArray[np.int64], segments: NDArray[np.int64], gap: int
) -> NDArray[np.int64]: ...
def largest_size(
    entry: NDArray[np.int64], costs: NDArray[np.float64], steps: int, budget: float
) -> int: ...
def max_member_assign(
    arrays: dict[str, NDArray[Any]],
    row_count: int,
    atom_count: int,
    count: int,
    threshold: float,
    route: int,
    isa: str = "auto",
) -> tuple[int, NDArray[np.float64], NDArray[np.bool_]]: ...
def max_member_nearest(
    arrays: dict[str, NDArray[Any]],
    row_count: int,
    atom_count: int,
    rows: NDArray[np.float32],
    route: int,
    isa: str = "auto",
) -> tuple[NDArray[np.int64], NDArray[np.float64]]: ...
def max_member_rebuild(
    arrays: dict[str, NDArray[Any]],
    row_count: int,
    atom_count: int,
    dirty: NDArray[np.bool_],
    all_rows: bool,
    isa: str = "auto",
) -> None: ...

max_sim_most_dims: int

def max_sim(
    question: NDArray[np.int8],
    rows: NDArray[np.uint8],
    counts: NDArray[np.int64],
    isa: str = "auto",
) -> NDArray[np.int32]: ...

"""Scene expansion: what stands around a found turn comes along with it."""

from __future__ import annotations

import numpy as np

from riemem.retrieval.corpus import CorpusView, Floats, Mask

__all__ = ["scene_gains"]

#: Found turns whose scenes are opened.
SEEDS = 10
#: Turns on each side that belong to a scene.
_SIDE = 2


def scene_gains(scores: Floats, view: CorpusView, passes: Mask, share: float) -> Floats:
    """Return what each row gains; shape (n,).

    A turn within two turns of one of the ten best is lifted to `share` of that one's score, if
    it has less.
    """
    lifted = scores.copy()
    rows = np.flatnonzero(passes)
    best = rows[np.lexsort((view.ids[rows], -scores[rows]))[:SEEDS]]
    n = len(view)
    for seed in best:
        for side in (view.beside.before, view.beside.after):
            for distance in range(_SIDE):
                row = int(side[distance][seed])
                if row < n and passes[row]:
                    lifted[row] = max(lifted[row], share * scores[seed])
    gains: Floats = lifted - scores
    return gains

"""When the memories were said: how many at a time, and which atoms or sessions they belong to."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

from riemem.errors import ArgumentError
from riemem.memory import Memory
from riemem.plots.groups import Groups, group
from riemem.plots.picture import COLOURS, OTHER, Picture, cut, new_figure, plural, whole_numbers
from riemem.store import Record

__all__ = ["timeline"]

_BINS = (
    (timedelta(days=2), 1 / 24, "hour"),
    (timedelta(days=92), 1.0, "day"),
    (timedelta(days=750), 7.0, "week"),
)
_MONTH = (30.4375, "month")


def timeline(
    memory: Memory,
    *,
    colour: str = "session",
    profile: str | None = None,
    session: str | None = None,
) -> Picture:
    """Draw how many memories were said when, above one row of marks for each large group.

    Parameters
    ----------
    memory : Memory
    colour : {"atom", "session", "speaker"}
        What the rows are; the eight largest have one each, the rest share the last.
    profile, session : str, optional

    Returns
    -------
    Picture
        ``summary``: ``memories``, ``first``, ``last``, ``bin``, ``groups``.

    Raises
    ------
    ArgumentError
        There is no memory.
    """
    records = memory.list(profile=profile, session=session)
    if not records:
        raise ArgumentError("plot: expected at least one memory, got none")
    times = [datetime.fromisoformat(record.when) for record in records]
    groups = group(memory, records, colour, profile)
    width, unit = _bin(times[-1] - times[0])
    tips: dict[str, list[str]] = {}
    with new_figure(9.0, 5.4) as figure:
        top, bottom = figure.subplots(2, 1, sharex=True, height_ratios=(1, 1.5))
        _draw_counts(top, records, times, groups, width)
        top.set(ylabel=f"memories a {unit}", title="How many")
        whole_numbers(top.yaxis)
        for row in (*range(len(groups.names)), -1):
            chosen = [i for i, record in enumerate(records) if groups.of[record.id] == row]
            if not chosen:
                continue
            name = f"row{row % (len(COLOURS) + 1)}"
            tips[name] = [_tip(records[i]) for i in chosen]
            bottom.scatter(
                [times[i] for i in chosen], [row % (len(groups.names) + 1)] * len(chosen), s=18,
                marker="|", linewidths=1.2, color=OTHER if row < 0 else COLOURS[row], gid=name,
            )  # fmt: skip
        names = list(groups.labels)
        names += [f"others ({groups.rest})"] if groups.rest else []
        bottom.set_yticks(range(len(names)), names)
        bottom.set_ylim(len(names) - 0.5, -0.5)
        bottom.set(xlabel="time (UTC)")
        figure.autofmt_xdate(rotation=0, ha="center")
    first, last = records[0].when, records[-1].when
    return Picture(
        "Time line of the memories",
        f"{plural(len(records), 'memory', 'memories')} from {first[:10]} to {last[:10]}, "
        f"by {unit}; rows: {colour}.",
        figure,
        {
            "memories": len(records),
            "first": first,
            "last": last,
            "bin": unit,
            "colour": colour,
            "groups": list(groups.names),
        },
        tips,
        (colour, "memories", "first", "last"),
        tuple(_row(records, groups, position) for position in range(len(groups.names))),
    )


def _bin(span: timedelta) -> tuple[float, str]:
    """Return the width of a bar in days, and its name."""
    for longest, days, name in _BINS:
        if span <= longest:
            return days, name
    return _MONTH


def _draw_counts(
    axes: object, records: Sequence[Record], times: Sequence[datetime], groups: Groups, width: float
) -> None:
    import numpy as np
    from matplotlib import dates

    days = np.array([dates.date2num(time) for time in times])
    edges = np.arange(np.floor(days.min() / width) * width, days.max() + width, width)
    base = np.zeros(edges.size)
    for row in (*range(len(groups.names)), -1):
        own = days[[groups.of[record.id] == row for record in records]]
        counts, _ = np.histogram(own, [*edges, edges[-1] + width])
        axes.bar(  # type: ignore[attr-defined]
            edges, counts, width, bottom=base, align="edge", linewidth=0,
            color=OTHER if row < 0 else COLOURS[row],
        )  # fmt: skip
        base += counts
    axes.set_ylim(0, 1.08 * base.max())  # type: ignore[attr-defined]


def _row(records: Sequence[Record], groups: Groups, position: int) -> tuple[object, ...]:
    own = [record.when[:10] for record in records if groups.of[record.id] == position]
    return groups.names[position], len(own), own[0], own[-1]


def _tip(record: Record) -> str:
    return f"#{record.id}  {record.when[:16]}  {cut(record.text, 160)}"

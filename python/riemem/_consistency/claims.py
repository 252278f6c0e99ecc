"""One claim: who or what, which attribute, which value, when; and whether two can both hold."""

from __future__ import annotations

from typing import NamedTuple

from riemem._consistency.lexicon import IMMUTABLE
from riemem._consistency.text import number_of

__all__ = ["ALWAYS", "DAY", "Claim", "Confirmed", "alike", "confirm", "excludes"]

DAY = 86_400_000_000

#: Valid times in microseconds; a missing end is far away rather than None.
ALWAYS = (-(2**62), 2**62)

#: A state that was said to be otherwise so long ago may simply have changed.
PATIENCE = 14 * DAY


class Claim(NamedTuple):
    """What a text says of something.

    Attributes
    ----------
    subject, attribute, value : str
        In lower case, normalised.
    positive : bool
        False: the attribute does not have this value.
    single : bool
        The attribute has one value at a time; otherwise any number of them.
    first, last : int
        Valid from (inclusive) and to (exclusive), microseconds; :data:`ALWAYS` where not known.
    change : bool
        The words say that it was otherwise before.
    """

    subject: str
    attribute: str
    value: str
    positive: bool = True
    single: bool = False
    first: int = ALWAYS[0]
    last: int = ALWAYS[1]
    change: bool = False

    @property
    def words(self) -> str:
        """The claim as one line.

        Examples
        --------
        >>> Claim("dave", "residence", "porto").words
        'dave: residence = porto'
        """
        return f"{self.subject}: {self.attribute} {'=' if self.positive else '!='} {self.value}"


class Confirmed(NamedTuple):
    """Why two claims exclude each other: ``"contradiction"`` or ``"change"``, and the rule."""

    kind: str
    rule: str


def excludes(a: Claim, b: Claim) -> str:
    """Return why two claims about one attribute cannot both hold, or "" when they can.

    Time is not looked at here.

    Examples
    --------
    >>> excludes(Claim("x", "port", "80", single=True), Claim("x", "port", "81", single=True))
    'different values'
    >>> excludes(Claim("x", "likes", "tea"), Claim("x", "likes", "tea", positive=False))
    'said and denied'
    >>> excludes(Claim("x", "likes", "tea"), Claim("x", "likes", "milk"))
    ''
    """
    if (a.subject, a.attribute, a.single) != (b.subject, b.attribute, b.single):
        return ""
    if a.positive and b.positive:
        return "different values" if a.single and b.single and not alike(a.value, b.value) else ""
    if a.positive != b.positive and a.value == b.value:
        return "said and denied"
    return ""


def confirm(a: Claim, a_said: int, b: Claim, b_said: int) -> Confirmed | None:
    """Apply the rule that turns a candidate pair into a conflict, or return None.

    Both hold at some common moment of their valid times, they exclude each other, and neither was
    doubted (doubtful sentences make no claims). It is a change where the later one has a word of
    change or is a state said more than 14 days after the other, and a contradiction otherwise.

    Parameters
    ----------
    a, b : Claim
    a_said, b_said : int
        When they were said, microseconds.
    """
    why = excludes(a, b)
    if not why or max(a.first, b.first) >= min(a.last, b.last):
        return None
    later = a if a_said > b_said else b
    state = later.attribute not in IMMUTABLE and (a.first != ALWAYS[0] or b.first != ALWAYS[0])
    if later.change and a_said != b_said:
        return Confirmed("change", f"{why}, and the later one has a word of change")
    if state and abs(a_said - b_said) >= PATIENCE:
        return Confirmed("change", f"{why}, and time has passed")
    return Confirmed("contradiction", why)


def alike(a: str, b: str) -> bool:
    """Tell whether two values may be one: equal numbers, or one has all words of the other.

    Examples
    --------
    >>> alike("porto", "porto portugal"), alike("2", "2.0"), alike("porto", "lisbon")
    (True, True, False)
    """
    if a == b:
        return True
    x, y = number_of(a), number_of(b)
    if x is not None and y is not None:
        return x == y
    first, second = set(a.split()), set(b.split())
    return first <= second or second <= first

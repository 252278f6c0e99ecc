"""Word lists behind the protection rules; all lower case, apostrophes straight."""

from __future__ import annotations

__all__ = [
    "CONNECTORS",
    "FUNCTION_WORDS",
    "MONTHS",
    "NEGATIONS",
    "NEGATION_CHARACTERS",
    "RELATIVE_DAYS",
    "TIME_NOUNS",
    "WEEKDAYS",
    "WRITTEN_NEGATIONS",
]


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# What turns a statement round, in English, German, French, Spanish, Portuguese and Italian; Dutch,
# Swedish, Danish, Norwegian; Polish, Russian, Ukrainian; Greek, Turkish, Arabic, Hebrew, Hindi;
# Vietnamese, Indonesian and Korean. Words that mean something else in English are left out.
NEGATIONS = _words(
    "not no never none nobody nothing nowhere neither nor cannot cant wont dont doesnt didnt "
    "isnt arent wasnt werent without unless except only hardly barely nicht kein keine keinen "
    "keinem keiner nie niemals ohne ne pas jamais sans sauf nunca jamás tampoco não non mai "
    "niet geen nooit zonder niemand niets inte ingen inget aldrig utan ikke intet aldri uten uden "
    "nigdy bez nikt nic не нет ни никогда никто ничего нельзя без ні немає ніколи δεν μην όχι ποτέ "
    "χωρίς değil yok hiç asla لا لم لن ليس ليست بدون לא אין בלי नहीं मत không chưa đừng chẳng "
    "tidak bukan jangan tanpa belum 안 못"
)
# Inside words, or where no spaces show where one begins: Japanese, Thai, Korean.
WRITTEN_NEGATIONS = (
    "ない",
    "なかっ",
    "なく",
    "ません",
    "ずに",
    "ไม่",
    "อย่า",
    "않",
    "없",
    "못하",
    "아니",
)
NEGATION_CHARACTERS = frozenset("不没沒無无未勿非莫")

CONNECTORS = _words(
    "but because although though however therefore since before after while until if when then "
    "so thus hence whereas despite instead otherwise whether"
)

# Words that carry grammar and not content: least worth a token, and never the head of a negation.
FUNCTION_WORDS = _words(
    "a an the this that these those i me my mine myself you your yours yourself he him his himself "
    "she her hers herself it its itself we us our ours ourselves they them their theirs themselves "
    "who whom whose which what is am are was were be been being do does did doing done have has "
    "had having will would shall should can could may might must of at by for with about against "
    "between into through during to from up down in out on off over under again further then once "
    "and or as than too very just so such own same other some any all both each few more most "
    "here there how why where when while if because until but also really quite even still yet "
    "i'm i've i'd i'll you're you've you'd you'll he's she's it's we're we've we'd we'll they're "
    "they've they'd they'll that's there's what's let's who's here's how's oh well yeah yes hey hi "
    "hello wow ok okay sure thanks thank"
)

WEEKDAYS = _words(
    "monday tuesday wednesday thursday friday saturday sunday mondays tuesdays wednesdays "
    "thursdays fridays saturdays sundays"
)
MONTHS = _words(
    "january february march april may june july august september october november december "
    "jan feb mar apr jun jul aug sep sept oct nov dec"
)
RELATIVE_DAYS = _words("today yesterday tomorrow tonight")
TIME_NOUNS = _words(
    "day days night nights morning afternoon evening week weeks weekend weekends fortnight month "
    "months year years decade decades spring summer autumn fall winter hour hours minute minutes"
)

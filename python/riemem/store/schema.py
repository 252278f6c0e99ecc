"""The tables of a store, as released; changes are made in :mod:`riemem.store.migrations`."""

from __future__ import annotations

__all__ = [
    "APPLICATION_ID",
    "ATOMS",
    "DOUBTS",
    "MIN_SQLITE",
    "MONTHS",
    "PAGE_SIZE",
    "SCHEMA_V1",
    "SEGMENTS",
    "SENSITIVITIES",
    "TOKEN_VECTORS",
    "USES",
    "WORDS_BY_WRITER",
]

#: Written into the header of every store ("RIEM" in ASCII), so that a stranger's database is told
#: apart before anything is read or written.
APPLICATION_ID = 0x5249454D

#: STRICT tables came with 3.37.
MIN_SQLITE = (3, 37, 0)

#: Five 384-d float32 vectors a page; with SQLite's own 4096 it would be two, a quarter wasted.
PAGE_SIZE = 8192

# memories.id and vectors.id are AUTOINCREMENT: an id that was once given is never given again, so
# a search that scored a memory which is then forgotten can never show another memory's text.
#
# `revision` is the number of the transaction that wrote a row. Together with `forgotten` (which
# holds numbers only) it lets an open store follow other processes without reading everything.
#
# `labels` holds each top-level metadata pair as canonical JSON, so that a filter is an index look
# up and compares JSON values exactly, NUL characters included.
#
# `words` is what the full-text index indexes. It is a view, so the index can be checked against
# it and rebuilt from it; triggers keep the index in the transaction that changes a memory.
MONTHS = (
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
)
_MONTH_CASES = " ".join(f"WHEN '{i + 1:02d}' THEN '{name}'" for i, name in enumerate(MONTHS))

SCHEMA_V1 = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value ANY NOT NULL) STRICT, WITHOUT ROWID",
    """CREATE TABLE migrations (
        version INTEGER PRIMARY KEY, name TEXT NOT NULL, applied_at INTEGER NOT NULL
    ) STRICT""",
    """CREATE TABLE memories (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        profile TEXT NOT NULL,
        session TEXT,
        speaker TEXT,
        text TEXT NOT NULL,
        metadata TEXT NOT NULL DEFAULT '{}',
        key TEXT,
        observed_at INTEGER NOT NULL,
        created_at INTEGER NOT NULL,
        updated_at INTEGER NOT NULL,
        revision INTEGER NOT NULL
    ) STRICT""",
    "CREATE UNIQUE INDEX memories_key ON memories (profile, key) WHERE key IS NOT NULL",
    "CREATE INDEX memories_time ON memories (profile, observed_at)",
    "CREATE INDEX memories_session ON memories (profile, session)",
    "CREATE INDEX memories_revision ON memories (revision)",
    """CREATE TABLE vectors (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        memory_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
        chunk INTEGER NOT NULL,
        vector BLOB NOT NULL,
        UNIQUE (memory_id, chunk)
    ) STRICT""",
    """CREATE TABLE labels (
        memory_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
        key TEXT NOT NULL,
        value TEXT NOT NULL,
        PRIMARY KEY (memory_id, key)
    ) STRICT, WITHOUT ROWID""",
    "CREATE INDEX labels_pair ON labels (key, value)",
    "CREATE TABLE forgotten (id INTEGER PRIMARY KEY, revision INTEGER NOT NULL) STRICT",
    "CREATE INDEX forgotten_revision ON forgotten (revision)",
    f"""CREATE VIEW words (id, speaker, text, day) AS
        SELECT id, coalesce(speaker, ''), text,
            strftime('%d', observed_at / 1000000, 'unixepoch') || ' '
            || CASE strftime('%m', observed_at / 1000000, 'unixepoch') {_MONTH_CASES} END || ' '
            || strftime('%Y', observed_at / 1000000, 'unixepoch')
        FROM memories""",
    """CREATE VIRTUAL TABLE memories_fts USING fts5 (
        speaker, text, day, content='words', content_rowid='id', tokenize='porter unicode61'
    )""",
    """CREATE TRIGGER words_added AFTER INSERT ON memories BEGIN
        INSERT INTO memories_fts (rowid, speaker, text, day)
            SELECT id, speaker, text, day FROM words WHERE id = new.id;
    END""",
    """CREATE TRIGGER words_removed BEFORE DELETE ON memories BEGIN
        INSERT INTO memories_fts (memories_fts, rowid, speaker, text, day)
            SELECT 'delete', id, speaker, text, day FROM words WHERE id = old.id;
    END""",
    """CREATE TRIGGER words_changing BEFORE UPDATE OF speaker, text, observed_at ON memories BEGIN
        INSERT INTO memories_fts (memories_fts, rowid, speaker, text, day)
            SELECT 'delete', id, speaker, text, day FROM words WHERE id = old.id;
    END""",
    """CREATE TRIGGER words_changed AFTER UPDATE OF speaker, text, observed_at ON memories BEGIN
        INSERT INTO memories_fts (rowid, speaker, text, day)
            SELECT id, speaker, text, day FROM words WHERE id = new.id;
    END""",
    "INSERT INTO meta (key, value) VALUES ('revision', 0)",
)

# A trigger that writes to the word index makes a segment of the index per row, which costs seven
# times the rest of the row. The writer now indexes all rows of a transaction in one statement.
# What changes or removes a memory still goes through triggers.
WORDS_BY_WRITER = ("DROP TRIGGER words_added",)

# The atom of each memory (riemem.store.atoms). `arrival` is the order in which members came, which
# is the order in which centroids are summed.
ATOMS = (
    """CREATE TABLE atoms (
        memory_id INTEGER PRIMARY KEY REFERENCES memories (id) ON DELETE CASCADE,
        atom INTEGER NOT NULL,
        arrival INTEGER NOT NULL UNIQUE
    ) STRICT""",
    "CREATE INDEX atoms_atom ON atoms (atom)",
)

# What a language model said about a memory's text (riemem.store.sensitivities). The key is a hash
# of text, model and condition; a text that changes takes its rows away.
SENSITIVITIES = (
    """CREATE TABLE sensitivities (
        memory_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
        key TEXT NOT NULL,
        value BLOB NOT NULL,
        PRIMARY KEY (memory_id, key)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TRIGGER sensitivities_stale AFTER UPDATE OF speaker, text ON memories BEGIN
        DELETE FROM sensitivities WHERE memory_id = old.id;
    END""",
)

# What follows from many memories together and is slow to make (riemem.store.segments): a row
# stands for all memories of a profile with ids from `first` to `last`, and goes as soon as one of
# them changes or is forgotten, in that transaction. Rows of the kind "metric" follow the vectors.
SEGMENTS = (
    """CREATE TABLE segments (
        profile TEXT NOT NULL,
        kind TEXT NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        count INTEGER NOT NULL,
        maker TEXT NOT NULL,
        checksum INTEGER NOT NULL,
        data BLOB NOT NULL
    ) STRICT""",
    "CREATE UNIQUE INDEX segments_range ON segments (profile, first, last, kind)",
    """CREATE TRIGGER segments_forgotten AFTER DELETE ON memories BEGIN
        DELETE FROM segments
            WHERE profile = old.profile AND first <= old.id AND last >= old.id;
    END""",
    """CREATE TRIGGER segments_stale
        AFTER UPDATE OF id, profile, session, speaker, text, metadata, observed_at ON memories
    BEGIN
        DELETE FROM segments WHERE profile IN (old.profile, new.profile)
            AND first <= max(old.id, new.id) AND last >= min(old.id, new.id);
    END""",
    """CREATE TRIGGER segments_vector_gone AFTER DELETE ON vectors BEGIN
        DELETE FROM segments
            WHERE kind = 'metric' AND first <= old.memory_id AND last >= old.memory_id;
    END""",
    """CREATE TRIGGER segments_vector_stale AFTER UPDATE ON vectors BEGIN
        DELETE FROM segments
            WHERE kind = 'metric' AND first <= old.memory_id AND last >= old.memory_id;
    END""",
)

# What happened to memories since they were stored (riemem.store.uses), how awake they are
# (riemem.store.awake), and what confirmed uses taught about their vectors
# (riemem.store.precisions).
#
# `uses` is numbered per memory from 1 without gaps, so that a log from which something was lost
# shows it. `counts_from` is `at`, or the last maintenance if that was later. A memory that is said
# to be of another time lives its life again; one that is embedded again begins to learn again.
USES = (
    """CREATE TABLE uses (
        memory_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
        number INTEGER NOT NULL,
        at INTEGER NOT NULL,
        counts_from INTEGER NOT NULL,
        kind TEXT NOT NULL,
        importance REAL,
        PRIMARY KEY (memory_id, number)
    ) STRICT, WITHOUT ROWID""",
    """CREATE TABLE lifecycle (
        memory_id INTEGER PRIMARY KEY REFERENCES memories (id) ON DELETE CASCADE,
        state TEXT NOT NULL,
        step INTEGER NOT NULL,
        strength REAL NOT NULL,
        position BLOB NOT NULL,
        uses INTEGER NOT NULL
    ) STRICT""",
    "CREATE INDEX lifecycle_archived ON lifecycle (memory_id) WHERE state = 'archived'",
    """CREATE TRIGGER lifecycle_stale AFTER UPDATE OF observed_at ON memories
    WHEN old.observed_at <> new.observed_at BEGIN
        DELETE FROM lifecycle WHERE memory_id = old.id;
    END""",
    """CREATE TABLE precisions (
        memory_id INTEGER PRIMARY KEY REFERENCES memories (id) ON DELETE CASCADE,
        gained BLOB NOT NULL,
        confirmed INTEGER NOT NULL
    ) STRICT""",
    """CREATE TRIGGER precisions_stale AFTER DELETE ON vectors WHEN old.chunk = 0 BEGIN
        DELETE FROM precisions WHERE memory_id = old.memory_id;
    END""",
)

# What memories claim (riemem.store.claims), which claims exclude each other, what was decided about
# that, where memories come from and how far they are trusted (riemem.store.trust), and which
# answers were useful (riemem.store.feedback). Every row belongs to a memory and goes with it.
#
# `history` and `decisions` only grow: a trigger refuses changes, and removals as long as the memory
# is there. A removal that follows the memory's own (by the foreign key) passes.
DOUBTS = (
    """CREATE TABLE claims (
        id INTEGER PRIMARY KEY,
        memory_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
        profile TEXT NOT NULL,
        subject TEXT NOT NULL,
        attribute TEXT NOT NULL,
        value TEXT NOT NULL,
        positive INTEGER NOT NULL,
        single INTEGER NOT NULL,
        first INTEGER NOT NULL,
        last INTEGER NOT NULL,
        change INTEGER NOT NULL,
        said INTEGER NOT NULL
    ) STRICT""",
    "CREATE INDEX claims_about ON claims (profile, subject, attribute, said)",
    "CREATE INDEX claims_value ON claims (profile, subject, attribute, value)",
    "CREATE INDEX claims_name ON claims (profile, value) WHERE attribute = 'name'",
    "CREATE INDEX claims_memory ON claims (memory_id)",
    """CREATE TABLE conflicts (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        profile TEXT NOT NULL,
        kind TEXT NOT NULL,
        rule TEXT NOT NULL,
        kappa REAL NOT NULL,
        older INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
        newer INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
        older_claim INTEGER NOT NULL REFERENCES claims (id) ON DELETE CASCADE,
        newer_claim INTEGER NOT NULL REFERENCES claims (id) ON DELETE CASCADE,
        decision INTEGER,
        UNIQUE (older_claim, newer_claim)
    ) STRICT""",
    "CREATE INDEX conflicts_older ON conflicts (older)",
    "CREATE INDEX conflicts_newer ON conflicts (newer)",
    "CREATE INDEX conflicts_newer_claim ON conflicts (newer_claim)",
    """CREATE TABLE decisions (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        conflict INTEGER NOT NULL REFERENCES conflicts (id) ON DELETE CASCADE,
        parent INTEGER,
        state TEXT NOT NULL,
        keep INTEGER,
        made_by TEXT NOT NULL,
        at INTEGER NOT NULL
    ) STRICT""",
    "CREATE INDEX decisions_conflict ON decisions (conflict)",
    """CREATE TRIGGER decisions_grow BEFORE UPDATE ON decisions BEGIN
        SELECT raise(ABORT, 'decisions is append-only');
    END""",
    """CREATE TRIGGER decisions_stay BEFORE DELETE ON decisions
    WHEN EXISTS (SELECT 1 FROM conflicts WHERE id = old.conflict) BEGIN
        SELECT raise(ABORT, 'decisions is append-only');
    END""",
    """CREATE VIEW supersedes (conflict, profile, newer, older, older_claim, newer_claim) AS
        SELECT c.id, c.profile, d.keep, CASE d.keep WHEN c.newer THEN c.older ELSE c.newer END,
            CASE d.keep WHEN c.newer THEN c.older_claim ELSE c.newer_claim END,
            CASE d.keep WHEN c.newer THEN c.newer_claim ELSE c.older_claim END
        FROM conflicts c JOIN decisions d ON d.id = c.decision WHERE d.state = 'superseded'""",
    """CREATE TABLE provenance (
        memory_id INTEGER PRIMARY KEY REFERENCES memories (id) ON DELETE CASCADE,
        source TEXT,
        valid_from INTEGER,
        valid_to INTEGER,
        confirmed INTEGER NOT NULL DEFAULT 0,
        contradicted INTEGER NOT NULL DEFAULT 0,
        CHECK (valid_from IS NULL OR valid_to IS NULL OR valid_from < valid_to)
    ) STRICT""",
    """CREATE TABLE history (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        memory_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
        at INTEGER NOT NULL,
        event TEXT NOT NULL,
        detail TEXT NOT NULL DEFAULT '{}'
    ) STRICT""",
    "CREATE INDEX history_memory ON history (memory_id)",
    """CREATE TRIGGER history_grows BEFORE UPDATE ON history BEGIN
        SELECT raise(ABORT, 'history is append-only');
    END""",
    """CREATE TRIGGER history_stays BEFORE DELETE ON history
    WHEN EXISTS (SELECT 1 FROM memories WHERE id = old.memory_id) BEGIN
        SELECT raise(ABORT, 'history is append-only');
    END""",
    """CREATE TABLE feedback (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        profile TEXT NOT NULL,
        memory_id INTEGER NOT NULL REFERENCES memories (id) ON DELETE CASCADE,
        query TEXT NOT NULL,
        useful INTEGER NOT NULL,
        shares TEXT NOT NULL,
        at INTEGER NOT NULL
    ) STRICT""",
    "CREATE INDEX feedback_memory ON feedback (memory_id)",
)

# The vectors of memories' tokens (riemem.store.token_vectors), in stores that keep them; which form
# they have stands in `meta`. They were made in the same pass as the vectors of their memory, and go
# with them.
TOKEN_VECTORS = (
    """CREATE TABLE token_vectors (
        memory_id INTEGER PRIMARY KEY REFERENCES memories (id) ON DELETE CASCADE,
        data BLOB NOT NULL
    ) STRICT""",
    """CREATE TRIGGER token_vectors_stale AFTER DELETE ON vectors WHEN old.chunk = 0 BEGIN
        DELETE FROM token_vectors WHERE memory_id = old.memory_id;
    END""",
)

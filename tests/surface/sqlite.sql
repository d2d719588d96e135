application_id: 1853060466
user_version: 1
CREATE TABLE points (
            row INTEGER PRIMARY KEY AUTOINCREMENT,
            id TEXT NOT NULL UNIQUE,
            label TEXT NOT NULL,
            vector BLOB NOT NULL
                CHECK (typeof(vector) = 'blob' AND length(vector) = 12)
        )
CREATE TABLE sqlite_sequence(name,seq)
CREATE INDEX points_by_label ON points (label, id)
CREATE TABLE pictures (
            row INTEGER PRIMARY KEY REFERENCES points (row) ON DELETE CASCADE,
            picture BLOB NOT NULL
        )
CREATE TABLE notes (name TEXT PRIMARY KEY, content BLOB NOT NULL) WITHOUT ROWID
CREATE TABLE settings (name TEXT PRIMARY KEY, value) WITHOUT ROWID

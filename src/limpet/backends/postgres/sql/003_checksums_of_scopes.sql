-- Waits for those who write, which read this table, and lets no other commit.
LOCK TABLE limpet.schema_migrations IN ACCESS EXCLUSIVE MODE;

ALTER TABLE limpet.sessions ADD COLUMN checksum bigint;
ALTER TABLE limpet.scopes ADD COLUMN checksum bigint;
COMMENT ON COLUMN limpet.sessions.checksum IS 'Over all of the row. NULL: it was written before version 3.';
COMMENT ON COLUMN limpet.scopes.checksum IS 'Over all of the row but codec and stamps, and the name of its session. NULL: it was last written before version 3.';

-- The views show NULL for a value that begins with 01, which is not JSON: it is encrypted.

CREATE OR REPLACE VIEW limpet.snapshot_list AS
SELECT x.session_id, s.kind, s.scope_id, n.id, n.parent_id, n.status, n.kept,
       n.seq = s.head_seq AS is_head,
       CASE WHEN substring(n.labels FOR 1) <> '\x01' THEN convert_from(n.labels, 'UTF8')::json END AS labels,
       CASE WHEN substring(n.metadata FOR 1) <> '\x01' THEN convert_from(n.metadata, 'UTF8')::json END AS metadata,
       to_timestamp(n.created_at / 1000000.0) AS created,
       to_timestamp(n.updated_at / 1000000.0) AS updated,
       n.size AS state_bytes, octet_length(b.body) AS stored_bytes,
       CASE WHEN substring(n.forked_from FOR 1) <> '\x01' THEN convert_from(n.forked_from, 'UTF8')::json END AS forked_from,
       n.seq
  FROM limpet.snapshots AS n
  JOIN limpet.scopes AS s ON s.pk = n.scope_pk
  JOIN limpet.sessions AS x ON x.pk = s.session_pk
  LEFT JOIN limpet.bodies AS b ON b.seq = n.seq;

CREATE OR REPLACE VIEW limpet.note_list AS
SELECT x.session_id, s.kind, s.scope_id, nullif(o.on_id, '') AS on_id, o.name,
       -- What is compressed is a matter for programs.
       CASE WHEN substring(o.value FOR 4) <> '\x28b52ffd' AND substring(o.value FOR 1) <> '\x01'
            THEN convert_from(o.value, 'UTF8')::json END AS value,
       to_timestamp(o.updated_at / 1000000.0) AS updated
  FROM limpet.notes AS o
  JOIN limpet.scopes AS s ON s.pk = o.scope_pk
  JOIN limpet.sessions AS x ON x.pk = s.session_pk;
COMMENT ON VIEW limpet.note_list IS 'The notes, readable but for long ones and encrypted ones.';

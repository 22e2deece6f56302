-- The statements about bodies alone. Several keys come as one array. The bodies of a chain come in
-- no order; UNION, not UNION ALL, so that a circle, which only damage can make, ends.

-- name: chain
WITH RECURSIVE chain (seq, base) AS (
    SELECT seq, base FROM limpet.bodies WHERE seq = %(seq)s
    UNION
    SELECT b.seq, b.base FROM chain AS c JOIN limpet.bodies AS b ON b.seq = c.base
     WHERE c.base IS DISTINCT FROM %(until)s::bigint
)
SELECT b.seq, b.base, b.encoding, b.body, b.checksum
  FROM chain AS c
  JOIN limpet.bodies AS b ON b.seq = c.seq;

-- name: links
WITH RECURSIVE chain (seq, base) AS (
    SELECT seq, base FROM limpet.bodies WHERE seq = %s
    UNION
    SELECT b.seq, b.base FROM chain AS c JOIN limpet.bodies AS b ON b.seq = c.base
)
SELECT seq, base FROM chain;

-- name: row
SELECT seq, base, encoding, body, checksum FROM limpet.bodies WHERE seq = %s;

-- name: glance
-- octet_length() does not fetch what it measures.
SELECT seq, base, encoding, CASE WHEN octet_length(body) <= 65536 THEN body END, checksum
  FROM limpet.bodies WHERE seq = %s;

-- name: dependents
SELECT b.seq, b.base, b.encoding FROM limpet.bodies AS b WHERE b.base = ANY (%s::bigint[]);

-- name: dependents_of_group
-- The same for a chain down to one on top of `until`.
WITH RECURSIVE chain (seq, base) AS (
    SELECT seq, base FROM limpet.bodies WHERE seq = %(seq)s
    UNION
    SELECT b.seq, b.base FROM chain AS c JOIN limpet.bodies AS b ON b.seq = c.base
     WHERE c.base IS DISTINCT FROM %(until)s::bigint
)
SELECT b.seq, b.base, b.encoding FROM chain AS c JOIN limpet.bodies AS b ON b.base = c.seq;

-- name: listed_of_group
-- Those of such a chain, and `until` itself, that are the state of a snapshot.
WITH RECURSIVE chain (seq, base) AS (
    SELECT seq, base FROM limpet.bodies WHERE seq = %(seq)s
    UNION
    SELECT b.seq, b.base FROM chain AS c JOIN limpet.bodies AS b ON b.seq = c.base
     WHERE c.base IS DISTINCT FROM %(until)s::bigint
)
SELECT n.seq FROM chain AS c JOIN limpet.snapshots AS n ON n.seq = c.seq
 UNION ALL
SELECT n.seq FROM limpet.snapshots AS n WHERE n.seq = %(until)s::bigint;

-- name: bases
SELECT DISTINCT b.base
  FROM limpet.bodies AS b
 WHERE b.seq = ANY (%s::bigint[]) AND b.base IS NOT NULL;

-- name: listed
SELECT n.seq FROM limpet.snapshots AS n WHERE n.seq = ANY (%s::bigint[]);

-- name: unused
SELECT b.seq, b.base
  FROM limpet.bodies AS b
 WHERE b.seq = ANY (%s::bigint[])
   AND NOT EXISTS (SELECT 1 FROM limpet.snapshots AS n WHERE n.seq = b.seq)
   AND NOT EXISTS (SELECT 1 FROM limpet.bodies AS d WHERE d.base = b.seq);

-- name: lock
SELECT seq FROM limpet.bodies WHERE seq = ANY (%s::bigint[]) ORDER BY seq FOR UPDATE;

-- name: checksums
SELECT b.seq, b.checksum FROM limpet.bodies AS b WHERE b.seq = ANY (%s::bigint[]) ORDER BY b.seq;

-- name: add
INSERT INTO limpet.bodies (seq, base, encoding, body, checksum) VALUES (%s, %s, %s, %s, %s);

-- name: add_many
INSERT INTO limpet.bodies (seq, base, encoding, body, checksum)
SELECT * FROM unnest(%s::bigint[], %s::bigint[], %s::bigint[], %s::bytea[], %s::bigint[]);

-- name: remove
DELETE FROM limpet.bodies WHERE seq = ANY (%s::bigint[]);

-- The statements about bodies alone. Several keys come as one JSON array. The bodies of a chain come
-- in no order; UNION, not UNION ALL, so that a circle, which only damage can make, ends.

-- name: chain
WITH RECURSIVE chain (seq, base) AS (
    SELECT seq, base FROM bodies WHERE seq = :seq
    UNION
    SELECT b.seq, b.base FROM chain AS c JOIN bodies AS b ON b.seq = c.base WHERE c.base IS NOT :until
)
SELECT b.seq, b.base, b.encoding, b.body, b.checksum
  FROM chain AS c
 CROSS JOIN bodies AS b ON b.seq = c.seq;

-- name: links
WITH RECURSIVE chain (seq, base) AS (
    SELECT seq, base FROM bodies WHERE seq = ?
    UNION
    SELECT b.seq, b.base FROM chain AS c JOIN bodies AS b ON b.seq = c.base
)
SELECT seq, base FROM chain;

-- name: row
SELECT seq, base, encoding, body, checksum FROM bodies WHERE seq = ?;

-- name: glance
-- length() reads no more than a row's header.
SELECT seq, base, encoding, CASE WHEN length(body) <= 65536 THEN body END, checksum
  FROM bodies WHERE seq = ?;

-- name: dependents
SELECT b.seq, b.base, b.encoding
  FROM json_each(?) AS w
 CROSS JOIN bodies AS b ON b.base = w.value;

-- name: bases
SELECT DISTINCT b.base
  FROM json_each(?) AS w
 CROSS JOIN bodies AS b ON b.seq = w.value
 WHERE b.base IS NOT NULL;

-- name: listed
SELECT n.seq
  FROM json_each(?) AS w
 CROSS JOIN snapshots AS n ON n.seq = w.value;

-- name: unused
SELECT b.seq, b.base
  FROM json_each(?) AS w
 CROSS JOIN bodies AS b ON b.seq = w.value
 WHERE NOT EXISTS (SELECT 1 FROM snapshots AS n WHERE n.seq = b.seq)
   AND NOT EXISTS (SELECT 1 FROM bodies AS d WHERE d.base = b.seq);

-- name: checksums
SELECT b.seq, b.checksum
  FROM json_each(?) AS w
 CROSS JOIN bodies AS b ON b.seq = w.value
 ORDER BY b.seq;

-- name: add
INSERT INTO bodies (seq, base, encoding, body, checksum) VALUES (?, ?, ?, ?, ?);

-- name: remove
DELETE FROM bodies WHERE seq IN (SELECT value FROM json_each(?));

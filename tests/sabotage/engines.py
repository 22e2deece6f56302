"""Mistakes in the engine, its storages and the API."""

from tests.sabotage.defect import Defect

MEMORY = "tests/conformance/test_memory.py"
SQLITE = "tests/conformance/test_sqlite.py"
DIRECTORY = "tests/conformance/test_directory.py"

RULES = (
    Defect(
        "an update replaces another version than it has read",
        "core/commits.py",
        "        if existing.revision != commit.replaces:\n",
        "        if existing.seq != ids.seq_of(commit.replaces):\n",
        (f"{MEMORY} -k update",),
    ),
    Defect(
        "another body under an id is taken for a repetition",
        "core/commits.py",
        "        same = _same_facts(commit, existing) and same_body()\n",
        "        same = _same_facts(commit, existing)\n",
        (f"{MEMORY} -k the_same_id_again",),
    ),
    Defect(
        "a note is set though it has changed",
        "core/notes.py",
        "    if change.expect != found:\n",
        "    if change.expect is None and found is not None:\n",
        (f"{MEMORY} -k note",),
    ),
    Defect(
        "prune keeps one too many",
        "core/retention.py",
        "rank >= policy.keep_last and",
        "rank > policy.keep_last and",
        (f"{MEMORY} -k prun",),
    ),
    Defect(
        "a prefix leads to the next tenant",
        "core/ids.py",
        "        following = ord(prefix[at]) + 1\n",
        "        following = ord(prefix[at]) + 2\n",
        (f"{SQLITE} -k prefix",),
    ),
    Defect(
        "an id is not above those before it",
        "core/ids.py",
        "    if text > floor:\n        return text\n    above",
        "    if text:\n        return text\n    above",
        ("tests/unit/test_ids.py",),
    ),
    Defect(
        "two saves at one moment have one place",
        "core/ids.py",
        "(last >> PLACE_BITS) + 1)",
        "last >> PLACE_BITS)",
        (f"{MEMORY} -k strict_order",),
    ),
    Defect(
        "an append moves no other list",
        "core/deltas/delta.py",
        "key: (each[0] + len(fresh), each[1])",
        "key: (each[0], each[1])",
        ("tests/property/test_append_offsets.py",),
    ),
)

ENGINE = (
    Defect(
        "a save behind the head needs no lease",
        "engine/saving.py",
        "    if commit.fence is not None and commit.fence != record.fence:\n",
        "    if commit.fence is not None and record.fence is not None:\n",
        (f"{MEMORY} -k lease",),
    ),
    Defect(
        "a remembered state is given for another head",
        "engine/engine.py",
        "known.record == record and record.head == record.tip:",
        "record.head == record.tip:",
        ("tests/unit/test_continuing.py",),
    ),
    Defect(
        "a segment is remembered by its place alone",
        "engine/states.py",
        "        return key, row.last, len(row.blob), codec.checksum_of(row.blob)",
        "        return key, row.last, 0, 0",
        ("tests/unit/test_engine.py",),
    ),
    Defect(
        "a roll loses the oldest state",
        "engine/rolling.py",
        "for row in reversed(rows)], older)",
        "for row in reversed(rows[1:])], older)",
        (SQLITE,),
    ),
    Defect(
        "a roll is written though states changed since",
        "engine/rolling.py",
        "        if (record.pk, record.epoch) != (planned.pk, planned.epoch):\n",
        "        if record.pk != planned.pk:\n",
        ("tests/simulation/test_simulation.py -k promise_holds",),
    ),
    Defect(
        "deltas are applied in the wrong order",
        "engine/states.py",
        "                return apply_all(self.payload(row), steps[::-1])",
        "                return apply_all(self.payload(row), steps)",
        (MEMORY,),
    ),
    Defect(
        "a state is stored as a delta on what its base was",
        "engine/editing.py",
        "            base = known.get(base_seq) or replaced.get(base_seq) or ",
        "            base = ",
        ("tests/unit/test_engine.py",),
    ),
    Defect(
        "an old state may take the place of a new one",
        "engine/states.py",
        '    if nonce != expected and nonce != "" and expected:\n',
        "    if nonce != expected and not nonce and expected:\n",
        ("tests/unit/test_engine.py",),
    ),
    Defect(
        "an answer that was lost is taken for success",
        "engine/records.py",
        "    return at >= len(made) and versions[at - len(made) : at] == made",
        "    return True",
        ("tests/concurrency/test_lost_answers.py",),
    ),
    Defect(
        "an answer that was lost is a reason to do it again",
        "engine/engine.py",
        "            for each, result in reversed(attempts):\n",
        "            for each, result in attempts[:0]:\n",
        ("tests/simulation/test_simulation.py -k promise_holds",),
    ),
    Defect(
        "a deleted head uncovers nothing",
        "engine/editing.py",
        '            fields["head"] = uncovered',
        '            fields["head"] = None',
        (f"{MEMORY} -k uncover",),
    ),
    Defect(
        "a fork to another session shares its state",
        "engine/saving.py",
        " and ref.scope.session_id == commit.scope.session_id",
        "",
        ("tests/encryption/test_sql_keys.py",),
    ),
    Defect(
        "a redaction leaves what a killed one has replaced",
        "api/redacting.py",
        "        backend.delete_snapshots(self._key, [], fence=self._fence)",
        "        pass",
        ("tests/unit/test_objects_damage.py -k killed_redaction",),
    ),
    Defect(
        "a watch misses the last change",
        "api/watching.py",
        "                if self._revisions.get(info.scope) != info.revision:\n",
        "                if info.scope not in self._revisions:\n",
        (f"{MEMORY} -k watch", "tests/watching/test_wakeups.py"),
    ),
    Defect(
        "a watch polls what it does not follow yet",
        "api/watching.py",
        "self._follow()\n                active, is_complete = self._poll(sessions)\n",
        "active, is_complete = self._poll(sessions)\n                self._follow()\n",
        ("tests/watching/test_wakeups.py",),
    ),
    Defect(
        "a wake is lost",
        "backends/memory.py",
        "        self._reported.put(None)\n",
        "        pass\n",
        ("tests/watching/test_wakeups.py",),
    ),
)

CONTENT = (
    Defect(
        "every nonce is the same",
        "core/encryption.py",
        "self._keys.random(_NONCE_BYTES)",
        "bytes(_NONCE_BYTES)",
        ("tests/unit/test_encryption.py",),
    ),
    Defect(
        "what is encrypted is not bound to its place",
        "core/rows.py",
        '    return b"row %b%b" % (_facts(row, *scope), row.labels)',
        '    return b"row"',
        ("tests/encryption/test_sql_tampering.py",),
    ),
    Defect(
        "what is not encrypted is believed",
        "core/encryption.py",
        "            if self._keys.allow_plaintext:\n",
        "            if self._keys:\n",
        ("tests/unit/test_encryption.py", "tests/encryption/test_options.py"),
    ),
    Defect(
        "the checksum of a snapshot is not compared",
        "backends/sql/columns.py",
        "        is_sound = _row_sum(columns[:13], columns[14]) == columns[13]",
        "        is_sound = _row_sum(columns[:13], columns[14]) > -(2**63)",
        ("tests/unit/test_corrupt.py", "tests/unit/test_sql_check.py"),
    ),
    Defect(
        "the checksum of a snapshot leaves out its parent",
        "backends/sql/columns.py",
        "    facts = (pk, seq, id, rev, nonce, kept, parent_id, forked",
        "    facts = (pk, seq, id, rev, nonce, kept, forked",
        ("tests/unit/test_sql_check.py -k every_column",),
    ),
    Defect(
        "the checksum of a state is not compared",
        "backends/sql/columns.py",
        "        is_sound = _tail_sum(pk, seq, base, encoding, body) == checksum",
        "        is_sound = _tail_sum(pk, seq, base, encoding, body) > -(2**63)",
        ("tests/unit/test_corrupt.py", "tests/unit/test_sql_check.py"),
    ),
    Defect(
        "the checksum of a segment is not compared",
        "backends/sql/columns.py",
        "    if not _is_sound(checksum, _segment_sum, pk, first, last, body):\n",
        "    if not body:\n",
        ("tests/unit/test_sql_check.py",),
    ),
)

SQL = (
    Defect(
        "SQLite: a scope moves whatever its version is",
        "backends/sqlite/sql/queries.sql",
        " WHERE pk = ? AND version = ?;",
        " WHERE pk = ? AND version <= max(?, version);",
        ("tests/unit/test_continuing.py",),
    ),
    Defect(
        "PostgreSQL: a save whatever the version of its scope is",
        "backends/postgres/sql/queries.sql",
        "version = $17\n       AND NOT EXISTS (SELECT 1 FROM limpet.schema_migrations "
        "WHERE version > 0 /* newest */)\n       /* no_such_note */\n",
        "$17::bigint IS NOT NULL\n       /* no_such_note */\n",
        ("tests/unit/test_continuing.py",),
    ),
    Defect(
        "SQLite: a segment is looked for one place too late",
        "backends/sqlite/sql/queries.sql",
        "g.last_seq >= :value",
        "g.last_seq > :value",
        (SQLITE,),
    ),
    Defect(
        "SQLite: a shared state is dropped while a fork has it",
        "backends/sqlite/sql/queries.sql",
        "t.encoding = 2 AND substr(t.body, 1, 16) = shared.name",
        "t.encoding = 3 AND substr(t.body, 1, 16) = shared.name",
        ("tests/unit/test_continuing.py",),
    ),
    Defect(
        "SQLite: a commit is not synced",
        "backends/sqlite/file.py",
        'f"PRAGMA synchronous = {self._synchronous}"',
        '"PRAGMA synchronous = NORMAL"',
        ("tests/unit/test_sqlite_pool.py",),
    ),
    Defect(
        "SQLite: a write that is refused leaves some of it in the commit of others",
        "backends/sqlite/joined.py",
        '            conn.execute("ROLLBACK TO write")\n',
        "",
        ("tests/concurrency/test_sqlite_queue.py",),
    ),
    Defect(
        "an older version writes into an upgraded file",
        "backends/sqlite/file.py",
        "        if version > NEWEST:\n",
        "        if version < 0:\n",
        ("tests/unit/test_upgraded.py",),
    ),
    Defect(
        "the index of labels keeps what a snapshot had",
        "backends/sql/storage.py",
        "            if labels := label_values(row, cipher):\n",
        "            if not change.replace and (labels := label_values(row, cipher)):\n",
        (f"{SQLITE} -k asks_about_everything",),
    ),
    Defect(
        "a parent that is saved again is not known to have a child",
        "backends/sql/storage.py",
        '("set_apart", "remove_labels", "remove_snapshots")',
        '("remove_labels", "remove_snapshots")',
        ("tests/unit/test_continuing.py",),
    ),
)

BUCKETS = (
    Defect(
        "a file is not synced",
        "backends/buckets/directory/bucket.py",
        "                if self._sync:\n                    flush(handle)\n",
        "",
        ("tests/buckets/test_directory_faults.py",),
    ),
    Defect(
        "the folder of a new file is not synced",
        "backends/buckets/directory/bucket.py",
        "self._folders.flush(folder)\n        except OSError as cause:\n",
        "pass\n        except OSError as cause:\n",
        ("tests/buckets/test_directory_faults.py",),
    ),
    Defect(
        "a file is compared before the lock is held",
        "backends/buckets/directory/bucket.py",
        "            self._check(place, expect)\n            with _committing(place):\n",
        "            with _committing(place):\n",
        ("tests/buckets/test_directory_races.py",),
    ),
    Defect(
        "a file is replaced without the lock",
        "backends/buckets/directory/folders.py",
        "            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)\n",
        "",
        ("tests/buckets/test_directory_races.py",),
    ),
    Defect(
        "S3: an object is replaced without If-Match",
        "backends/buckets/s3/bucket.py",
        '        mode = {"e_tag": expect} if self._version == "e_tag" else {"version": expect}\n',
        '        mode = "overwrite"\n',
        ("tests/buckets/test_s3_faults.py -k busy_server",),
    ),
    Defect(
        "S3: an object is created without If-None-Match",
        "backends/buckets/s3/bucket.py",
        '            mode = "create"\n',
        '            mode = "overwrite"\n',
        ("tests/buckets/test_s3_faults.py -k busy_server",),
    ),
    Defect(
        "a replaced segment is left in the bucket",
        "backends/objects/storage.py",
        "        elif others:\n            self.files.delete(others)\n",
        "",
        ("tests/unit/test_objects_damage.py",),
    ),
    Defect(
        "a lost head is an empty scope",
        "backends/objects/files.py",
        "            if found is not None and self.is_lost(scope, path):\n",
        "            if found is not None and not path:\n",
        ("tests/unit/test_objects_damage.py",),
    ),
    Defect(
        "an object under another key is believed",
        "backends/objects/files.py",
        "        if keys.head_key(head.key) != path:\n",
        "        if not path:\n",
        ("tests/unit/test_objects_check.py",),
    ),
)

DEFECTS = (*RULES, *ENGINE, *CONTENT, *SQL, *BUCKETS)

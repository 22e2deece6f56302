"""Mistakes in what the conformance suite promises: its directed programs find each of them."""

from tests.sabotage.defect import Defect


def _on(tests: str, *engines: str) -> tuple[str, ...]:
    files = " ".join(f"tests/conformance/test_{engine}.py" for engine in engines)
    return (f"{files} -k '{tests}'",)


def _on_both(tests: str) -> tuple[str, ...]:
    return _on(tests, "memory", "sqlite")


DEFECTS = (
    Defect(
        "a save that continues ignores expect",
        "engine/saving.py",
        "    if commit.expect is not ANY and commit.expect != head.revision:\n",
        "    if False:\n",
        _on_both("test_expect_compares_the_head"),
    ),
    Defect(
        "a deletion of a scope ignores expect",
        "engine/records.py",
        "        commits.check_expect(expect, head_of(reader), key)\n",
        "        pass\n",
        _on_both("test_expect_compares_the_head"),
    ),
    Defect(
        "a draft is named as a parent",
        "core/commits.py",
        "        named = head.id if head.kept else head.parent_id\n",
        "        named = head.id\n",
        _on_both("test_saves_drafts_and_what_is_only_kept"),
    ),
    Defect(
        "a snapshot becomes its own parent",
        "core/commits.py",
        "        if named is not None and named != own_id:\n",
        "        if named is not None:\n",
        _on_both("test_saves_drafts_and_what_is_only_kept"),
    ),
    Defect(
        "a replaced draft stays",
        "core/commits.py",
        "    covers = head if commit.head and head is not None and not head.kept else None\n",
        "    covers = None\n",
        _on_both("test_saves_drafts_and_what_is_only_kept"),
    ),
    Defect(
        "a draft that is saved again is not promoted",
        "core/commits.py",
        "        if same and (existing.kept or not commit.keep):\n",
        "        if same:\n",
        _on_both("test_a_draft_again"),
    ),
    Defect(
        "a repetition is compared without its parent",
        "core/commits.py",
        "        and (commit.parent is HEAD or commit.parent == row.parent_id)\n",
        "",
        _on_both("test_the_same_id_again"),
    ),
    Defect(
        "an overwrite forgets its parent",
        "core/commits.py",
        "        parent_id=existing.parent_id if commit.parent is HEAD else commit.parent,\n",
        "        parent_id=None if commit.parent is HEAD else commit.parent,\n",
        _on_both("test_the_same_id_again"),
    ),
    Defect(
        "an overwrite is created again",
        "core/commits.py",
        "        updated_at=commit.stamp.now,\n",
        "        updated_at=commit.stamp.now,\n        created_at=commit.stamp.now,\n",
        _on_both("test_the_same_id_again"),
    ),
    Defect(
        "an append forgets the status of the head",
        "core/commits.py",
        '    return "" if before is None else before.status\n',
        '    return ""\n',
        _on_both("test_append_goes_on_with_the_head"),
    ),
    Defect(
        "a scope with only notes is free for a fork",
        "core/commits.py",
        "    if commit.new_scope and scope.taken:\n",
        "    if commit.new_scope and scope.head is not None:\n",
        _on_both("test_forks"),
    ),
    Defect(
        "a fork copies no labels",
        "api/branching.py",
        "        return codec.encode(origin.labels) if self.labels is None else self.labels\n",
        '        return b"{}" if self.labels is None else self.labels\n',
        _on_both("test_forks"),
    ),
    Defect(
        "a lease that was lost does not fence",
        "core/commits.py",
        "    if fence is not None and fence != found:\n",
        "    if fence is not None and found is None:\n",
        _on_both("test_nothing_is_written_under_a_lease_that_has_passed"),
    ),
    Defect(
        "a lease is taken from its holder",
        "core/commits.py",
        "found.key != claim.key and found.until > now:\n",
        "found.key != claim.key and found.until < now:\n",
        _on_both("test_a_claimed_scope_cannot_be_claimed_by_another"),
    ),
    Defect(
        "a new note ignores expect",
        "core/notes.py",
        "    if change.expect != found:\n",
        "    if found is not None and change.expect != found:\n",
        _on_both("test_notes_live_and_go_with_their_ids"),
    ),
    Defect(
        "notes outlive their snapshot",
        "engine/editing.py",
        "    notes, dropped = reader.note_addresses(doomed), set(sizes)\n",
        "    notes, dropped = list[tuple[str, str]](), set(sizes)\n",
        _on_both("test_notes_live_and_go_with_their_ids"),
    ),
    Defect(
        "a prune drops the head",
        "engine/editing.py",
        "    if spare_head and record.head in sizes:\n",
        "    if False:\n",
        _on_both("test_prunes"),
    ),
    Defect(
        "a prune forgets how much it has seen",
        "core/retention.py",
        "        rank, self._seen = self._seen, self._seen + 1\n",
        "        rank, self._seen = self._seen, (self._seen + 1) % 4\n",
        _on_both("test_long_histories_are_pruned_in_pages"),
    ),
    Defect(
        "a prune ignores the age",
        "core/retention.py",
        "        is_old = policy.cutoff is None or info.created_at < policy.cutoff\n",
        "        is_old = True\n",
        _on_both("test_prunes"),
    ),
    Defect(
        "a redaction leaves labels",
        "api/redacting.py",
        "        labels = prepare.encode_labels(rule.labels(found.labels))\n",
        "        labels = prepare.encode_labels(found.labels)\n",
        _on_both("test_redactions"),
    ),
    Defect(
        "a redaction leaves the draft",
        "api/redacting.py",
        "        yield from self._contend(self._redact_draft)\n",
        "",
        _on_both("test_redactions"),
    ),
    Defect(
        "what builds on an overwritten state stays as it is",
        "engine/editing.py",
        "        if row.base in touched and row.seq not in touched:\n",
        "        if row.base in dropped and row.seq not in touched:\n",
        _on("test_update_replaces_in_place", "memory"),
    ),
    Defect(
        "the oldest kept is uncovered, in memory",
        "backends/memory.py",
        "        return max(kept, default=None)\n",
        "        return min(kept, default=None)\n",
        _on("test_deletion_uncovers_the_newest_kept", "memory"),
    ),
    Defect(
        "the oldest kept is uncovered, in SQLite",
        "backends/sqlite/sql/queries.sql",
        "SELECT max(seq) FROM snapshots\n",
        "SELECT min(seq) FROM snapshots\n",
        _on("test_deletion_uncovers_the_newest_kept", "sqlite"),
    ),
    Defect(
        "history is in the order of ids, in memory",
        "backends/memory.py",
        "            return heapq.nlargest(limit, found, key=lambda pair: pair[1].seq)\n",
        "            return heapq.nlargest(limit, found, key=lambda pair: pair[1].id)\n",
        _on("test_saves_drafts_and_what_is_only_kept", "memory"),
    ),
    Defect(
        "history begins with its cursor, in memory",
        "backends/memory.py",
        "        if query.after is not None and row.seq >= query.after:\n",
        "        if query.after is not None and row.seq > query.after:\n",
        _on("test_listings_go_on_after_a_cursor", "memory"),
    ),
    Defect(
        "a draft is found, in memory",
        "backends/memory.py",
        "    kept = [row for row in scope.snapshots.values() if row.kept]\n",
        "    kept = list(scope.snapshots.values())\n",
        _on("test_saves_drafts_and_what_is_only_kept", "memory"),
    ),
    Defect(
        "a draft is found, in SQLite",
        "backends/sqlite/sql/listings.sql",
        " WHERE n.id = :id\n   AND n.seq < :before\n   AND n.kept\n",
        " WHERE n.id = :id\n   AND n.seq < :before\n",
        _on("test_a_draft_again or test_promise_10", "sqlite"),
    ),
    Defect(
        "one label of several is enough, in memory",
        "backends/memory.py",
        "        if all(labels.get(name) == value for name, value in query.labels):\n",
        "        if not query.labels or set(query.labels) & set(labels.items()):\n",
        _on("test_listings_go_on_after_a_cursor", "memory"),
    ),
    Defect(
        "ids begin with the one they come after, in SQLite",
        "backends/sqlite/sql/listings.sql",
        " WHERE i.scope_pk = :pk AND i.id > :after AND n.kept\n",
        " WHERE i.scope_pk = :pk AND i.id >= :after AND n.kept\n",
        _on("test_listings_go_on_after_a_cursor", "sqlite"),
    ),
    Defect(
        "a deletion reaches what begins alike, in SQLite",
        "backends/sqlite/sql/queries.sql",
        "SELECT pk FROM scopes WHERE session_id = :session_id;\n",
        "SELECT pk FROM scopes WHERE session_id LIKE :session_id || '%';\n",
        _on("test_promise_11_ids_cannot_escape_deletion", "sqlite"),
    ),
)

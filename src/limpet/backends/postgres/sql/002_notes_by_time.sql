-- The notes of scopes, the last written first: find_notes(). Not those on snapshot ids.
CREATE INDEX notes_by_time ON limpet.notes (scope_pk, updated_at DESC, pk) WHERE on_id = '';

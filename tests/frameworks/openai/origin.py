"""Files of the SDK's own sessions.

`python -m tests.frameworks.openai.origin` writes them as SQL into `tests/compat/openai_sqlite`, for
the tests that have no SDK.
"""

import asyncio
import sqlite3
import sys
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from agents import Runner, SQLiteSession
from agents.extensions.memory import AdvancedSQLiteSession

from tests.environments import ROOT
from tests.frameworks.openai.models import agent, look_up, with_tool

FOLDER = ROOT / "tests" / "compat" / "openai_sqlite"


async def talk(session: Any, *questions: str) -> list[Any]:
    for question in questions:
        await Runner.run(agent(with_tool, look_up), question, session=session)
    items: list[Any] = await session.get_items()
    return items


async def plain(path: Path, **options: str) -> dict[str, list[Any]]:
    """Fill a file with two sessions; return their items."""
    found = {}
    for name, questions in {"alice/1": ("shell", "rock"), "bob/1": ("tide",)}.items():
        with closing(SQLiteSession(name, path, **options)) as session:
            found[name] = await talk(session, *questions)
    return found


async def advanced(path: Path) -> dict[str, list[Any]]:
    """Fill a file with a session of three branches; return their items."""
    with closing(
        AdvancedSQLiteSession(session_id="chat", db_path=path, create_tables=True)
    ) as session:
        found = {"main": await talk(session, "shell", "rock", "tide")}
        await session.create_branch_from_turn(2, "bold")
        found["bold"] = await talk(session, "sand", "foam")
        await session.create_branch_from_turn(3, "bolder")
        found["bolder"] = await talk(session, "kelp")
        await session.switch_to_branch("main")
        await session.create_branch_from_turn(1, "fresh")
        found["fresh"] = await talk(session, "salt")
    return found


async def main() -> None:
    for name, fill in {"plain": plain, "advanced": advanced}.items():
        with TemporaryDirectory() as folder:
            await fill(Path(folder, "a.db"))
            with closing(sqlite3.connect(Path(folder, "a.db"))) as conn:
                lines = "\n".join(conn.iterdump())
        Path(FOLDER, f"{name}.sql").write_text(f"{lines}\n", encoding="utf-8")
        sys.stdout.write(f"{name}.sql\n")


if __name__ == "__main__":
    asyncio.run(main())

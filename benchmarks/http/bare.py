"""The peer: a Starlette handler that inserts one row, and nothing else."""

import sqlite3
import sys

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


def app(path: str) -> Starlette:
    """Return the application. Durable as a store is: WAL, and a sync for each commit."""
    database = sqlite3.connect(path, isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("PRAGMA synchronous = FULL")
    database.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, session TEXT, body BLOB)")

    async def insert(request: Request) -> Response:
        body = await request.body()
        session = request.query_params["session_id"]
        found = database.execute("INSERT INTO rows (session, body) VALUES (?, ?)", (session, body))
        return JSONResponse({"id": found.lastrowid})

    async def select(request: Request) -> Response:
        session = request.query_params["session_id"]
        query = "SELECT body FROM rows WHERE session = ? ORDER BY id DESC LIMIT 1"
        (body,) = database.execute(query, (session,)).fetchone()
        return Response(body, media_type="application/json")

    database.execute("CREATE INDEX by_session ON rows (session, id)")
    return Starlette(
        routes=[
            Route("/v1/scope/save", insert, methods=["POST"]),
            Route("/v1/scope/snapshot", select),
        ]
    )


if __name__ == "__main__":
    uvicorn.run(app(sys.argv[1]), port=int(sys.argv[2]), log_level="warning", access_log=False)

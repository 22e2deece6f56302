"""Sessions of Google's Agent Development Kit: its `BaseSessionService` on every engine.

Each event is a snapshot, at which a session can be forked::

    from google.adk.runners import Runner
    from limpet.compat.adk import LimpetSessionService

    store = limpet.open("sqlite:///agents.db")
    runner = Runner(app_name="trips", agent=agent, session_service=LimpetSessionService(store))

For `adk web` and `adk api_server`, with `--session_service_uri=limpet+sqlite:///agents.db`, the
folder of the agents has a `services.py`::

    from limpet.compat.adk import register

    register()

`docs/guides/google_adk.md` lists where each thing is stored, so that other programs see it.
"""

from limpet.compat import needs

with needs("google.adk", "the Agent Development Kit", extra="adk"):
    from limpet.compat.adk.store import LimpetSessionService, open_session_service, register

__all__ = ["LimpetSessionService", "open_session_service", "register"]

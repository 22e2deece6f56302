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

How the terms translate, so that other programs see what is saved here:

| ADK                 | Limpet                                                                     |
|---------------------|----------------------------------------------------------------------------|
| a session           | session `app/user/session`, each part with `%` and `/` escaped as in URLs; |
|                     | scope `main`, kind `conversation`                                          |
| its events          | `events` of the state; each event is a snapshot                            |
| its first state     | `state` of the state; later changes are in the events                      |
| state with `user:`  | session `app/user`, scope `main`, kind `user`, without the prefix          |
| state with `app:`   | session `app`, scope `main`, kind `app`, without the prefix                |
| state with `temp:`  | not stored                                                                 |
"""

from limpet.compat.extras import needs

with needs("google.adk", "the Agent Development Kit", extra="adk"):
    from limpet.compat.adk.store import LimpetSessionService, open_session_service, register

__all__ = ["LimpetSessionService", "open_session_service", "register"]

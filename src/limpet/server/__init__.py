"""The HTTP API of a store (extra `server`): `docs/http.md` says what clients need to know.

`operations.py` declares what there is, with the schemas that are checked and published; `call.py`
is one request, checked; `app.py` dispatches; `streams.py` answers that go on; `access.py` decides
who may do what.
"""

"""The HTTP API of a store (extra `server`): `docs/http.md` says what clients need to know.

`core/operations.py` declares what there is; `operations.py` is what each does; `call.py` is one
request, checked; `app.py` dispatches; `bodies.py` reads what is sent, within limits; `streams.py`
has lists and answers that go on; `access.py` decides who may do what. `serving.py` runs it with
uvicorn, `connection.py` limits what a connection may do.
"""

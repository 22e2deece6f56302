"""Writes docs/openapi.json, the description of the HTTP API. Run by `make docs`."""

from pathlib import Path

from limpet.server.openapi import document

PAGE = Path(__file__).resolve().parent.parent / "openapi.json"

if __name__ == "__main__":
    PAGE.write_bytes(document() + b"\n")

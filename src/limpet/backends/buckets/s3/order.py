"""Where a listing begins and ends, in either of two orders. Pure.

S3 lists keys by their bytes. SeaweedFS keeps a tree and lists by the names along the path, as if
`/` came before every other character. Both keep a folder together, and both agree on keys that
first differ in characters other than `/`; this module relies on nothing else.

An `offset` must be inside the folder that is listed: outside of it SeaweedFS compares by bytes. And
an offset that names a folder skips the whole folder there, so ours never does.
"""

from os.path import commonprefix


def folder_of(key: str) -> str:
    """Return the folder of a key or a prefix, with its `/`; "" for none."""
    return key[: key.rfind("/") + 1]


def before(text: str) -> str:
    """Return an offset just before all keys that begin with a text, which does not end with `/`."""
    stem, last = text[:-1], text[-1]
    if last <= "!" or last == "\ue000":
        # Hardly a character comes before it, or none that is text. A path cannot end with `/`.
        return "" if stem == folder_of(stem) else stem
    # `~` is the last character that our names have. Other names that follow are listed in vain.
    return f"{stem}{chr(ord(last) - 1)}~~~"


def start_of(prefix: str, after: str) -> str | None:
    """Return the offset for listing the keys of a prefix that come after a key.

    "" is the beginning of the folder. None: no key can follow.
    """
    folder = folder_of(prefix)
    begin = "" if prefix == folder else before(prefix)
    if prefix.startswith(after):
        return begin
    if after.startswith(prefix):
        # A path cannot end with `/`; nothing in a folder comes before a blank.
        return f"{after} " if after.endswith("/") else after
    at = len(commonprefix([after, prefix]))  # noqa: RUF071
    if at >= len(folder) and after[at] == "/":
        # `x/…` comes before `x-1` in a tree and after it by bytes. No key in that folder has the
        # prefix, so the listing begins at the folder's end, wherever the service has it.
        return f"{after[:at]}/~"
    return begin if after < prefix else None


def is_before(key: str, other: str) -> bool:
    """Return whether a key comes before another one in both orders."""
    return key < other and key.split("/") < other.split("/")

"""Where a listing begins and ends, in either of two orders. Pure.

S3 lists keys by their bytes. SeaweedFS keeps a tree and lists by the names along the path, as if
`/` came before every other character. Both keep a folder together, and both agree on keys that
part at characters other than `/`; what follows uses nothing else.

A listing that is asked for the keys after an `offset` must be asked for one in the folder that is
listed: outside of it SeaweedFS compares by bytes all the same. And an offset that names a folder
skips the whole of it there, so none of ours does.
"""

_SURROGATES_END = 0xE000
_LOWEST = "!"


def folder_of(key: str) -> str:
    """Return the folder that a key or a prefix stands in, with its `/`; "" for none."""
    return key[: key.rfind("/") + 1]


def before(text: str) -> str:
    """Return an offset that comes before all keys that begin with a text, and little else does.

    The text does not end with `/`.
    """
    stem, last = text[:-1], text[-1]
    if last <= _LOWEST:
        # There is hardly a character before it. What ends with `/` is no path.
        return "" if stem == folder_of(stem) else stem
    code = ord(last) - 1
    if code == _SURROGATES_END - 1:
        code -= 0x800
    # `~` is the last of the characters that names are made of. Should others follow, they are
    # listed for nothing.
    return f"{stem}{chr(code)}~~~"


def start_of(prefix: str, after: str) -> str | None:
    """Return the offset for listing the keys of a prefix that come after a key.

    "" is the beginning of the folder. None says that no key can follow.
    """
    folder = folder_of(prefix)
    begin = "" if prefix == folder else before(prefix)
    if prefix.startswith(after):
        return begin
    if after.startswith(prefix):
        # A path cannot end with `/`; nothing in a folder comes before a blank.
        return f"{after} " if after.endswith("/") else after
    at = len(_shared(after, prefix))
    if at >= len(folder) and after[at] == "/":
        # `x/…` stands before `x-1` in a tree and behind it by bytes: the service decides, and
        # since nothing in that folder begins with the prefix, from the folder's end on.
        return f"{after[:at]}/~"
    return begin if after < prefix else None


def _shared(one: str, other: str) -> str:
    """Return the text that both begin with."""
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return one[:at]
    return min(one, other, key=len)

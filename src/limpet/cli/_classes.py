"""Classes that somebody names on the command line."""

import importlib
import os
import sys
from typing import Any

import limpet


def class_named(name: str) -> type:
    """Import the class that `module:Class` names: from what is installed, or the current folder.

    Raises:
        InvalidInput: it is no such name, or the module or the class is not there.
    """
    module, _, path = name.partition(":")
    parts = [*module.split("."), *path.split(".")]
    if not all(part.isidentifier() for part in parts):
        raise limpet.InvalidInput(f"--allow takes module:Class. found=`{name}`")
    folder = os.getcwd()
    if folder not in sys.path:
        # Last, so that nothing which is installed is replaced by what lies around.
        sys.path.append(folder)
    try:
        found: Any = importlib.import_module(module)
    except (Exception, SystemExit) as cause:  # it may be anything, since the module is run
        fact = f"the module cannot be imported. class=`{name}` error=`{type(cause).__name__}`"
        raise limpet.InvalidInput(fact) from cause
    for part in path.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type):
        raise limpet.InvalidInput(f"the module has no such class. class=`{name}`")
    return found

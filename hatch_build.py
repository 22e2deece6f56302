"""Makes the README fit for the page of a package index, where relative links lead nowhere."""

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

INDEX = "https://pypi.org/project/limpet/"
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!\w+:|#)([^)\s]+)\)")


def page_of(readme: str, repository: str) -> str:
    """Return the README with absolute links; without a repository, with text instead of links."""

    def absolute(link: re.Match[str]) -> str:
        picture, text, path = link.groups()
        if not repository:
            return "" if picture else text
        view = "raw" if picture else "blob"
        return f"{picture}[{text}]({repository}/{view}/main/{path})"

    return _LINK.sub(absolute, readme)


def urls_of(repository: str) -> dict[str, str]:
    """Return the addresses that an index and `pip show` display."""
    if not repository:
        return {"Homepage": INDEX}
    return {
        "Homepage": repository,
        "Documentation": f"{repository}/blob/main/docs/README.md",
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }


class Metadata(MetadataHookInterface):
    """Called by hatchling whenever it builds."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the fields that pyproject.toml declares as dynamic."""
        text = Path(self.root, "README.md").read_text("utf-8")
        repository = self.config["repository"]
        page = page_of(text, repository)
        metadata["readme"] = {"content-type": "text/markdown", "text": page}
        metadata["urls"] = urls_of(repository)

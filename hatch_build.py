"""What a build knows of the place that the source is published at: addresses, and links of README that lead there.

`RAG_CONTEXT_REPOSITORY` names it (`make release` demands it). Where a checkout is installed, there are none.
"""

import os
import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_RELATIVE_LINK = re.compile(r"\]\((?!https?:|#)")


class Published(MetadataHookInterface):
    """Sets `urls` and `readme`."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Raises: nothing; a README without links stays as it is."""
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        if repository := os.environ.get("RAG_CONTEXT_REPOSITORY", "").rstrip("/"):
            readme = _RELATIVE_LINK.sub(f"]({repository}/blob/HEAD/", readme)
            metadata["urls"] = {
                "Source": repository,
                "Documentation": f"{repository}/blob/HEAD/docs/index.md",
                "Changes": f"{repository}/blob/HEAD/CHANGELOG.md",
                "Issues": f"{repository}/issues",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": readme}

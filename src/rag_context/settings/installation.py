"""How this installation gets one of the package's extras, by the standard library only: converters know no more."""

import json
import sys
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit


def install_command(extra: str) -> str:
    """The command that installs an extra here: into a checkout, with pipx, with uv or with pip."""
    package = f"rag-context[{extra}]"
    parts = Path(sys.prefix).parts
    if "pipx" in parts:
        return f"pipx install --force '{package}'"
    if ("uv", "tools") in pairwise(parts):
        return f"uv tool install --force '{package}'"
    checkout = _checkout()
    if checkout is None:
        return f"pip install '{package}'"
    pip = f"{sys.executable} -m pip install" if find_spec("pip") else f"uv pip install --python {sys.executable}"
    return f"{pip} -e '{checkout}[{extra}]'"


def _checkout() -> str | None:
    """The folder that this package is run from, where it was installed with `pip install -e`."""
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415
    from urllib.request import url2pathname  # noqa: PLC0415  (a search loads neither)

    try:
        origin = json.loads(distribution("rag-context").read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        return None
    if not origin.get("dir_info", {}).get("editable"):
        return None
    return url2pathname(urlsplit(origin["url"]).path)

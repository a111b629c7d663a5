"""Which files may be read: the usual places of secrets never, and for agents what is below some folders only.

Paths are compared after links and `..` were resolved, whatever the case of their letters. What changes between this
check and the reading is caught by `descriptors`, which opens no file through a link.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from rag_context.errors import FieldError, InvalidInputError

_SYSTEM = "etc, private/etc, proc, sys, dev, run/secrets, var/run/secrets"
_FOLDERS = (
    ".ssh, .gnupg, .aws, .azure, .kube, .oci, .terraform.d, .password-store, .local/share/keyrings, "
    ".local/share/kwalletd, library/keychains, .config/gcloud, .config/gh, .config/hub, .config/rclone, .config/op, "
    ".mozilla, .thunderbird, .config/google-chrome, .config/chromium, .config/bravesoftware, .config/microsoft-edge, "
    ".config/vivaldi, .config/opera, snap/firefox, snap/chromium, application support/google/chrome, "
    "application support/chromium, application support/firefox, application support/bravesoftware, "
    "application support/microsoft edge, library/safari, library/cookies, appdata/local/google/chrome, "
    "appdata/local/microsoft/edge, appdata/local/bravesoftware, appdata/roaming/mozilla, appdata/roaming/gcloud, "
    "appdata/roaming/microsoft/credentials, appdata/roaming/microsoft/protect"
)
_FILES = (
    ".docker/config.json, .netrc, _netrc, .pgpass, pgpass.conf, .my.cnf, .mylogin.cnf, .git-credentials, .npmrc, "
    ".pypirc, .vault-token, "
    ".boto, .s3cfg, .htpasswd, .cargo/credentials, .cargo/credentials.toml, .gem/credentials, .bash_history, "
    ".zsh_history, .sh_history, .ash_history, .ksh_history, .histfile, fish_history, .python_history, .irb_history, "
    ".node_repl_history, .psql_history, .mysql_history, .sqlite_history, .rediscli_history, .dbshell, .lesshst, "
    ".viminfo, consolehost_history.txt"
)


def _any(paths: str) -> str:
    return "|".join(map(re.escape, paths.split(", ")))


_SECRET = re.compile(rf"^/(?:{_any(_SYSTEM)})(?:/|$)|/(?:{_any(_FOLDERS)})(?:/|$)|/(?:{_any(_FILES)})$")

SECRET_PLACE = "one of the usual places of secrets, such as ~/.ssh, .netrc, shell histories and /etc"  # noqa: S105


def is_secret_place(path: Path) -> bool:
    """Whether a file or folder (absolute, without links) is, or lies in, a place where programs keep secrets."""
    return _SECRET.search(path.as_posix().casefold()) is not None


def check_reach(path: Path, folders: Sequence[Path]) -> None:
    """Check that a path may be read for an agent, whether it exists or not. Raises: InvalidInputError (it may not)."""
    if is_secret_place(path):
        sentence = f"{path.as_posix()} is not indexed: it is {SECRET_PLACE}"
    elif not any(path.is_relative_to(folder) for folder in folders):
        named = ", ".join(folder.as_posix() for folder in folders) or "none"
        sentence = (
            f"{path.as_posix()} is outside of the folders that may be indexed here ({named}). "
            "A person can add its folder to the setting indexing.roots, or run `rag-context index` on it"
        )
    else:
        return
    raise InvalidInputError(sentence, [FieldError("path", sentence)])


def workspace(started_in: Path, home: Path) -> list[Path]:
    """The folder in which a client started this process; none where it holds the home folder, as with desktops."""
    folder = started_in.resolve()
    return [] if home.resolve().is_relative_to(folder) else [folder]

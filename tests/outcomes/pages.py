"""The commands on the pages, and which of them cannot run where the tests run."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/**/*.md", "examples/*/README.md", "clients/*/README.md")
    for path in ROOT.glob(pattern)
)
BLOCK = re.compile(r"^```(\S*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
PROMPTS = ("$ ", "# ")

NEEDS = {
    "Docker": ("docker ",),
    "a cluster (tests/deploy/test_scripts.py runs the scripts against programs that answer as one does)": (
        "deploy/deploy.sh",
        "DATABASE_URL='postgresql://user:password@db.example:5432/memory?sslmode=verify-full' deploy/deploy.sh",
        "MONGODB_URI=",
        "QDRANT_URL=http://qdrant.qdrant.svc",
        "kubectl ",
        "helm ",
    ),
    "a Qdrant server": ("curl -X POST -H", "export QDRANT_URL="),
    "collections that were made before the stores were servers (tests/outcomes/test_shared_stores.py has some)": (
        "rag-context collections list --connection data-directory",
        "rag-context collections copy data-directory:manual",
        "rag-context collections delete manual --connection data-directory",
    ),
    "a server with data of another program (tests/outcomes/test_other_programs_data.py)": ("rag-context adopt ",),
    "another machine": ("rag-context export - | ssh ",),
    "root, and it changes the machine": ("useradd ", "python3 -m venv /opt/", "systemctl ", "apt-get "),
    "packages from the network; the environment of the tests has them": (
        "python3 -m venv .venv",
        "pip ",
        ".venv/bin/uv ",
        "python -m benchmarks.peers",
        "python3 -m venv .peer",
        "python -m benchmarks.redaction --peer",
    ),
    "SQLite's program, which is not a part of Python": ("sqlite3 rag-context.db .recover",),
    "Mono (`make csharp` does the same)": ("mcs ", "mono "),
    "checkouts of public repositories": ("python -m benchmarks.passages ",),
    "collections of judged queries, which are not in this repository": ("python -m benchmarks.quality DATA/",),
    "documents and changes with these ids (tests/outcomes/test_corrections.py has some)": (
        "rag-context correct DOCUMENT_ID",
        "rag-context history DOCUMENT_ID",
        "rag-context undo 12",
    ),
    "a server at another address (tests/outcomes/test_postgres_backup.py has two databases)": (
        "createdb --host=elsewhere",
        "pg_restore --no-owner",
        "DATABASE_URL=postgresql://elsewhere/memory",
    ),
    "the team's server": ("rag-context install --all --url https://memory.example.com",),
    "half an hour": ("python -m benchmarks million",),
    "the tests, of which this is a run": (".venv/bin/pytest ",),
    "a release": ("git tag ",),
}
"""What commands need that is not here, each with the beginnings of these commands."""


def commands(page: str) -> list[str]:
    """What stands behind a prompt in a page's blocks, with the lines that continue it; SQL is typed into psql."""
    found: list[str] = []
    for kind, block in blocks(page):
        if kind == "sql":
            found.append(f'psql --set ON_ERROR_STOP=1 "${{DATABASE_URL:-}}" <<"END"\n{block}END')
        for line in block.splitlines() if kind == "console" else ():
            if line.startswith(PROMPTS):
                found.append(line[2:])
            elif found and (found[-1].endswith("\\") or found[-1].count("'") % 2):
                found[-1] += "\n" + line
    return found


def blocks(page: str) -> list[tuple[str, str]]:
    """The kind and the text of each block of a page."""
    return BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))


def lacking(command: str) -> str | None:
    """What the command needs that is not here; None where it can run."""
    return next((need for need, starts in NEEDS.items() if command.startswith(starts)), None)

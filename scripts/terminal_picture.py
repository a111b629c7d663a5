"""The picture of a terminal in the README, from a real run: `python scripts/terminal_picture.py docs/terminal.svg`.

Indexes the sample corpus into a folder of its own, runs two searches, and draws what the commands printed, as SVG.
"""

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).resolve().parents[1]
COLUMNS = 120
COMMANDS = (
    ("index", "examples/corpus"),
    ("search", "why did we not build a native app?", "--limit", "1"),
    ("search", "HBR-4107", "--limit", "1"),
)
FONT_FACES = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def picture() -> str:
    """The picture, as SVG without addresses of other servers."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    with tempfile.TemporaryDirectory() as folder:
        for words in COMMANDS:
            shown = " ".join(f'"{word}"' if " " in word else word for word in words)
            console.print(Text.assemble(("$ ", "bold green"), (f"rag-context {shown}", "bold")))
            console.print(Text.from_ansi(run(*words, folder=folder)))
    return FONT_FACES.sub("", console.export_svg(title="rag-context"))


def run(*words: str, folder: str) -> str:
    """What a command prints on a terminal of this width."""
    program = str(Path(sys.executable).with_name("rag-context"))
    terminal = {**os.environ, "COLUMNS": str(COLUMNS), "TERM": "xterm-256color"}
    if words[0] != "index":  # whose bar would be drawn once for each step
        terminal["FORCE_COLOR"] = "1"
    done = subprocess.run(
        [program, *words, "--data-dir", folder],
        cwd=ROOT,
        env=terminal,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=True,
    )
    kept = [line for line in done.stdout.splitlines() if "Adding to" not in line]
    return "\n".join(kept).rstrip() + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(picture(), encoding="utf-8")

"""What an open set is, and those of documents: a repository, a manual in four languages, a project, spellings of words.

Everything is drawn from `random.Random` with a fixed seed, so that the same version writes the same bytes.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path, PurePosixPath
from random import Random
from typing import Any

from rag_context.domain.documents import CODE
from rag_context.evaluation.datasets import CORPUS, QUERIES

Row = dict[str, Any]

OTHER_MEMORY = "unanswerable: other memory"
"""Category of questions on a subject that does not occur."""


@dataclass(frozen=True, slots=True)
class OpenSet:
    """One set in the layout with evidence."""

    name: str
    corpus: list[Row] = field(default_factory=list)
    queries: list[Row] = field(default_factory=list)

    def add_question(self, text: str, category: str, evidence: Sequence[str], **fields: Any) -> None:
        """Add a question; its id is its number."""
        self.queries.append(
            {
                "_id": str(len(self.queries) + 1),
                "text": text,
                "category": category,
                "evidence": list(evidence),
                **fields,
            }
        )

    def write(self, folder: Path) -> Path:
        """Write both files into a folder of the set's name. Raises: OSError."""
        target = folder / self.name
        target.mkdir(parents=True, exist_ok=True)
        for name, rows in ((CORPUS, self.corpus), (QUERIES, self.queries)):
            lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
            (target / name).write_text(lines, encoding="utf-8")
        return target


def read_text(name: str) -> str:
    """One of the files that the sets are made from."""
    return (files("benchmarks.open_sets") / "data" / name).read_text(encoding="utf-8")


@cache
def read_data(name: str) -> dict[str, Any]:
    """The same, of TOML."""
    return tomllib.loads(read_text(name))


LANGUAGES = ("en", "de", "ru", "zh")

USING = ("tests/unit", "tests/integration", "specs", "examples/basic", "examples/advanced", "benchmarks")
"""Folders of files that call what the repository defines."""

DEFINING = ("compat/v1", "compat/v2", "legacy/2014", "legacy/2017")
"""Folders of files that define the same names again."""

CASES = "empty late early double foreign damaged short long second first full nightly".split()  # noqa: SIM905

ABOUT_A_NAME = ("Where is {} defined?", "What does {} do?", "Which arguments does {} take?", "How does {} work?")

CALLS = {
    "py": "def {verb}_{case}_{stem}():\n    assert {name}({number}, {other}) is not None\n",
    "ts": '{verb}("{case} {stem}", () => expect({name}({number}, {other})).toBeDefined());\n',
    "go": "func {Verb}{Case}{Stem}(t *testing.T) {{ expect(t, {name}({number}, {other})) }}\n",
    "java": "class {Verb}{Case}{Stem} {{ void run() {{ expect({name}({number}, {other})); }} }}\n",
}
DEFINITIONS = {
    "py": "def {own}(*given):\n    warn_once({number})\n    return current.{name}(*given)\n",
    "ts": "export function {own}(...given) {{ warnOnce({number}); return current.{name}(...given); }}\n",
    "go": "func {own}(given ...any) any {{ warnOnce({number}); return current.{name}(given) }}\n",
    "java": "class {own} {{ Object get() {{ warnOnce({number}); return current.{name}(); }} }}\n",
}
"""By language: how a file calls a name of another, and how it defines it again."""


def variants() -> OpenSet:
    """Notes and questions that write the same word together, apart or with a hyphen."""
    found = OpenSet("variants")
    data = read_data("variants.toml")
    for number, row in enumerate(data["variant"], 1):
        id_ = f"note-{number:02}"
        texts = [row["note"], *row["near"]]
        found.corpus.extend({"_id": f"{id_}{suffix}", "text": text} for suffix, text in zip("abc", texts, strict=True))
        found.add_question(row["ask"], row["category"], [f"{id_}a"])
    for question, number, suffix in data["apart"]:
        found.add_question(question, "apart", [f"note-{number:02}{suffix}"])
    return found


def repository() -> OpenSet:
    """A repository in Python, TypeScript, Go and Java, with questions by symbol, alone and in a sentence, by purpose
    and by file.

    Ten more files use the names of each file that answers a question, or define them again in an older version.
    """
    found = OpenSet("repository")
    names: dict[str, list[str]] = {}
    for rows in read_data("code_questions.toml").values():
        for text, path in rows:
            names.setdefault(path, []).extend([text] if " " not in text else [])
    files = dict(_files("repository.txt"))
    for path, text in [*files.items(), *_uses(names)]:
        found.corpus.append({"_id": path, "text": text, "contentType": CODE, "path": path})
    for category, rows in read_data("code_questions.toml").items():
        for text, path in rows:
            found.add_question(text, category, [path])
    symbols = [(symbol, path) for path, known in names.items() for symbol in known]
    for number, (symbol, path) in enumerate(symbols):
        found.add_question(ABOUT_A_NAME[number % len(ABOUT_A_NAME)].format(symbol), "symbol in a sentence", [path])
    for text in _questions_on_the_manual():
        found.add_question(text, OTHER_MEMORY, [])
    return found


def manual() -> OpenSet:
    """One manual in four languages, with questions in each, some in the words of the manual in other forms."""
    found = OpenSet("manual")
    data = read_data("manual.toml")
    sections = data["section"]
    for language in LANGUAGES:
        for number, section in enumerate(sections, 1):
            text, question = section[language]
            id_ = f"{language}-{number:02}"
            found.corpus.append({"_id": id_, "text": text, "project": language})
            found.add_question(question, language, [id_], project=language)
        for question, number in data["forms"][language]:
            found.add_question(question, f"{language}, other forms", [f"{language}-{number:02}"], project=language)
    for text, _ in read_data("project_questions.toml")["what"]:
        found.add_question(text, OTHER_MEMORY, [], project="en")
    return found


def project() -> OpenSet:
    """The documents of a project with front matter, links and types."""
    found = OpenSet("project")
    for path, text in _files("project.txt"):
        found.corpus.append({"_id": path, "text": text, "path": path})
    for text, name in read_data("project_questions.toml")["what"]:
        found.add_question(text, "document", [f"docs/{name}.md"])
    for text in _questions_on_the_manual():
        found.add_question(text, OTHER_MEMORY, [])
    return found


def _questions_on_the_manual() -> list[str]:
    return [section["en"][1] for section in read_data("manual.toml")["section"]]


def _files(name: str) -> Iterator[tuple[str, str]]:
    """Paths and texts of the files that one file of data holds, each below a line `=== PATH`."""
    _, *parts = re.split(r"^=== (.+)\n", read_text(name), flags=re.MULTILINE)
    yield from zip(parts[::2], parts[1::2], strict=True)


def _uses(names: dict[str, list[str]]) -> Iterator[tuple[str, str]]:
    """Files that use the names of each file, and files that define them again; each the name of the file in theirs."""
    random = Random(11)
    for path, symbols in names.items():
        file = PurePosixPath(path)
        for templates, folders, times in ((CALLS, USING, 2), (DEFINITIONS, DEFINING, 1)):
            for folder in folders:
                called = (symbols or [file.stem]) * times
                lines = _lines(templates[file.suffix[1:]], called, file.stem, folder, random)
                yield f"{folder}/{file.parts[0]}/{file.name}", "".join(lines)


def _lines(template: str, symbols: Sequence[str], stem: str, folder: str, random: Random) -> Iterator[str]:
    verb = folder.partition("/")[0].removesuffix("s")
    for symbol in symbols:
        case = random.choice(CASES)
        yield template.format(
            verb=verb,
            Verb=verb.title(),
            case=case,
            Case=case.title(),
            stem=stem,
            Stem=stem.title(),
            name=symbol,
            own=symbol.rpartition(".")[2],
            number=random.randrange(100),
            other=random.randrange(100),
        )

"""Open sets of documents: a repository, a manual in four languages, a project, words written together and apart."""

import re
from collections.abc import Iterator

from rag_context.domain.documents import CODE
from rag_context.evaluation.open_sets.rows import OpenSet, read_data, read_text

LANGUAGES = ("en", "de", "ru", "zh")


def variants() -> OpenSet:
    """Notes and questions that write the same word together, apart or with a hyphen."""
    found = OpenSet("variants")
    data = read_data("variants.toml")
    for number, row in enumerate(data["variant"], 1):
        id_ = f"note-{number:02}"
        texts = [row["note"], *row["near"]]
        found.corpus.extend({"_id": f"{id_}{suffix}", "text": text} for suffix, text in zip("abc", texts, strict=True))
        found.ask(row["ask"], row["category"], [f"{id_}a"])
    for question, number, suffix in data["apart"]:
        found.ask(question, "apart", [f"note-{number:02}{suffix}"])
    return found


def repository() -> OpenSet:
    """A repository in Python, TypeScript, Go and Java, with questions by symbol, by purpose and by file."""
    found = OpenSet("repository")
    for path, text in _files("repository.txt"):
        found.corpus.append({"_id": path, "text": text, "contentType": CODE, "path": path})
    for category, rows in read_data("code_questions.toml").items():
        for text, path in rows:
            found.ask(text, category, [path])
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
            found.ask(question, language, [id_], project=language)
        for question, number in data["forms"][language]:
            found.ask(question, f"{language}, other forms", [f"{language}-{number:02}"], project=language)
    return found


def project() -> OpenSet:
    """The documents of a project with front matter, links and types."""
    found = OpenSet("project")
    for path, text in _files("project.txt"):
        found.corpus.append({"_id": path, "text": text, "path": path})
    for text, name in read_data("project_questions.toml")["what"]:
        found.ask(text, "document", [f"docs/{name}.md"])
    return found


def _files(name: str) -> Iterator[tuple[str, str]]:
    """Paths and texts of the files that one file of data holds, each below a line `=== PATH`."""
    _, *parts = re.split(r"^=== (.+)\n", read_text(name), flags=re.MULTILINE)
    yield from zip(parts[::2], parts[1::2], strict=True)

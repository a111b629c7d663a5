"""What someone submits who wants a server to stop: texts, a repository, archives and questions. Seeded."""

import json
import random
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.files import samples

SEED = 20261122
MAX_CHARS = 99_000
"""Just below what one call takes in."""

SCHEMA = {
    "properties": {"title": {"pattern": "^(a+)+$"}, "summary": {"$ref": "#/$defs/d0"}},
    "patternProperties": {"^(x+x+)+y$": {"type": "null"}},
    "$defs": {
        **{f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]} for i in range(40)},
        "d40": {"type": "string"},
    },
}
"""A pattern that backtracks for ever, and references that double forty times."""

BULK_CHARS = 2_000_000
"""What a line of a stream takes in."""

_UNITS = {
    "code.py": ("${", "a?b:"),
    "code.cpp": ("template<> ", "a::b<"),
    "page.md": ("[a](", "***a", "# a\n", "e\u0301\u0301"),
    "keys.env": ("éeyJ", "-----BEGIN PRIVATE KEY-----\nA", "password="),
}


def texts() -> Iterator[tuple[str, str]]:
    """Name and content of texts that are cheap to write and dear to read."""
    for name, units in _UNITS.items():
        for number, unit in enumerate(units):
            yield f"{number}-{name}", unit * (MAX_CHARS // len(unit))
    yield "line.txt", "a" * MAX_CHARS
    yield "noise.md", _noise(MAX_CHARS)


def large() -> Iterator[tuple[str, str, str]]:
    """Name, kind and content of texts of which a parser or a tokenizer needs a thousand times their size."""
    for name, unit, chars in (
        ("line.cs", '$"{', BULK_CHARS),
        ("generic.ts", "a<b,", 100_000),
        ("generic.tsx", "A<A<", 400_000),
        ("continued.py", "\\\n", 100_000),
        ("calls.py", "(a,", 400_000),
        ("classes.java", "class A{", 400_000),
        ("calls.js", "a.", 400_000),
        ("functions.go", "func a(){", 200_000),
        ("generic.rs", "a::<", 200_000),
        ("directives.c", "#if a\n", 200_000),
        ("templates.cpp", "a::b<", 200_000),
    ):
        yield name, "code", unit * (chars // len(unit))
    for name, kind, unit in (
        ("letters.md", "documentation", "a "),
        ("sections.md", "documentation", "# a\n\nb\n\n"),
        ("headings.md", "documentation", "# a\n"),
        ("people.txt", "chat", "A: b\nB: c\n"),
        ("roles.txt", "chat", "[user] a\n[ai] b\n"),
        ("user.txt", "chat", "[user] "),
    ):
        yield name, kind, unit * (BULK_CHARS // len(unit))


OF_CODE: Mapping[str, Sequence[str]] = {
    "py": ("def f():\n", "(a,", 'f"{', "[", "class A:\n ", "if a:\n "),
    "js": ("a.", "(a=>{", "`${", "function f(){", "[{"),
    "jsx": ("<a>",),
    "cjs": ("/a/",),
    "ts": ("a<b,", "type A<", "a?b:"),
    "tsx": ("A<A<", "<a b={"),
    "cs": ('$"{', "class A{", "#if a\n", "a<b>c"),
    "go": ("func a(){", "a:=[]", "`"),
    "java": ("class A{", "@a(", "(a)->{"),
    "rs": ("a::<", "mod a{", "a!(", 'r#"'),
    "c": ("#if a\n", "a(", "{", "*"),
    "h": ("struct a{",),
    "cpp": ("template<> ", "a::b<", "namespace a{"),
    "rb": ("def a\n", "#{"),
    "php": ("<?php {", "$a="),
    "kt": ("fun a(){",),
    "lua": ("function a()\n",),
    "sql": ("select(",),
    "sh": ("$(",),
    "css": ("a{b:c}\n", "a{"),
    "json": ("[", '{"a":', '"a":1,', '{"a":[{}]},\n'),
    "yaml": ("- ", "a: &a [*a]\n", "? ", "{a: "),
    "toml": ("[a.b]\n", "a=[", "a.b.c=1\n"),
    "xml": ("<a>", "<!--", "&a;"),
}
OF_TEXT: Mapping[str, Mapping[str, Sequence[str]]] = {
    "documentation": {
        "md": (
            "# a\n", "a ", "a", "\n", "- a\n", "  - a\n", "> ", "```\n", "|a", "|a|b|\n|-|-|\n", "[a](",
            "[a]: b\n", "![", "*a_", "***a", "<!--", "<a ", "`a", "&#1;", "e\u0301\u0301", "\U0001f469\u200d", "中",
            "\u202ea",
            "A. B? ", "\\", "a\n=\n", "---\nk: v\n---\n", "1. a\n", "[^a]: b\n", "\t", "\x0b", "\r", "a\u2028",
            "password=", "eyJ.",
            "-----BEGIN PRIVATE KEY-----\nA", "http://a/?", "ERR-1 ", "x1_y::z ", "2025-01-01 ", "in March ", "[a] ",
        ),
        "tex": ("\\section{a}\n", "\\begin{a}", "$$", "{"),
        "rst": ("a\n=\n", "..  a::\n"),
        "adoc": ("== a\n", "|===\n"),
        "csv": ("a,b\n", '"', ",", "a;b\n"),
        "log": ("2025-01-01T00:00:00 INFO a\n", "    at a.b(c)\n"),
        "txt": ("a: b\n", "[a] b\n"),
    },
    "chat": {
        "txt": (
            "[user] a\n[ai] b\n", "[user] ", "a: b\n", "A: b\nB: c\n", "**User:** x\n", "> a: b\n",
            "[2025-01-01 10:00] a: b\n", "[a (b)] c\n", "### User\na\n", "[U] always use tabs. ", "```\n[user] a\n",
        )
    },
    "decision": {"md": ("## Decision\n\na\n", "# Status\naccepted\n", "k: v\n", "* Status: accepted\n")},
}  # fmt: skip
"""By kind of content and suffix, what a text of the allowed size repeats."""


def every() -> Iterator[tuple[str, str, str]]:
    """Name, kind and content of texts of each kind and suffix, of the allowed size."""
    for kind, units in {"code": OF_CODE, **OF_TEXT}.items():
        for suffix, repeated in units.items():
            for number, unit in enumerate(repeated):
                yield f"{number}.{suffix}", kind, unit * (BULK_CHARS // len(unit))


def questions() -> Iterator[str]:
    """Questions as long as may be, of odd characters."""
    yield from (
        unit * (1000 // len(unit)) for unit in ("\u0301a", "中", '"', "a.b-", "*", "(a OR ", "\\", "NEAR/1 ", "é_")
    )
    yield _noise(1000)


def repository(folder: Path) -> Path:
    """A cloned repository whose configuration, schema, ignore files, names and front matter are hostile."""
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    config = folder / ".rag-context" / "config.json"
    config.parent.mkdir()
    kind = {"name": "trap", "folder": "traps", "schema_file": "trap.json"}
    external = {"path": "ext", "include_patterns": ["**/*a" * 15 + "/**/*.md"]}
    config.write_text(json.dumps({"project_name": "hostile", "custom_doc_types": [kind], "external_docs": external}))
    (config.parent / "trap.json").write_text(json.dumps(SCHEMA))
    for name, text in _documents():
        path = folder / "docs" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (folder / "docs" / ".gitignore").write_text("*a" * 25 + "b\n" + "**/a/" * 20 + "b\n")
    (folder / "docs" / "deep" / ".ragignore").symlink_to("/dev/zero")
    (folder / "ext" / ("a/" * 40)).mkdir(parents=True)
    (folder / "ext" / ("a/" * 40) / f"{'a' * 200}.md").write_text("# External\n")
    return folder


def _documents() -> Iterator[tuple[str, str]]:
    yield "good.md", "# Harbour\n\nThe harbour master keeps the tide tables in the blue cabinet.\n"
    yield "traps/title.md", f"---\ntitle: {'a' * 34}!\nsummary: s\n{'x' * 40}: 1\n---\n# Trap\n"
    yield "traps/again.md", f"---\ntitle: {'a' * 60}!\n---\n# Trap\n"
    laughs = "\n".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]" for i in range(1, 10))
    yield "bombs/aliases.md", f"---\nl0: &l0 [ha]\n{laughs}\n---\n# Aliases\n"
    yield "bombs/depth.md", f"---\na: {'[' * 30_000}\n---\n# Depth\n"
    yield "bombs/keys.md", "---\n" + "".join(f"k{i}: v\n" for i in range(6000)) + "---\n# Keys\n"
    yield f"{'a' * 200}.md", "# A long name\n"
    yield f"deep/{'a/' * 60}{'a' * 200}.md", "# Deep\n"
    for number, unit in enumerate(("[", "[a](", "![", "*a_", "<!--", "<a ", "`a", "> ", "- ", "a\n=\n")):
        yield f"marks/{number}.md", unit * (500_000 // len(unit))
    yield "marks/line.md", "word " * 180_000


def archives(folder: Path) -> Path:
    """Files of the formats that are converted: bombs, quadratic pages, and notebooks of 60 MB."""
    folder.mkdir()
    (folder / "comments.html").write_text("<html><body>" + "<!--" * 200_000)
    (folder / "nested.html").write_text("<div>" * 50_000)
    (folder / "paragraphs.html").write_text("<p>a" * 5_000_000)
    (folder / "bomb.pdf").write_bytes(_pdf_bomb())
    with zipfile.ZipFile(folder / "bomb.docx", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("word/document.xml", b" " * (300 << 20))
    cell = json.dumps({"cell_type": "markdown", "source": "word " * 2000})
    (folder / "large.ipynb").write_text(f'{{"cells": [{", ".join([cell] * 6000)}], "nbformat": 4}}')
    (folder / "deep.ipynb").write_text('{"cells": ' + "[" * 1_000_000)
    (folder / "conversations.json").write_text('[{"mapping": {"a": {"parent": ' + '{"a":' * 500_000)
    return folder


def more_archives(folder: Path) -> Path:
    """Further ones, of tens of megabytes, that take half a minute to write."""
    archives(folder)
    (folder / "nested.pdf").write_bytes(_pdf([_CATALOG, *_page_tree(100_000)]))
    (folder / "pages.pdf").write_bytes(_pdf([_CATALOG, *_flat_pages(100_000)]))
    (folder / "objects.pdf").write_bytes(_pdf([_CATALOG, *_page_tree(1), *[b"[]"] * 600_000]))
    for name, text in (
        ("deep.docx", "<w:tbl><w:tr><w:tc>" * 50_000 + "<w:p/>" + "</w:tc></w:tr></w:tbl>" * 50_000),
        ("table.docx", "<w:tbl>" + "<w:tr><w:tc><w:p/></w:tc></w:tr>" * 900_000 + "</w:tbl>"),
        ("laughs.docx", "<w:p><w:r><w:t>&a9;</w:t></w:r></w:p>"),
        ("entities.docx", "<w:p><w:r><w:t>" + "&a3;" * 30_000 + "</w:t></w:r></w:p>"),
    ):
        (folder / name).write_bytes(samples.word(text, prologue=LAUGHS))
    (folder / "wide.ipynb").write_text('{"cells": [' + '{"cell_type": "markdown", "source": []},' * 900_000)
    (folder / "tables.html").write_text("<table><tr><td>" * 100_000)
    (folder / "attributes.html").write_text("<a " + "b=c " * 5_000_000)
    (folder / "session.jsonl").write_text('{"type":"user","message":{"role":"user","content":"a"}}\n' * 900_000)
    (folder / "chats.json").write_text(
        '[{"uuid": "a", "chat_messages": [' + '{"sender": "human", "text": "a"},' * 900_000
    )
    return folder


LAUGHS = '<!DOCTYPE a [<!ENTITY a0 "ha">{}]>'.format(
    "".join(f'<!ENTITY a{number} "' + f"&a{number - 1};" * 10 + '">' for number in range(1, 10))
)
"""Before a document: `&a9;` stands for two billion characters."""

_CATALOG = b"<</Type/Catalog/Pages 2 0 R>>"


def _pdf_bomb() -> bytes:
    """A page whose content stream is a gigabyte of drawing once it is unpacked twice."""
    packed = zlib.compress(zlib.compress(b"0 0 m 9 9 l S\n" * (16 << 20), 9), 9)
    stream = b"<</Length %d/Filter[/FlateDecode/FlateDecode]>>stream\n%s\nendstream" % (len(packed), packed)
    page = b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]/Contents 4 0 R>>"
    return _pdf([_CATALOG, b"<</Type/Pages/Kids[3 0 R]/Count 1>>", page, stream])


def _page_tree(depth: int) -> Iterator[bytes]:
    """Nodes of which each is the only child of the one before."""
    for number in range(2, depth + 2):
        yield b"<</Type/Pages/Kids[%d 0 R]/Count 1>>" % (number + 1)
    yield b"<</Type/Page/Parent %d 0 R/MediaBox[0 0 9 9]>>" % (depth + 1)


def _flat_pages(pages: int) -> Iterator[bytes]:
    yield b"<</Type/Pages/Kids[%s]/Count %d>>" % (b" ".join(b"%d 0 R" % (each + 3) for each in range(pages)), pages)
    yield from [b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 9 9]>>"] * pages


def _pdf(objects: Sequence[bytes]) -> bytes:
    made, places, size = [b"%PDF-1.4\n"], [], 9
    for number, body in enumerate(objects, 1):
        places.append(size)
        made.append(b"%d 0 obj%s\nendobj\n" % (number, body))
        size += len(made[-1])
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    end = b"xref\n0 %d\n0000000000 65535 f \n%strailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF"
    return b"".join(made) + end % (len(objects) + 1, table, len(objects) + 1, size)


def _noise(length: int) -> str:
    pick = random.Random(SEED)
    return "".join(pick.choices("aA1 .-_*`[](){}<>#|\\\"'\n\u0301é中👩\u200d", k=length))

"""Files of other formats, made on the spot: small, real, and hostile ones."""

import io
import json
import zipfile
import zlib
from collections.abc import Mapping, Sequence

_WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"
_PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
_OFFICE = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"


def pdf(
    pages: Sequence[str], *, title: str = "", chapters: Mapping[int, str] | None = None, locked: bool = False
) -> bytes:
    """A PDF with a line of text per line of a page; `locked` behind a password that no one has."""
    first = 3  # after the catalogue and the tree of pages
    font = first + 2 * len(pages)
    kids = " ".join(f"{first + 2 * index} 0 R" for index in range(len(pages)))
    objects = [f"<< /Type /Catalog /Pages 2 0 R /Outlines {font + 2} 0 R >>".encode()]
    objects.append(f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode())
    for index, page in enumerate(pages):
        number = first + 2 * index
        said = (
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {number + 1} 0 R "
            f"/Resources << /Font << /F {font} 0 R >> >> >>"
        )
        shown = " T* ".join(f"({_quoted(line)}) Tj" for line in page.split("\n"))
        stream = zlib.compress(f"BT /F 12 Tf 14 TL 72 720 Td {shown} ET".encode("latin-1"))
        objects.append(said.encode())
        objects.append(b"<< /Length %d /Filter /FlateDecode >>\nstream\n%s\nendstream" % (len(stream), stream))
    objects.append(b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica /Encoding /WinAnsiEncoding >>")
    objects.append(f"<< /Title ({_quoted(title)}) >>".encode())
    entries = sorted((chapters or {}).items())
    listed = f"/First {font + 3} 0 R /Last {font + 2 + len(entries)} 0 R /Count {len(entries)}" if entries else ""
    objects.append(f"<< /Type /Outlines {listed} >>".encode())
    for place, (index, name) in enumerate(entries):
        following = f"/Next {font + 4 + place} 0 R" if place + 1 < len(entries) else ""
        target = f"[{first + 2 * index} 0 R /XYZ 0 0 0]"
        objects.append(f"<< /Title ({_quoted(name)}) /Parent {font + 2} 0 R /Dest {target} {following} >>".encode())
    return _pdf_file(objects, info=font + 1, locked=locked)


def _pdf_file(objects: Sequence[bytes], *, info: int, locked: bool) -> bytes:
    written = io.BytesIO()
    written.write(b"%PDF-1.4\n")
    places = []
    for number, said in enumerate(objects, 1):
        places.append(written.tell())
        written.write(b"%d 0 obj\n%s\nendobj\n" % (number, said))
    start = written.tell()
    written.write(b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1))
    written.writelines(b"%010d 00000 n \n" % place for place in places)
    lock = "/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <" + "41" * 32 + "> /U <" + "42" * 32 + "> >> "
    trailer = f"<< /Size {len(objects) + 1} /Root 1 0 R /Info {info} 0 R {lock if locked else ''}/ID [<41><41>] >>"
    written.write(f"trailer\n{trailer}\nstartxref\n{start}\n%%EOF\n".encode())
    return written.getvalue()


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")


def word(body: str, *, prologue: str = "") -> bytes:
    """A Word document with this XML for a body; `p`, `r` and `t` are in the namespace `w`."""
    kinds = (
        '<Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
        '<Default Extension="xml" ContentType="application/xml"/></Types>'
    )
    to_document = f'<Relationship Id="a" Type="{_OFFICE}/officeDocument" Target="word/document.xml"/>'
    document = f'{prologue}<w:document xmlns:w="{_WORD}"><w:body>{body}</w:body></w:document>'
    return archive(
        {
            "[Content_Types].xml": kinds,
            "_rels/.rels": f'<Relationships xmlns="{_PACKAGE}">{to_document}</Relationships>',
            "word/document.xml": document,
        }
    )


def paragraph(text: str, style: str = "") -> str:
    properties = f'<w:pPr><w:pStyle w:val="{style}"/></w:pPr>' if style else ""
    return f"<w:p>{properties}<w:r><w:t>{text}</w:t></w:r></w:p>"


def archive(parts: Mapping[str, str | bytes]) -> bytes:
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in parts.items():
            file.writestr(name, content)
    return written.getvalue()


def notebook(*cells: Mapping[str, object], language: str = "python") -> bytes:
    return json.dumps({"nbformat": 4, "metadata": {"kernelspec": {"language": language}}, "cells": cells}).encode()


def chatgpt(*conversations: Mapping[str, object]) -> bytes:
    return json.dumps(conversations).encode()


def conversation(id_: str, title: str, *turns: tuple[str, str, float]) -> dict[str, object]:
    """A conversation of a ChatGPT export; the messages are role, text and time."""
    mapping: dict[str, object] = {"root": {"id": "root", "message": None, "parent": None, "children": []}}
    parent = "root"
    for number, (role, text, at) in enumerate(turns):
        key = f"{id_}-{number}"
        mapping[key] = {
            "id": key,
            "parent": parent,
            "children": [],
            "message": {
                "author": {"role": role, "name": None},
                "create_time": at,
                "content": {"content_type": "text", "parts": [text]},
                "metadata": {},
            },
        }
        parent = key
    return {
        "title": title,
        "create_time": turns[0][2] if turns else 0.0,
        "mapping": mapping,
        "current_node": parent,
        "conversation_id": id_,
    }

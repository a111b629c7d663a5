"""What a survey makes of the bytes that Git prints: names that ended, where they went, and what the code has now."""

from pathlib import Path

from rag_context.references.survey import COMMIT, surveyed, unpacked

NOW = 2_000.0


def commit(number: int, *fields: str) -> bytes:
    return COMMIT + f"{number:040x} {1000 + number}".encode() + b"\0\n" + b"\0".join(map(str.encode, (*fields, "")))


def test_names_that_were_moved_removed_or_staged_have_an_ending(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "new.py").write_text("def settle(amount):\n    return amount\n")
    (tmp_path / "src" / "picture.bin").write_bytes(b"\0binary settle_not")
    (tmp_path / "moved.py").write_text("RATE = 3\n")
    listing = b"H src/new.py\0H src/picture.bin\0H notes.md\0H old/moved.py\0? moved.py\0R old/moved.py\0"
    log = commit(2, "R100", "src/old.py", "src/new.py") + commit(1, "D", "src/gone.py")
    patches = b"\n".join((
        b"--- a/src/new.py", b"+++ b/src/new.py", b"@@ -1 +1 @@", b"-def post(amount):", b"+def settle(amount):",
        b"@@ -9 +9 @@", b"-class Ledger:", b"-    limit = 3",
    ))  # fmt: skip
    survey = unpacked(surveyed(tmp_path, listing, b"D\0staged.py\0", log, patches, NOW), ["0a1b"], ["ff00"])
    assert survey.has("settle")
    assert not survey.has("settle_not"), "a binary file is not code"
    assert survey.had("Ledger")
    assert not survey.had("settle"), "it is there"
    assert (survey.commit("0a1"), survey.commit("ff"), survey.commit("77")) == (True, False, None)
    assert survey.ending_with("new.py") == ["src/new.py"]
    for name in ("old.py", "gone.py", "staged.py"):
        assert survey.past_ending_with(name), name

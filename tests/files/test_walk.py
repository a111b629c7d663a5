"""Which files a walk returns."""

import inspect
import os
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pathspec import GitIgnoreSpec

from rag_context.files.file_reading import Found, Rejected
from rag_context.files.walk import MAX_PATTERN_CHARS, find_changed, find_files, ignore_patterns, outermost


def write(root: Path, files: Mapping[str, str | bytes]) -> Path:
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return root


def names(root: Path, *paths: Path) -> list[str]:
    found = find_files(paths or (root,))
    return [item.path.relative_to(root).as_posix() for item in found if isinstance(item, Found)]


def changed(root: Path, *below: str) -> list[str]:
    found = find_changed(root, [root / name for name in below])
    return [item.path.relative_to(root).as_posix() for item in found if isinstance(item, Found)]


class TestWalking:
    """C-4: ignore files at every level, a fixed order, and no way out of the folder."""

    def test_the_order_is_that_of_names_whatever_the_disk_says(self, tmp_path: Path) -> None:
        write(tmp_path, {"z.md": "z", "b/2.md": "2", "b/1.md": "1", "a.md": "a", "b/c/0.md": "0"})

        assert names(tmp_path) == ["a.md", "b/1.md", "b/2.md", "b/c/0.md", "z.md"]

    def test_a_path_named_twice_is_read_once(self, tmp_path: Path) -> None:
        path = write(tmp_path, {"a.md": "a"}) / "a.md"

        assert names(tmp_path, path, tmp_path / "." / "a.md") == ["a.md"]

    def test_both_ignore_files_hide_files_and_folders(self, tmp_path: Path) -> None:
        write(
            tmp_path,
            {
                ".gitignore": "*.log\nbuild/\n",
                ".ragignore": "secret.md\n",
                "a.md": "a",
                "a.log": "l",
                "secret.md": "s",
                "build/b.md": "b",
                "sub/x.log": "x",
                "sub/build": "a file of that name",
            },
        )

        assert names(tmp_path) == ["a.md", "sub/build"]

    def test_deeper_rules_win_over_those_above(self, tmp_path: Path) -> None:
        write(tmp_path, {".gitignore": "*.log\n", "keep/.gitignore": "!*.log\n", "keep/a.log": "a", "b.log": "b"})

        assert names(tmp_path) == ["keep/a.log"]

    def test_rules_above_hold_in_a_folder_with_rules_of_its_own(self, tmp_path: Path) -> None:
        write(tmp_path, {".gitignore": "*.log\n", "sub/.gitignore": "b.md\n", "sub/a.log": "a", "sub/b.md": "b"})

        assert names(tmp_path) == []

    def test_ragignore_wins_over_gitignore_of_its_folder(self, tmp_path: Path) -> None:
        write(tmp_path, {".gitignore": "generated/\n", ".ragignore": "!generated/\n", "generated/a.md": "a"})

        assert names(tmp_path) == ["generated/a.md"]

    def test_rules_of_the_repository_above_hold(self, tmp_path: Path) -> None:
        write(tmp_path, {"repo/.git/HEAD": "x", "repo/.gitignore": "/docs/draft.md\n", ".gitignore": "*.md\n"})
        docs = write(tmp_path / "repo" / "docs", {"draft.md": "d", "a.md": "a"})

        assert names(docs) == ["a.md"]

    def test_a_pattern_without_a_meaning_is_ignored(self, tmp_path: Path) -> None:
        write(tmp_path, {".gitignore": b"!\n\xff\n/\n*.log\n", "a.log": "l", "a.md": "a"})

        assert names(tmp_path) == ["a.md"]

    def test_a_file_named_outright_is_read_though_ignored(self, tmp_path: Path) -> None:
        write(tmp_path, {".gitignore": "a.md\n", "a.md": "a"})

        assert names(tmp_path, tmp_path / "a.md") == ["a.md"]

    @pytest.mark.parametrize("folder", [".git", "node_modules", ".venv", "__pycache__"])
    def test_tool_folders_and_env_files_are_never_read(self, tmp_path: Path, folder: str) -> None:
        write(tmp_path, {f"{folder}/a.md": "a", f"sub/{folder}/b.md": "b", "c.md": "c", ".env": "KEY=1"})

        assert names(tmp_path) == ["c.md"]

    def test_links_are_not_followed_out_of_the_folder(self, tmp_path: Path) -> None:
        outside = write(tmp_path / "outside", {"secret.md": "s"})
        root = write(tmp_path / "root", {"a.md": "a", "sub/b.md": "b"})
        (root / "file-out").symlink_to(outside / "secret.md")
        (root / "folder-out").symlink_to(outside)
        (root / "inside").symlink_to(root / "a.md")
        (root / "loop").symlink_to(root)
        (root / "nowhere").symlink_to(root / "no")

        items = list(find_files([root]))

        assert [item.path.name for item in items if isinstance(item, Found)] == ["a.md", "b.md"]
        assert {Path(item.path).name: item.reason for item in items if isinstance(item, Rejected)} == {
            "file-out": "a symbolic link that leads out of the folder",
            "folder-out": "a symbolic link that leads out of the folder",
            "nowhere": "a symbolic link that leads nowhere",
        }

    def test_depth_is_not_recursion(self, tmp_path: Path) -> None:
        write(tmp_path, {"d/" * 100 + "a.md": "a"})
        limit = sys.getrecursionlimit()

        sys.setrecursionlimit(len(inspect.stack()) + 60)
        try:
            found = names(tmp_path)
        finally:
            sys.setrecursionlimit(limit)

        assert found == ["d/" * 100 + "a.md"]

    def test_a_folder_that_cannot_be_opened_is_reported_and_stops_no_other(self, tmp_path: Path) -> None:
        write(tmp_path, {"a.md": "a", "z.md": "z"})
        number = os.open(tmp_path, os.O_RDONLY)
        gone = Path(f"/proc/self/fd/{number}/no")
        os.close(number)

        items = list(find_files([gone, tmp_path]))

        assert [type(item) for item in items] == [Rejected, Found, Found]
        assert isinstance(items[0], Rejected)
        assert items[0].unknown
        assert items[0].reason.startswith("cannot be read: ")


class TestPatterns:
    """A quoted pattern is walked like a folder: shells differ, and ignore files count."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        files = {"a.py": "a", "src/b.py": "b", "src/deep/c.py": "c", "src/d.md": "d", "out/e.py": "e"}
        return write(tmp_path, {**files, ".gitignore": "out/\n", "node_modules/f.py": "f"})

    @pytest.mark.parametrize(
        ("pattern", "expected"),
        [
            ("**/*.py", ["a.py", "src/b.py", "src/deep/c.py"]),
            ("*.py", ["a.py"]),
            ("src/*.py", ["src/b.py"]),
            ("s*/**/c.py", ["src/deep/c.py"]),
            ("src/?.md", ["src/d.md"]),
            ("src/[bd].*", ["src/b.py", "src/d.md"]),
            ("src/dee*", ["src/deep/c.py"]),
        ],
    )
    def test_it_takes_what_it_names(self, root: Path, pattern: str, expected: list[str]) -> None:
        assert names(root, root / pattern) == expected

    def test_one_that_matches_nothing_is_reported(self, root: Path) -> None:
        assert list(find_files([root / "*.zz"])) == [Rejected(f"{root}/*.zz", "nothing matches")]

    def test_a_file_of_that_very_name_comes_first(self, root: Path) -> None:
        write(root, {"[ab].py": "x"})

        assert names(root, root / "[ab].py") == ["[ab].py"]


class TestChanged:
    """C-5: of changed paths, a watcher takes what a walk of the whole folder would."""

    @pytest.fixture
    def root(self, tmp_path: Path) -> Path:
        files = {"a.md": "a", "sub/b.md": "b", "sub/deep/c.md": "c", "sub/x.log": "x", "out/d.md": "d"}
        return write(tmp_path, {**files, ".gitignore": "out/\n", "sub/.gitignore": "*.log\n", ".venv/e.md": "e"})

    @pytest.mark.parametrize(
        ("paths", "expected"),
        [
            (["a.md"], ["a.md"]),
            (["sub"], ["sub/b.md", "sub/deep/c.md"]),
            (["sub/b.md", "sub"], ["sub/b.md", "sub/deep/c.md"]),
            (["sub/deep/c.md", "gone.md"], ["sub/deep/c.md"]),
            (["sub/x.log", "out", "out/d.md", ".venv/e.md"], []),
            (["sub/.gitignore"], ["sub/b.md", "sub/deep/c.md"]),
            ([""], ["a.md", "sub/b.md", "sub/deep/c.md"]),
        ],
    )
    def test_it_is_what_stands_at_or_below_them(self, root: Path, paths: list[str], expected: list[str]) -> None:
        assert changed(root, *paths) == expected

    def test_a_link_is_no_way_out(self, root: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
        outside = write(tmp_path_factory.mktemp("outside"), {"secret.md": "s"})
        (root / "link").symlink_to(outside)

        assert changed(root, "link", "link/secret.md") == []

    def test_a_folder_is_looked_into_once_however_many_of_its_files_changed(self, root: Path) -> None:
        write(root, {f"sub/{number}.md": "n" for number in range(20)})
        looks: list[Path] = []

        def counted(folder: Path) -> list[os.DirEntry[str] | Rejected]:
            looks.append(folder)
            return list(os.scandir(folder))

        found = find_changed(root, [root / f"sub/{number}.md" for number in range(20)], list_folder=counted)
        assert len(list(found)) == 20
        assert looks == [root / "sub"]

    def test_what_is_below_another_is_not_read_twice(self, tmp_path: Path) -> None:
        paths = [tmp_path / "a" / "b", tmp_path / "a", tmp_path / "ab", tmp_path / "c" / ".ragignore"]

        assert outermost(paths) == [tmp_path / "a", tmp_path / "ab", tmp_path / "c"]


parts = st.text("ab*?", min_size=1, max_size=6) | st.just("**")
patterns = st.builds(
    lambda mark, lead, inner, tail: mark + lead + "/".join(inner) + tail,
    st.sampled_from(["", "!"]),
    st.sampled_from(["", "/"]),
    st.lists(parts, min_size=1, max_size=5),
    st.sampled_from(["", "/"]),
)
paths = st.lists(st.text("ab", min_size=1, max_size=5), min_size=1, max_size=6).map("/".join)


@settings(max_examples=200, deadline=None)
@given(lines=st.lists(patterns, min_size=1, max_size=3), path=paths)
def test_every_pattern_means_what_it_means_to_pathspec(lines: list[str], path: str) -> None:
    assert ignore_patterns(lines).check_file(path) == GitIgnoreSpec.from_lines(lines, backend="simple").check_file(path)


def test_stars_by_the_dozen_are_matched_at_once() -> None:
    """Without the atomic groups this takes longer than the universe has; it holds the interpreter's lock."""
    found: list[bool] = []
    name, folders = "a" * 250, "/".join(["a"] * 1000)
    work = threading.Thread(
        target=lambda: found.extend(
            [
                ignore_patterns(["*a" * 30 + "b"]).match_file(name),
                ignore_patterns(["**/a/" * 30 + "b"]).match_file(folders),
                ignore_patterns(["*a" * 30]).match_file(name),
                ignore_patterns(["**/a/" * 30 + "a"]).match_file(folders),
            ]
        ),
        daemon=True,
    )
    work.start()
    work.join()
    assert found == [False, False, True, True]


def test_a_pattern_that_is_too_long_is_passed_over_like_one_that_means_nothing() -> None:
    spec = ignore_patterns(["a" * (MAX_PATTERN_CHARS + 1), "!", "b"])
    assert not spec.match_file("a" * (MAX_PATTERN_CHARS + 1))
    assert spec.match_file("b")

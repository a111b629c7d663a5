"""Files opened through their folders: what is followed, and what is not."""

import os
from pathlib import Path

import pytest

from rag_context.files.descriptors import NotRegularError, open_folder, read_start


def test_the_beginning_of_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path.resolve() / "a"
    path.write_bytes(b"0123456789")
    assert read_start(path, 4) == b"0123"
    assert read_start(path, 40) == b"0123456789"


@pytest.mark.parametrize("link", ["folder", "folder/inner", "folder/inner/a"])
def test_no_part_of_a_path_is_followed_that_is_a_link(tmp_path: Path, link: str) -> None:
    root = tmp_path.resolve()
    (root / "real" / "inner").mkdir(parents=True)
    (root / "real" / "inner" / "a").write_bytes(b"x")
    place = root / link
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(root / "real" / Path(link).relative_to("folder"))
    assert (root / "folder" / "inner" / "a").read_bytes() == b"x"
    with pytest.raises(OSError, match=r"symbolic links|directory|loop"):
        read_start(root / "folder" / "inner" / "a", 4)


def test_a_pipe_and_a_folder_are_no_files_and_are_not_waited_for(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    os.mkfifo(root / "pipe")
    (root / "folder").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(NotRegularError):
            read_start(root / name, 4)


def test_work_in_an_open_folder_stays_in_it_when_its_path_leads_elsewhere(tmp_path: Path) -> None:
    root = tmp_path.resolve()
    for name in ("ours", "theirs"):
        (root / name).mkdir()
        (root / name / "a").write_text(name)
    with open_folder(root / "ours") as folder:
        (root / "ours").rename(root / "moved")
        (root / "ours").symlink_to(root / "theirs")
        folder.write("a", b"changed")
    assert ((root / "moved" / "a").read_text(), (root / "theirs" / "a").read_text()) == ("changed", "theirs")

"""Where a project's root is, which branch it is on, and which tenant that makes."""

import hashlib
import os
from pathlib import Path

import pytest

from rag_context.domain.documents import Tenant
from rag_context.errors import InvalidInputError
from rag_context.projects.tenants import (
    checked_branch,
    current_branch,
    external_tenant,
    is_checking_out,
    path_hash,
    repository_root,
)

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def repository(root: Path, head: str) -> Path:
    (root / ".git").mkdir(parents=True)
    (root / ".git" / "HEAD").write_text(head)
    return root


def test_the_root_is_that_of_the_git_repository(tmp_path: Path) -> None:
    repository(tmp_path, "ref: refs/heads/main\n")
    assert repository_root(tmp_path / "apps" / "shop" / ".rag-context" / "config.json") == tmp_path


def test_without_git_the_root_is_the_folder_that_holds_the_configuration(tmp_path: Path) -> None:
    assert repository_root(tmp_path / "shop" / ".rag-context" / "config.json") == tmp_path / "shop"


@pytest.mark.parametrize(
    ("head", "branch"),
    [
        ("ref: refs/heads/main\n", "main"),
        ("ref: refs/heads/feature/links-v2\r\n", "feature/links-v2"),
        ("ref: refs/remotes/origin/x\n", "remotes/origin/x"),
        (COMMIT + "\n", COMMIT[:12]),
        (COMMIT + "89abcdef" * 3, COMMIT[:12]),
        ("", "main"),
        ("nonsense", "main"),
    ],
)
def test_the_branch_is_read_from_head(tmp_path: Path, head: str, branch: str) -> None:
    assert current_branch(repository(tmp_path, head)) == branch


def test_the_branch_of_a_worktree_is_its_own(tmp_path: Path) -> None:
    main = repository(tmp_path / "main", "ref: refs/heads/main\n")
    (main / ".git" / "worktrees" / "fix").mkdir(parents=True)
    (main / ".git" / "worktrees" / "fix" / "HEAD").write_text("ref: refs/heads/fix\n")
    tree = tmp_path / "fix"
    tree.mkdir()
    (tree / ".git").write_text(f"gitdir: {main / '.git' / 'worktrees' / 'fix'}\n")
    assert current_branch(tree) == "fix"
    (tree / ".git").write_text("gitdir: ../main/.git/worktrees/fix\n")
    assert current_branch(tree) == "fix"


def test_without_git_the_branch_is_main(tmp_path: Path) -> None:
    assert current_branch(tmp_path) == "main"


def test_a_branch_that_cannot_be_read_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="branch_name"):
        current_branch(repository(tmp_path, "ref: refs/heads/.invalid\n"))


def test_a_lock_says_that_git_is_at_work_unless_it_was_left_behind(tmp_path: Path) -> None:
    lock = repository(tmp_path, "ref: refs/heads/main\n") / ".git" / "index.lock"
    assert not is_checking_out(tmp_path)
    lock.touch()
    assert is_checking_out(tmp_path)
    os.utime(lock, (0, 0))
    assert not is_checking_out(tmp_path)


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "a\0b", "x" * 201])
def test_a_branch_name_is_one_printable_line(name: str) -> None:
    with pytest.raises(InvalidInputError, match="printable"):
        checked_branch(name)


def test_the_path_hash_is_that_of_the_real_root(tmp_path: Path) -> None:
    real, link = tmp_path / "real", tmp_path / "link"
    real.mkdir()
    link.symlink_to(real)
    expected = hashlib.sha256(str(real.resolve()).encode()).hexdigest()[:16]
    assert path_hash(real) == path_hash(link) == path_hash(real / "x" / "..") == expected


def test_external_documents_have_a_tenant_of_their_own() -> None:
    tenant = Tenant("shop", "main", "0" * 16)
    external = external_tenant(tenant)
    assert (external.project, external.branch) == ("shop", "main")
    assert external.path_hash != tenant.path_hash
    assert len(external.path_hash) == 16

"""Opens a project: finds and reads its configuration, and computes its tenant. Nothing is indexed here."""

from dataclasses import dataclass, replace
from pathlib import Path

from rag_context.domain.documents import Tenant
from rag_context.errors import FieldError, InvalidInputError
from rag_context.projects.config import CONFIG_FILE, FOREIGN_CONFIG_FILE, ExternalDocs, ProjectConfig, read_config
from rag_context.projects.doc_types import DocTypes, doc_types_of
from rag_context.projects.links import inside, located
from rag_context.projects.records import DocumentNotFoundError, RetrievalOptions, SchemaValidationError, invalid_config
from rag_context.projects.sync import SyncScope, is_document, patterns
from rag_context.projects.tenants import checked_branch, current_branch, external_tenant, path_hash, repository_root


def external_scope(external: ExternalDocs) -> SyncScope:
    """The files of the folder that are indexed: documents that match the patterns. Raises: SchemaValidationError."""
    try:
        selected = patterns(external.include_patterns, external.exclude_patterns)
    except ValueError as error:
        message = f"external_docs: a pattern is invalid: {error}"
        detail = FieldError("external_docs", message)
        raise SchemaValidationError(f"The project configuration is invalid: {message}", [detail]) from error
    return lambda path: is_document(path) and selected(path)


_NAMES = (CONFIG_FILE, FOREIGN_CONFIG_FILE)


@dataclass(frozen=True, slots=True)
class Activation:
    """An activated project; `branch_is_given`: a caller has fixed the branch, otherwise it follows checkouts."""

    config: ProjectConfig
    tenant: Tenant
    repository_root: Path
    docs_root: Path
    doc_types: DocTypes
    options: RetrievalOptions
    search_options: RetrievalOptions
    branch_is_given: bool = False
    external: Tenant | None = None
    external_root: Path | None = None

    def located(self, path: str) -> str:
        """As `links.located`, from a path relative to the docs folder or the repository, or absolute. Blocking."""
        docs, home = self.docs_root, self.repository_root
        try:
            return located(docs, path)
        except (DocumentNotFoundError, InvalidInputError) as error:
            for folder in (home, self.config.path.parent.parent):
                below = inside(folder, path, docs)
                if below is not None and below.is_file():
                    return located(docs, str(docs / below.relative_to(docs.resolve())))
            if isinstance(error, InvalidInputError):
                raise
            name = docs.relative_to(home).as_posix() if docs.is_relative_to(home) else str(docs)
            raise DocumentNotFoundError(
                f"{error}; paths are relative to the docs folder, which is {name!r} in the repository"
            ) from None

    def is_external(self, path: str) -> bool:
        """Whether a path is a file of the external folder: relative to it, relative to the repository, or absolute."""
        external = self.external_root
        if external is None:
            return False
        if Path(path).is_absolute() and Path(path).is_relative_to(external):
            return True
        candidates = [inside(external, path, external), inside(self.repository_root, path, external)]
        return any(each is not None and each.is_file() for each in candidates)


def open_project(config_path: str, branch_name: str | None = None, *, is_forced: bool = False) -> Activation:
    """Read a project's configuration and its schemas. Blocking.

    `config_path` is the configuration, its folder, or any folder of the project. `is_forced` treats the files as those
    of `branch_name`, whatever is checked out.

    Raises: InvalidInputError (there is no configuration, or another branch is checked out), SchemaValidationError,
    FileSystemError.
    """
    path = find_config(config_path)
    config = read_config(path)
    root = repository_root(path)
    docs_root = _folder(config.docs_path, path.parent.parent, root)
    if docs_root is None:
        raise invalid_config("docs_path", f"{config.docs_path!r} is outside the repository")
    doc_types = doc_types_of(config, root)
    branch, is_pinned = _branch(root, branch_name, is_forced=is_forced)
    tenant = Tenant(config.project_name, branch, path_hash(root))
    external = config.external
    if external is not None:
        # To check its patterns: an invalid one must not stop a project that is followed already.
        external_scope(external)
    external_root = None if external is None else _folder(external.path, path.parent.parent, root)
    if external is not None and external_root is None:
        raise invalid_config("external_docs.path", f"{external.path!r} is outside the repository")
    return Activation(
        config=replace(config, warnings=(*config.warnings, *doc_types.warnings)),
        tenant=tenant,
        repository_root=root,
        docs_root=docs_root,
        doc_types=doc_types,
        options=config.query_options,
        search_options=config.search_options,
        branch_is_given=is_pinned,
        external=None if external is None else external_tenant(tenant),
        external_root=external_root,
    )


def _branch(root: Path, named: str | None, *, is_forced: bool) -> tuple[str, bool]:
    """The branch of the files, and whether it is fixed whatever is checked out. Raises: InvalidInputError."""
    if named is None:
        return current_branch(root), False
    name = checked_branch(named)
    try:
        current = current_branch(root)
    except InvalidInputError:  # the checked-out branch cannot be read: trust the caller
        return name, True
    if name == current:
        return name, is_forced
    if is_forced:
        return name, True
    message = (
        f"Branch {current!r} is checked out, not {name!r}: check out {name!r}, or leave branch_name out, or use force "
        f"to index the present files as {name!r}"
    )
    raise InvalidInputError(message, [FieldError("branch_name", message)])


def find_config(config_path: str) -> Path:
    """The configuration file at a path; for a folder, that of the innermost project. Raises: InvalidInputError."""
    try:
        path = Path(config_path).expanduser().resolve()
        folders = [path, *path.parents] if path.is_dir() else []
        candidates = [path, path / Path(CONFIG_FILE).name, *(folder / name for folder in folders for name in _NAMES)]
        found = next((each for each in candidates if "/".join(each.parts[-2:]) in _NAMES and each.is_file()), None)
    except (OSError, RuntimeError, ValueError):
        found = None
    if found is None:
        message = (
            f"There is no project configuration at this path or above it: create {CONFIG_FILE} in the project with "
            '{"project_name": "NAME", "docs_path": "docs"}, where docs is the folder of its documents'
        )
        raise InvalidInputError(message, [FieldError("config_path", message)])
    return found


def _folder(path: str, home: Path, root: Path) -> Path | None:
    """A folder of the configuration: relative to the folder of the project if it exists there, else to the root."""
    near = inside(home, path, root)
    return near if near is not None and near.is_dir() else inside(root, path, root)

"""Whose documents a request of the memory is about, where it names a project: resolved as the project tools do it."""

from typing import TypeVar

from rag_context.api.delete import DeleteRequest
from rag_context.api.get import GetRequest
from rag_context.api.index import IndexRequest
from rag_context.api.listing import ListRequest
from rag_context.api.search import SearchRequest
from rag_context.api.similar import SimilarRequest
from rag_context.errors import FieldError, InvalidInputError
from rag_context.projects.tenants import Tenants

Request = TypeVar("Request", SearchRequest, ListRequest, GetRequest, SimilarRequest, DeleteRequest, IndexRequest)


class Naming:
    """Spells out the projects that requests name.

    Args:
        tenants: those that there are.
    """

    def __init__(self, tenants: Tenants) -> None:
        self._tenants = tenants

    async def resolved(self, request: Request) -> Request:
        """The request with branch and path hash of the project that it names.

        Raises:
            NotFoundError: there is no such project.
            InvalidInputError: several fit, or a branch is named without a project.
            BackendError: it cannot be read which there are.
        """
        if request.project is None:
            _check_alone(request)
            return request
        tenant = await self._tenants.named(request.project, request.branch, request.path_hash)
        return request.model_copy(update={"branch": tenant.branch or None, "path_hash": tenant.path_hash or None})

    async def writable(self, request: IndexRequest) -> IndexRequest:
        """The request with the tenant that a document is stored for, which may be a new one.

        Raises:
            InvalidInputError: the documents of that project are files; or as `resolved`.
            BackendError: it cannot be read which projects there are.
        """
        project = request.project
        if project is None:
            _check_alone(request)
            return request
        if request.path_hash is not None or await self._tenants.has_files(project):
            message = (
                f"The documents of the project {project!r} are files: write this one into its docs folder and call "
                "index_document, or choose another project name"
            )
            raise InvalidInputError(message, [FieldError("project", message)])
        is_new = all(each.project != project for each in await self._tenants.known())
        return request if is_new or request.branch is not None else await self.resolved(request)


def _check_alone(request: Request) -> None:
    if request.branch is not None or request.path_hash is not None:
        message = "branch and pathHash tell projects of one name apart: name project too"
        raise InvalidInputError(message, [FieldError("project", message)])

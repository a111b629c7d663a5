"""Embeddings and models in the shapes of OpenAI's API, whose names are in snake_case.

Source: https://platform.openai.com/docs/api-reference/embeddings
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field
from pydantic.json_schema import WithJsonSchema

from rag_context.api.parsing import ErrorResponse
from rag_context.api.wire import Count, Identifier, Otherwise, PlainRequest, PlainResponse, Sentences, about

MAX_TEXTS = 2048
_TEXT = {"type": "string", "minLength": 1}


def _listed(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class EmbeddingsRequest(PlainRequest):
    """Texts to embed. `user` is accepted for the sake of clients that send it, and not used."""

    sentences: ClassVar[Mapping[str, Sentences]] = {"input": Sentences("Input required")}

    input: Annotated[
        list[Annotated[str, Field(min_length=1)]],
        Field(min_length=1, max_length=MAX_TEXTS),
        BeforeValidator(_listed),
        WithJsonSchema(
            {
                "anyOf": [_TEXT, {"type": "array", "items": _TEXT, "minItems": 1, "maxItems": MAX_TEXTS}],
                "description": f"One text, or up to {MAX_TEXTS} of them",
            }
        ),
    ]
    model: Annotated[
        Identifier | None, about("The model that `GET /v1/models` names, with or without its maker; absent: that one")
    ] = None
    encoding_format: Annotated[
        Literal["float", "base64"], about("Numbers, or base64 of little-endian float32"), Otherwise("float")
    ] = "float"
    user: Annotated[Identifier | None, about("Accepted and not used")] = None


class Embedding(PlainResponse):
    """One vector."""

    object: Literal["embedding"] = "embedding"
    index: Annotated[Count, about("Place of its text in the request, from 0")]
    embedding: list[float] | str


class Usage(PlainResponse):
    """Tokens of the texts, the model's own special tokens excluded."""

    prompt_tokens: Count
    total_tokens: Count


class EmbeddingsResponse(PlainResponse):
    """A vector for each text, in their order."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: Usage


class Model(PlainResponse):
    """A model. `created` is not known and always 0."""

    id: str
    object: Literal["model"] = "model"
    created: Count = 0
    owned_by: str = "rag-context"


class ModelsResponse(PlainResponse):
    """The models of this server: the one it has."""

    object: Literal["list"] = "list"
    data: list[Model]


class OpenAiError(PlainResponse):
    """What OpenAI's clients read of an error; further fields are those of every other error of this server."""

    message: Annotated[str, about("Message for people")]
    type: Annotated[str, about("invalid_request_error, rate_limit_error or server_error")]
    param: Annotated[str | None, about("The first invalid field; absent: none")] = None
    code: Annotated[str, about("Error code for programs")]
    request_id: Annotated[str, about("Correlation id of the request")]


class OpenAiErrorResponse(PlainResponse):
    """An error in the shape of OpenAI's API."""

    error: OpenAiError

    @classmethod
    def of(cls, status: int, failure: ErrorResponse) -> "OpenAiErrorResponse":
        """The same error as OpenAI's API would tell it."""
        kind = "invalid_request_error" if status < 500 else "server_error"
        fields = [detail.field for detail in failure.details or ()]
        error = OpenAiError.model_construct(
            message=failure.error,
            type="rate_limit_error" if status == 429 else kind,
            param=fields[0] if fields else None,
            code=failure.code.lower(),
            request_id=failure.request_id,
        )
        return cls.model_construct(error=error)

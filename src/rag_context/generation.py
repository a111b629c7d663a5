"""A chat model behind an OpenAI-compatible API: LM Studio, Ollama, llama.cpp, vLLM, OpenAI."""

from http import HTTPStatus

from rag_context.openai_server import OpenAIServer, Use

USE = Use("chat model", section="chat", kind="chat", path="chat/completions", result="text")
MAX_BODY_BYTES = 4 << 20
"""Longer responses are rejected."""


class OpenAIChat:
    """`POST /v1/chat/completions` of one server; fits `ports.ChatModel`.

    Args:
        url: its address, with or without `/v1`.
        model: the name of the model.
        api_key: sent as a bearer token.
        timeout_s: longest wait for a whole response.

    Raises:
        ConfigurationError: The address or the key cannot be used.
    """

    def __init__(self, url: str, *, model: str, api_key: str | None = None, timeout_s: float = 60.0) -> None:
        self._http = OpenAIServer(url, USE, model=model, api_key=api_key, timeout_s=timeout_s)

    async def complete(self, instructions: str, message: str) -> str:
        """The model's answer. Raises: BackendError."""
        fields = {
            "messages": [{"role": "system", "content": instructions}, {"role": "user", "content": message}],
            "temperature": 0,
            "stream": False,
        }
        reply = await self._http.post(fields, MAX_BODY_BYTES)
        payload = reply.payload()
        match payload:
            case {"choices": [{"message": {"content": str(text)}}, *_]} if (
                reply.status == HTTPStatus.OK and text.strip()
            ):
                return text.strip()
        raise self._http.failure(reply, payload)

    async def close(self) -> None:
        """Close the connections."""
        await self._http.close()

"""A model that answers every request with one sentence, and remembers what it was sent.

It speaks the streams of Anthropic's messages, OpenAI's responses and chat completions, and Gemini, as far as clients
need them for a turn. A prompt that holds `CALL NAME {arguments}` gets that tool call first.
"""

import gzip
import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, Protocol

REPLY: Final = "It is forty-two."
_CALL = re.compile(r"CALL (\w+) (\{.*?\}) NOW", re.DOTALL)
_USAGE = {"input_tokens": 10, "output_tokens": 5}


@dataclass(frozen=True, slots=True)
class Sent:
    """A request for words: where it went, and its body."""

    path: str
    body: dict[str, Any]

    @property
    def text(self) -> str:
        """All that the model reads, as one text: instructions, messages and tools."""
        return "\n".join(_texts(self.body))

    @property
    def tools(self) -> list[str]:
        """The names of the tools that the model may call."""
        return [name for tool in self.body.get("tools", ()) for name in _names(tool)]

    @property
    def turns(self) -> list[tuple[str, str]]:
        """The messages with their roles, in their order; instructions beside them are left out."""
        listed = self.body.get("messages") or self.body.get("input") or self.body.get("contents") or ()
        return [(str(each.get("role", each.get("type"))), "\n".join(_texts(each))) for each in listed]


def _texts(value: Any) -> Iterator[str]:
    """Every text in a body, in its order."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from _texts(each)
    elif isinstance(value, Sequence):
        for each in value:
            yield from _texts(each)


def _names(tool: Mapping[str, Any]) -> Iterator[str]:
    """What a tool is called: alone, as a function, in a list of declarations, or in a namespace."""
    if "name" in tool:
        yield str(tool["name"])
    for inner in (tool.get("function"), *tool.get("functionDeclarations", ()), *tool.get("tools", ())):
        if inner is not None:
            yield from _names(inner)


@dataclass
class Model:
    """The server. `sent` are the requests for words so far, the oldest first."""

    url: str
    sent: list[Sent] = field(default_factory=list)

    @property
    def asked(self) -> list[Sent]:
        """Those of the agent itself, which have tools: clients also have titles and topics made."""
        return [each for each in self.sent if each.tools]


class _Handler(Protocol):
    def __call__(self, body: dict[str, Any]) -> list[Any]: ...


def _messages(body: dict[str, Any]) -> list[Any]:
    call = _call(body.get("messages", []), bool(body.get("tools")))
    number = len(body.get("messages", []))  # Claude Code joins messages of one id
    block: dict[str, Any] = {"type": "text", "text": ""}
    delta: dict[str, Any] = {"type": "text_delta", "text": REPLY}
    if call is not None:
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": call[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": call[1]}
    message: dict[str, Any] = {"id": f"msg_{number}", "type": "message", "role": "assistant", "content": []}
    message["model"] = body.get("model")
    ended = {"stop_reason": "end_turn" if call is None else "tool_use", "stop_sequence": None}
    return [
        {"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None, "usage": _USAGE}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": ended, "usage": _USAGE},
        {"type": "message_stop"},
    ]


def _responses(body: dict[str, Any]) -> list[Any]:
    call = _call(body.get("input", []), bool(body.get("tools")))
    item: dict[str, Any] = {"type": "message", "role": "assistant", "id": "m1"}
    item["content"] = [{"type": "output_text", "text": REPLY}]
    if call is not None:
        item = {"type": "function_call", "id": "f1", "call_id": "c1", "name": call[0], "arguments": call[1]}
    usage = {**_USAGE, "total_tokens": 15, "input_tokens_details": {"cached_tokens": 0}}
    usage["output_tokens_details"] = {"reasoning_tokens": 0}
    response = {"id": "resp_1", "object": "response", "status": "completed", "output": [item], "usage": usage}
    return [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_item.done", "item": item},
        {"type": "response.completed", "response": response},
    ]


def _completions(body: dict[str, Any]) -> list[Any]:
    call = _call(body.get("messages", []), bool(body.get("tools")))
    delta: dict[str, Any] = {"role": "assistant", "content": REPLY}
    if call is not None:
        function = {"name": call[0], "arguments": call[1]}
        delta = {
            "role": "assistant",
            "tool_calls": [{"index": 0, "id": "c1", "type": "function", "function": function}],
        }
    chunk = {"id": "c1", "object": "chat.completion.chunk", "created": 0, "model": body.get("model")}
    ended = {"index": 0, "delta": {}, "finish_reason": "stop" if call is None else "tool_calls"}
    usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
    return [
        {**chunk, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**chunk, "choices": [ended], "usage": usage},
    ]


def _gemini(body: dict[str, Any]) -> list[Any]:
    call = _call(body.get("contents", []), bool(body.get("tools")))
    part: dict[str, Any] = {"text": REPLY}
    if call is not None:
        part = {"functionCall": {"name": call[0], "args": json.loads(call[1])}}
    candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
    usage = {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15}
    return [{"candidates": [candidate], "usageMetadata": usage, "modelVersion": "mock"}]


def _call(messages: list[Any], has_tools: bool) -> tuple[str, str] | None:
    """The tool call that the last message requests; its result is a message of its own, and so is what hooks say."""
    spoken = [each for each in messages if each.get("role") not in ("system", "developer")]
    if not has_tools or not spoken:
        return None
    found = _CALL.search("\n".join(_texts(spoken[-1])))
    return (found[1], found[2]) if found is not None else None


_KINDS: Mapping[str, tuple[_Handler, bool]] = {
    "/messages": (_messages, True),
    "/responses": (_responses, True),
    "/chat/completions": (_completions, False),
    ":streamGenerateContent": (_gemini, False),
    ":generateContent": (_gemini, False),
}
"""How an address answers, by its end, and whether its events have names."""


class _Requests(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    sent: list[Sent]
    lock: threading.Lock

    def do_HEAD(self) -> None:
        self._write("application/json", b"{}")

    def do_GET(self) -> None:
        models = {"object": "list", "data": [{"id": "mock-model", "object": "model"}], "models": []}
        self._write("application/json", json.dumps(models).encode())

    def do_POST(self) -> None:
        path = self.path.split("?")[0]
        body = self._body()
        answered = next((each for end, each in _KINDS.items() if path.endswith(end)), None)
        if answered is None:
            self._write("application/json", b'{"input_tokens": 10, "totalTokens": 10}')
            return
        with self.lock:
            self.sent.append(Sent(path, body))
        handler, is_named = answered
        events = handler(body)
        if path.endswith(":generateContent"):
            self._write("application/json", json.dumps(events[0]).encode())
            return
        if body.get("stream") is False or (path.endswith(("/messages", "/completions")) and not body.get("stream")):
            self._write("application/json", json.dumps(_whole(path, events)).encode())
            return
        lines = [(f"event: {each['type']}\n" if is_named else "") + f"data: {json.dumps(each)}\n\n" for each in events]
        lines += ["data: [DONE]\n\n"] if path.endswith("/completions") else []
        self._write("text/event-stream", "".join(lines).encode())

    def log_message(self, *_arguments: object) -> None:
        """Nothing is logged."""

    def _body(self) -> dict[str, Any]:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            read = b""
            while size := int(self.rfile.readline().strip() or b"0", 16):
                read += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
        else:
            read = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.headers.get("Content-Encoding") == "gzip":
            read = gzip.decompress(read)
        try:
            body = json.loads(read or b"{}")
        except ValueError:
            return {}
        return body if isinstance(body, dict) else {}

    def _write(self, kind: str, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


def _whole(path: str, events: list[Any]) -> dict[str, Any]:
    """The answer that a stream makes up."""
    if path.endswith("/messages"):
        text = {"type": "text", "text": REPLY}
        return {**events[0]["message"], "content": [text], "stop_reason": "end_turn"}
    message = {"index": 0, "message": {"role": "assistant", "content": REPLY}, "finish_reason": "stop"}
    return {**events[-1], "object": "chat.completion", "choices": [message]}


@contextmanager
def model() -> Iterator[Model]:
    """A model on a free port of loopback, for the time of the block."""
    sent: list[Sent] = []
    handler = type("Requests", (_Requests,), {"sent": sent, "lock": threading.Lock()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield Model(f"http://127.0.0.1:{server.server_port}", sent)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

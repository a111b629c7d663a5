"""The socket file beside the index at which hooks of agents call: of this user only, for as long as the process lives.

`serve` has it once the index is open, `mcp` before: until then, a call waits for as long as its hook does.
Windows has no such sockets in Python; there only the start of a session, which reads a file, says something.
"""

import asyncio
import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from rag_context.agents.hook import FOLDER, GO_ON, HEARD, MAX_PAYLOAD, PRINTED, REPORTS, SOCKET
from rag_context.errors import RagContextError

if TYPE_CHECKING:  # `mcp` listens before what answers is loaded
    from rag_context.agents.answering import HookAnswers, HookReply

logger = logging.getLogger(__name__)

READ_S = 1.0
"""How long a question, or the word that its answer was printed, may take."""

REPORT_BOUND_S = 5.0
REPORTS_EVERY_S = 5.0
_MAX_BYTES = 2 * MAX_PAYLOAD

Answers = Callable[[], Awaitable["HookAnswers"]]
"""Who answers, once the memory is open. Raises: RagContextError (it cannot be opened)."""


@asynccontextmanager
async def answering_hooks(data_dir: Path, kind: str, answers: Answers) -> AsyncIterator[None]:
    """Answer hooks for the time of the block, as far as the socket can be made.

    Hooks ask processes in reverse alphabetical order of their `kind`.
    """
    file = data_dir / FOLDER / f"{kind}-{os.getpid()}{SOCKET}"
    try:
        listener = await asyncio.to_thread(_bound, file)
    except OSError as error:
        logger.warning("hooks of agents get no answer from this process: %s: %s", file, error)
        listener = None
    if listener is None:
        yield
        return
    asking = _Asking(answers)
    server = await asyncio.start_unix_server(asking.on_connection, sock=listener, limit=_MAX_BYTES)
    catching_up = asyncio.create_task(asking.catch_up(file.with_name(REPORTS)), name="hook reports")
    try:
        yield
    finally:
        catching_up.cancel()
        server.close()
        await asking.close()
        with suppress(OSError):
            file.unlink()


def _bound(file: Path) -> socket.socket | None:
    """A socket that listens at a file of this user; None where the system has none. Raises: OSError."""
    if not hasattr(socket, "AF_UNIX"):
        return None
    for folder in (file.parent.parent, file.parent):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if file.parent.stat().st_mode & 0o077:
        file.parent.chmod(0o700)
    for left in file.parent.glob(f"*{SOCKET}"):
        _remove_if_dead(left)
    # Hooks see it once it listens, and this user alone may reach it.
    unseen = file.with_suffix(".new")
    unseen.unlink(missing_ok=True)  # of an earlier process with this number
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _reach(listener.bind, unseen)
        unseen.chmod(0o600)
        listener.listen(128)
        listener.setblocking(False)
        unseen.replace(file)
    except OSError:
        listener.close()
        raise
    return listener


def _reach(call: Callable[[str], object], file: Path) -> None:
    """Call with a short path of the file: that of a socket may have some 100 characters only."""
    with TemporaryDirectory(prefix="rc-") as short:
        link = Path(short) / "h"
        link.symlink_to(file.parent.resolve())
        call(str(link / file.name))


def _remove_if_dead(file: Path) -> None:
    with closing(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)) as probe, suppress(OSError):
        probe.settimeout(0.1)
        try:
            _reach(probe.connect, file)
        except ConnectionRefusedError:
            file.unlink()


def _taken(file: Path) -> list[bytes]:
    """The lines of a file, which only one process gets."""
    own = file.with_name(f"{file.name}.{os.getpid()}")
    if not file.exists():
        return []
    try:
        file.replace(own)
        lines = own.read_bytes().splitlines()
        own.unlink()
    except OSError:
        return []
    return lines


class _Asking:
    def __init__(self, answers: Answers) -> None:
        self._answers = answers
        self._tasks: set[asyncio.Task[None]] = set()

    async def on_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101  (a coroutine that runs has one)
        self._tasks.add(task)
        try:
            await self._answered(reader, writer)
        except (
            RagContextError,
            OSError,
            ValueError,
            TypeError,
            KeyError,
            TimeoutError,
            asyncio.IncompleteReadError,
        ) as error:
            logger.debug("a hook got no answer: %s", error)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def catch_up(self, file: Path) -> None:
        """Take in what hooks noted while no process answered in time, until cancelled."""
        try:
            answers = await self._answers()
        except RagContextError:  # said by what opened it
            return
        while True:
            for line in await asyncio.to_thread(_taken, file):
                with suppress(ValueError, TypeError, KeyError):
                    await answers.answer(json.loads(line), REPORT_BOUND_S)
            await asyncio.sleep(REPORTS_EVERY_S)

    async def _answered(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(READ_S):
            question = json.loads(await reader.readline())
            writer.write(HEARD)
            # One that has given up calls another process, or leaves a report: it must not be answered twice.
            if await reader.readexactly(1) != GO_ON:
                return
        bound_s = float(question["bound_s"])
        answers, reply = await self._reply(question, bound_s)
        writer.write(json.dumps({"text": reply.text}).encode() + b"\n")
        is_printed = True
        if reply.text:
            try:
                async with asyncio.timeout(READ_S):
                    is_printed = await reader.readexactly(1) == PRINTED
            except (OSError, TimeoutError, asyncio.IncompleteReadError):
                is_printed = False
        await (answers.printed(reply) if is_printed else answers.lost(reply))

    async def _reply(self, question: Mapping[str, Any], bound_s: float) -> "tuple[HookAnswers, HookReply]":
        """The answer, and who gave it. Raises: TimeoutError (the memory is not open in time)."""
        async with asyncio.timeout(bound_s):
            answers = await self._answers()
        return answers, await answers.answer(question, bound_s)

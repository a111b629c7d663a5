"""Opening connections: the primary among several hosts, and an open one where the server accepts no more."""

import asyncio
from enum import Enum
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg

CONNECT_S = 5.0
"""Longest wait for a new connection; a search gives up earlier, at its own deadline."""

IDLE_S = 300.0

LOOK_S = 0.01
"""How often it is looked whether a connection has become free, while the server accepts no more."""

_ANY_PRIMARY = {"target_session_attrs": "primary"}
"""Of several hosts, the one that is not a standby, unless the address says otherwise."""


class Plan(Enum):
    """When the server plans a prepared statement."""

    EACH_TIME = "force_custom_plan"
    """For its values: what a filter lets through decides on the plan."""

    ONCE = "force_generic_plan"
    """For each connection, and again when a table was analysed: planning a search takes as long as a part of it."""

    EITHER = "either"
    """As the connection was used last: the statement has one plan only."""


class Connector:
    """Opens connections to the host of an address that can be used.

    The driver tries one host after the other, and one that never answers takes all the time. Here each host has its
    share of it, and the one that was connected to last is tried first.

    Args:
        url: the address, several hosts separated by commas.
    """

    def __init__(self, url: str) -> None:
        self._urls = _one_each(url)
        several = len(self._urls) > 1 and "target_session_attrs" not in url
        self._options = _ANY_PRIMARY if several else {}

    async def connect(self, _url: str, **options: Any) -> Any:
        """A connection. Raises: what the driver raises; where no host is a primary, that."""
        failures: list[Exception] = []
        timeout_s = CONNECT_S / len(self._urls)
        for url in tuple(self._urls):
            try:
                connection = await asyncpg.connect(url, **{**options, **self._options, "timeout": timeout_s})
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                failures.append(error)
            except ValueError as error:  # of an option of the address
                invalid = asyncpg.ClientConfigurationError("the address cannot be read")
                invalid.__cause__ = error
                failures.append(invalid)
            else:
                self._urls.remove(url)
                self._urls.insert(0, url)
                return connection
        raise next(
            (each for each in failures if isinstance(each, asyncpg.TargetServerAttributeNotMatched)), failures[0]
        )


class Connections:
    """A pool of connections, opened as they are needed.

    Args:
        pool: the driver's pool.
        size: how many it may have.
    """

    def __init__(self, pool: Any, size: int) -> None:
        self._pool = pool
        self._size = size
        self._in_need = asyncio.Lock()
        self._plans: dict[int, Plan] = {}
        """By process of the server, where it was changed. A number may come again: that costs time, but no answer."""

    async def acquire(self) -> Any:
        """A connection; where the server accepts no more, the next one of ours that is free.

        Raises:
            asyncpg.TooManyConnectionsError: the server accepts no more, and there is none.
            OSError, asyncpg.PostgresError, asyncpg.InterfaceError: none can be opened.
        """
        try:
            return await self._pool.acquire(timeout=CONNECT_S)
        except asyncpg.TooManyConnectionsError:
            if not self._pool.get_size():
                raise
        async with asyncio.timeout(CONNECT_S), self._in_need:
            while True:
                connection = await self._free() if self._pool.get_idle_size() else None
                if connection is not None:
                    return connection
                await asyncio.sleep(LOOK_S)

    async def plan(self, connection: Any, plan: Plan) -> None:
        """Have the next statements of a connection planned so; a round trip where the last ones were not."""
        process = connection.get_server_pid()
        if plan is Plan.EITHER or plan is self._plans.get(process, Plan.EACH_TIME):
            return
        self._plans[process] = Plan.EITHER  # given up before the answer, it is not known
        await connection.execute(f"SET plan_cache_mode = {plan.value}", timeout=CONNECT_S)
        self._plans[process] = plan

    async def release(self, connection: Any, timeout_s: float) -> None:
        """Give a connection back; it is closed where its statement was given up and does not end in time."""
        await self._pool.release(connection, timeout=timeout_s)

    async def expire(self) -> None:
        """Have no connection used again."""
        await self._pool.expire_connections()

    async def close(self, timeout_s: float) -> None:
        """Close all connections."""
        try:
            await asyncio.wait_for(self._pool.close(), timeout_s)
        except (TimeoutError, OSError, asyncpg.PostgresError, asyncpg.InterfaceError):
            self._pool.terminate()

    async def _free(self) -> Any:
        """A free connection that is open; None if it was taken meanwhile.

        The pool tries the place that was released last. Where that has no connection it cannot get one now, and would
        be tried again and again. A request for all places at once reaches one that has.
        """
        tasks = [asyncio.ensure_future(self._pool.acquire(timeout=CONNECT_S)) for _ in range(self._size)]
        running = set(tasks)
        taken: list[Any] = []
        try:
            while running and not taken:
                done, running = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
                taken = [task.result() for task in done if task.exception() is None]
            return taken.pop() if taken else None
        finally:
            for task in running:
                task.cancel()
            others = await asyncio.gather(*running, return_exceptions=True)
            for connection in (*taken, *(each for each in others if not isinstance(each, BaseException))):
                await self._pool.release(connection)


def _one_each(url: str) -> list[str]:
    """The address of each host by itself."""
    parts = urlsplit(url)
    user, at, hosts = parts.netloc.rpartition("@")
    return [
        urlunsplit((parts.scheme, f"{user}{at}{host}", parts.path, parts.query, parts.fragment))
        for host in hosts.split(",")
    ]

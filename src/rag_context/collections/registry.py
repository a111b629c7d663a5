"""The registry of provider kinds: the built-in ones, and those of plug-ins.

A plug-in is one object, a `ProviderKind`, that a distribution names as an entry point of the group
`rag_context.providers`. A broken plug-in is listed with the reason and affects nothing else.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from importlib.metadata import EntryPoint, entry_points
from time import perf_counter
from typing import Any, Generic, TypeAlias, TypeVar, get_args

from pydantic import BaseModel, SecretStr, ValidationError
from pydantic_core import ErrorDetails

from rag_context.domain.documents import Status
from rag_context.errors import BackendRejectedError, FieldError, InvalidInputError, RagContextError
from rag_context.ports.provider import Capabilities, Provider, ProviderHealth
from rag_context.settings.values import Expected

GROUP = "rag_context.providers"

_LONGEST = 300

EntryPoints: TypeAlias = Callable[[], Iterable[EntryPoint]]


def installed() -> Iterable[EntryPoint]:
    return entry_points(group=GROUP)


def sentence_of(error: BaseException) -> str:
    """An error of a plug-in in one line: its type and the first line of its message."""
    message = str(error).strip().partition("\n")[0][:_LONGEST].rstrip(". ")
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


PROBE_S = 10.0

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,39}")
_NOTHING = Capabilities(collections=False, search=False, metadata_filtering=False)

C = TypeVar("C", bound=BaseModel)

_NAMED = re.compile(
    r"(?i)(^|_)(addr|address|addresses|dsn|endpoint|host|hosts|location|node|nodes|server|uri|url)($|_)"
)
_HOST_AND_PORT = re.compile(r"[\w.-]+:\d{1,5}")


def guessed_addresses(configuration: BaseModel) -> list[str]:
    """The values that look like addresses, for a provider kind that does not declare its addresses."""
    return list(_guessed(None, configuration))


def _guessed(name: str | None, value: object) -> Iterator[str]:
    match value:
        case BaseModel():
            for field in type(value).model_fields:
                yield from _guessed(field, getattr(value, field))
        case SecretStr():
            secret = value.get_secret_value()
            if "://" in secret:
                yield secret
        case str():
            if "://" in value or _HOST_AND_PORT.fullmatch(value) or (name is not None and _NAMED.search(name)):
                yield value
        case Mapping():
            for key, each in value.items():
                yield from _guessed(str(key), each)
        case list() | tuple() | set() | frozenset():
            for each in value:
                yield from _guessed(name, each)
        case _ if name is not None and _NAMED.search(name) and value is not None and not isinstance(value, int | float):
            yield str(value)


@dataclass(frozen=True, slots=True)
class ProviderKind(Generic[C]):
    """A kind of provider, as a plug-in declares it.

    `open` may import what it needs when it is called, so that an unused kind costs nothing. It should send no request
    to a server, which may be down for now. It raises ConfigurationError if the configuration can never work.
    """

    name: str
    """Lower-case letters, digits, dashes and underscores; the entry point has the same."""
    title: str
    """The name for people."""
    capabilities: Capabilities
    configuration: type[C]
    """The model of its configuration. Secrets in it are `SecretStr`, so that they are never shown."""
    open: Callable[[C], AbstractAsyncContextManager[Provider]]
    addresses: Callable[[C], Sequence[str]] = guessed_addresses
    """The addresses that it connects to; callers can test a provider only at addresses that the settings allow."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A provider kind in the registry, available or not."""

    name: str
    title: str
    capabilities: Capabilities = _NOTHING
    reason: str | None = None
    """Why it is not available, and what to do; None if it is."""
    distribution: str | None = None
    """The distribution of the plug-in; None if it is built in."""
    kind: ProviderKind[Any] | None = None

    @property
    def available(self) -> bool:
        return self.reason is None

    def connection_schema(self) -> dict[str, Any]:
        """The JSON Schema of its configuration, with secrets as `writeOnly`; empty if the plug-in is broken."""
        return self.kind.configuration.model_json_schema() if self.kind is not None else {}

    def validated(self, configuration: Mapping[str, object]) -> BaseModel:
        """Validate a configuration. Raises: InvalidInputError (with every wrong field), BackendRejectedError."""
        model = self._usable().configuration
        # Collected before the rest is validated, so that one answer names every field that is wrong.
        unknown = [] if model.model_config.get("extra") == "allow" else _unknown(model, configuration)
        try:
            made: BaseModel = model.model_validate(dict(configuration))
        except ValidationError as error:
            details = error.errors(include_url=False, include_context=False, include_input=False)
            wrong = [_field_error(model, detail) for detail in details if detail["type"] != "extra_forbidden"]
            raise _invalid(self.name, [*unknown, *wrong]) from None  # its message would repeat the values
        if unknown:
            raise _invalid(self.name, unknown)
        return made

    def addresses(self, configuration: BaseModel) -> Sequence[str]:
        """The addresses that it connects to with this configuration. Raises: BackendRejectedError."""
        return self._usable().addresses(configuration)

    @asynccontextmanager
    async def open(self, configuration: BaseModel) -> AsyncIterator[Provider]:
        """Open a provider of this kind for the block. Raises: ConfigurationError (it can never work), BackendError."""
        kind = self._usable()
        async with AsyncExitStack() as stack:
            try:
                provider = await stack.enter_async_context(kind.open(configuration))
            except RagContextError:
                raise
            except Exception as error:
                message = f"The provider {self.name!r} cannot be opened: {sentence_of(error)}."
                raise BackendRejectedError("provider", message) from error
            yield provider

    def _usable(self) -> ProviderKind[Any]:
        if self.kind is None or self.reason is not None:
            raise BackendRejectedError("provider", f"The provider {self.name!r} cannot be used: {self.reason}")
        return self.kind


class ProviderRegistry:
    """All provider kinds by name; a built-in one comes with the reason why it is not available."""

    def __init__(
        self, built_in: Sequence[tuple[ProviderKind[Any], str | None]], plugins: EntryPoints = installed
    ) -> None:
        self._built_in = {
            kind.name: Registered(kind.name, kind.title, kind.capabilities, reason, kind=kind)
            for kind, reason in built_in
        }
        self._plugins = plugins
        self._loaded: list[Registered] | None = None

    def __iter__(self) -> Iterator[Registered]:
        """All kinds, by name; of two with one name, the available one comes first."""
        return iter(sorted([*self._built_in.values(), *self._others()], key=lambda each: each.name))

    def get(self, name: str) -> Registered | None:
        built_in = self._built_in.get(name)
        if built_in is not None:
            return built_in
        return next((each for each in self._others() if each.name == name), None)

    async def load(self) -> None:
        """Import the plug-ins in a thread, so that later calls do not block."""
        await asyncio.to_thread(self._others)

    def _others(self) -> list[Registered]:
        if self._loaded is None:
            found = sorted(map(_registered, self._plugins()), key=lambda each: (each.name, each.distribution or ""))
            self._loaded = _without_doubles(self._built_in, found)
        return self._loaded


async def probe(registered: Registered, configuration: BaseModel, *, timeout_s: float = PROBE_S) -> ProviderHealth:
    """Open a provider, check its health, and close it, within a timeout; failures are part of the result."""

    async def ask() -> ProviderHealth:
        async with registered.open(configuration) as provider:
            return await provider.health()

    return await examined(ask, timeout_s, perf_counter)


async def examined(
    ask: Callable[[], Awaitable[ProviderHealth]], timeout_s: float, clock: Callable[[], float]
) -> ProviderHealth:
    """The health of a provider; never raises: a failure, and no answer within `timeout_s`, are part of the result."""
    checked, started = datetime.now(UTC), clock()
    try:
        async with asyncio.timeout(timeout_s):
            return await ask()
    except TimeoutError:
        error = f"It did not answer within {timeout_s:g} s."
    except RagContextError as failure:
        error = str(failure)
    except Exception as failure:  # noqa: BLE001  (a plug-in may raise anything)
        error = f"It failed: {sentence_of(failure)}."
    return ProviderHealth(Status.UNAVAILABLE, checked, (clock() - started) * 1000, error)


def _registered(entry: EntryPoint) -> Registered:
    """The registration of a plug-in; if it is broken, with the reason."""
    distribution = entry.dist.name if entry.dist is not None else "an unknown distribution"
    broken = Registered(entry.name, entry.name, distribution=distribution)
    try:
        kind = entry.load()
    except (Exception, SystemExit) as error:  # noqa: BLE001  (a plug-in may raise anything)
        return replace(broken, reason=f"It cannot be loaded: {sentence_of(error)}.")
    if not isinstance(kind, ProviderKind):
        return replace(broken, reason=f"It is not a ProviderKind, but of type {type(kind).__name__}.")
    if kind.name != entry.name or not _NAME.fullmatch(kind.name):
        reason = f"Its name is {kind.name!r}; it must equal the name of its entry point and match {_NAME.pattern}."
        return replace(broken, reason=reason)
    title: object = kind.title
    capabilities: object = kind.capabilities
    if not isinstance(title, str) or not isinstance(capabilities, Capabilities):
        return replace(broken, reason="Its title must be a text, and its capabilities a Capabilities.")
    try:
        kind.configuration.model_json_schema()
    except Exception as error:  # noqa: BLE001  (a plug-in's model may raise anything)
        return replace(broken, reason=f"Its configuration cannot be described: {sentence_of(error)}.")
    return Registered(kind.name, kind.title, kind.capabilities, distribution=distribution, kind=kind)


def _without_doubles(built_in: Mapping[str, Registered], found: Sequence[Registered]) -> list[Registered]:
    """Of kinds with the same name only one is available: the built-in one, or else the first that works."""
    # A broken plug-in must not take the name from a working one, so only available kinds hold names.
    holders = dict(built_in)
    for each in found:
        if each.available:
            holders.setdefault(each.name, each)
    kept = [each for each in found if holders.get(each.name) is each]
    return kept + [_displaced(each, holders.get(each.name)) for each in found if holders.get(each.name) is not each]


def _displaced(each: Registered, holder: Registered | None) -> Registered:
    if holder is None or not each.available:
        return each
    owner = "built in" if holder.distribution is None else f"of {holder.distribution}"
    reason = f"The name belongs to the provider that is {owner}."
    return replace(each, reason=reason, capabilities=_NOTHING, kind=None)


def _unknown(model: type[BaseModel], configuration: Mapping[str, object]) -> list[FieldError]:
    known = {field.alias or name for name, field in model.model_fields.items()} | set(model.model_fields)
    names = ", ".join(model.model_fields) or "none"
    return [FieldError(key, f"is unknown; known are: {names}") for key in map(str, configuration) if key not in known]


def _field_error(model: type[BaseModel], detail: ErrorDetails) -> FieldError:
    field = ".".join(map(str, detail["loc"]))
    if detail["type"] == "missing":
        return FieldError(field, "is required")
    known = model.model_fields.get(field)
    expected = None if known is None else _expected(known.annotation, known.metadata)
    if expected is not None:
        return FieldError(field, f"must be {expected}")
    message = detail["msg"].removeprefix("Value error, ").replace("Input should be", "must be")
    return FieldError(field, message[:1].lower() + message[1:])


def _expected(annotation: Any, metadata: Sequence[object]) -> str | None:
    """The description of a field's valid values, if its type has one."""
    for item in (*metadata, *getattr(annotation, "__metadata__", ())):
        if isinstance(item, Expected):
            return item.text
    return next(filter(None, (_expected(argument, ()) for argument in get_args(annotation))), None)


def _invalid(name: str, details: Sequence[FieldError]) -> InvalidInputError:
    problems = "; ".join(f"{detail.field} {detail.message}".strip() for detail in details)
    return InvalidInputError(f"The configuration of the provider {name!r} is invalid: {problems}.", details)

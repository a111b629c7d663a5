"""`serve` and `embed-server`: the index over HTTP, and the bundled model over HTTP, until they are stopped."""

import os
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from secrets import token_hex
from shutil import rmtree
from tempfile import TemporaryDirectory, gettempdir
from uuid import uuid4

from rag_context._version import __version__
from rag_context.api.operations import Access
from rag_context.api.wire import Vocabulary
from rag_context.cli.command_line import ExitCode
from rag_context.cli.console import Console
from rag_context.cli.options import ConfigOptions, named_path, option, with_options
from rag_context.client.address import Announcement, is_every_address, server_url
from rag_context.domain.callers import Bounds
from rag_context.errors import ConfigurationError
from rag_context.logs import configure_logging
from rag_context.server.options import HashedKey, ServerOptions, TrustedIssuer, hash_key
from rag_context.server.running import announced, bind, bound_address
from rag_context.server.running import run as run_loop
from rag_context.server.supervisor import ServerWorkerFailedError, WorkerSlot, supervising
from rag_context.settings import EmbedderSettings, Settings
from rag_context.settings.keys import location_of
from rag_context.settings.sections import OAuthSettings, ScopeParts

# What opens the index is imported by the processes that do: the supervisor of several workers stays small.

OWN_KEY = "api_key"
"""Name, in logs, of the key of `server.api_key`."""


@dataclass(frozen=True, slots=True)
class Start:
    """What a process of a server starts with; `roots` are files and folders to index and follow."""

    settings: Settings
    options: ServerOptions
    roots: tuple[Path, ...]
    is_reindexing: bool
    place: WorkerSlot | None = None
    """Which of several workers it is; None: it is alone."""

    @property
    def is_first(self) -> bool:
        """Whether this process does what only one process of a server may do."""
        return self.place is None or self.place.number == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeOptions(ConfigOptions):
    host: str | None = option(None, "Address to listen on (server.host).", metavar="ADDRESS")
    port: int | None = option(None, "Port; 0 selects a free one (server.port).", metavar="PORT")
    workers: int | None = option(None, "Processes that answer behind the one port (server.workers).", metavar="N")
    log_level: str | None = option(None, "debug, info, warning or error (log.level).", metavar="LEVEL")
    reindex: bool = option(False, "Re-embed the index if another model made its vectors.")
    watch: list[Path] | None = option(
        None, "Index this folder and follow its changes; may be given several times.", metavar="PATH", parser=named_path
    )


@with_options
def serve(options: ServeOptions) -> ExitCode:
    """Serve HTTP until SIGTERM or Ctrl-C."""
    console = Console()
    flags = {
        "server.host": options.host,
        "server.port": options.port,
        "server.workers": options.workers,
        "log.level": options.log_level,
    }
    settings = options.load_available(flags).settings
    roots: list[Path] = []
    if options.watch:
        from rag_context.cli.index_files import watched  # noqa: PLC0415

        roots = watched(options.watch)
    configure_logging(settings.log.level, settings.log.format)
    http = server_options(settings)
    with closing(bind(http)) as listener:
        http = replace(http, port=listener.getsockname()[1])
        start = Start(settings, http, tuple(roots), is_reindexing=options.reindex)
        if settings.server.workers > 1:
            return run_loop(_supervise(start, listener, console))
        from rag_context.cli.serving import serve_here  # noqa: PLC0415

        run_loop(serve_here(start, listener, _announced(start, listener, console)))
    return ExitCode.OK


async def _supervise(start: Start, listener: socket.socket, console: Console) -> ExitCode:
    check_workers(start.settings)
    count = start.settings.server.workers
    with _shared_folder() as folder:
        options = replace(start.options, sessions_file=folder / "sessions.db")
        places = [WorkerSlot(number, count, folder) for number in range(1, count + 1)]
        starts = [replace(start, options=options, place=place) for place in places]
        try:
            async with (
                supervising(listener, "rag_context.cli.serving", starts) as supervisor,
                _announced(start, listener, console),
            ):
                await supervisor.stopped()
        except ServerWorkerFailedError as error:
            for line in str(error).splitlines():
                console.error(line)
            return ExitCode(error.status)
    return ExitCode.OK


@contextmanager
def _shared_folder() -> Iterator[Path]:
    """A folder for this user and the time of the block; those of supervisors that were killed are removed."""
    prefix = f"rag-context-{os.getuid()}-"  # short: the path of a socket has some 100 characters
    for left in Path(gettempdir()).glob(f"{prefix}*"):
        with suppress(OSError), _locked(left):
            rmtree(left)
    with TemporaryDirectory(prefix=prefix) as name, _locked(Path(name)):
        yield Path(name)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder, which ends with this process. Raises: OSError (another process holds it)."""
    import fcntl  # noqa: PLC0415  (only Unix has it, and several workers)

    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(descriptor)


def check_workers(settings: Settings) -> None:
    if os.name != "posix":
        raise ConfigurationError("Several workers need a Unix system: set server.workers to 1")
    in_folders = [settings.stores.chroma_dir] if settings.stores.vectors == "chroma" else []
    if any([*in_folders, *(each.configuration.get("folder") for each in settings.connections.values())]):
        raise ConfigurationError(
            "A Chroma in a folder belongs to one process: set server.workers to 1, or use Chroma's server"
        )


@asynccontextmanager
async def _announced(start: Start, listener: socket.socket, console: Console) -> AsyncIterator[None]:
    """Have the server found by commands, and by who reads the terminal, for the time of the block."""
    settings, options = start.settings, start.options
    url = server_url(options.host, options.port)
    host, port = listener.getsockname()[:2]
    bound = bound_address(host, port)
    place = f"{url} (every address of this machine, {bound})" if is_every_address(host) else url
    workers = f"{settings.server.workers} workers, " if settings.server.workers > 1 else ""
    announcement = Announcement(os.getpid(), url, options.instance_id, options.secret, bound)
    async with announced(settings.data_dir, announcement):
        console.note(
            (f"rag-context {__version__}", "bold"),
            f" at {place}, {workers}index in {location_of(settings)}. Ctrl-C stops it.",
        )
        yield


def server_options(settings: Settings) -> ServerOptions:
    server = settings.server
    groups = {each.name: _bounds(each) for each in server.groups}
    keys = []
    for key in server.api_keys:
        if unknown := set(() if key.scope is None else key.scope.groups) - groups.keys():
            names = ", ".join(sorted(unknown))
            raise ConfigurationError(f"API key {key.name!r} is bound to groups that server.groups lacks: {names}")
        bounds = None if key.scope is None else _bounds(key.scope).joined(groups[name] for name in key.scope.groups)
        keys.append(HashedKey.parse(key.name, key.hash, Access(key.access), bounds))
    if server.api_key is not None:
        keys.append(HashedKey.parse(OWN_KEY, hash_key(server.api_key.get_secret_value()), Access.ADMIN))
    return ServerOptions(
        host=server.host,
        port=server.port,
        allowed_hosts=server.allowed_hosts,
        cors_origins=frozenset(server.cors_origins),
        api_keys=tuple(keys),
        issuer=_issuer(settings.oauth, groups),
        vocabulary=Vocabulary.extended(settings.vocabulary.content_types, settings.vocabulary.categories),
        instance_id=uuid4().hex,
        secret=token_hex(32),
        body_bytes=server.max_body_bytes,
        index_body_bytes=server.max_index_body_bytes,
        collection_body_bytes=server.max_collection_body_bytes,
        bulk_concurrency=settings.indexing.concurrency,
        rate_per_s=server.requests_per_s,
    )


def _bounds(parts: ScopeParts) -> Bounds:
    return Bounds(**{each.name: getattr(parts, each.name) for each in fields(Bounds)})


def _issuer(oauth: OAuthSettings, groups: Mapping[str, Bounds]) -> TrustedIssuer | None:
    if oauth.issuer is None and oauth.resource is None:
        return None
    if oauth.issuer is None or oauth.resource is None:
        raise ConfigurationError(
            "Access tokens need both oauth.issuer, the authorisation server, and oauth.resource, the address of /mcp"
        )
    return TrustedIssuer(oauth.issuer, oauth.resource, oauth.jwks_url, groups, oauth.bound_only)


BODY_BYTES = 16 << 20
"""Largest body of a request: as many texts as the API takes in one call, each of the model's window."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbedServerOptions(ConfigOptions):
    host: str | None = option(None, "Address to listen on (server.host).", metavar="ADDRESS")
    port: int = option(8080, "Port; 0 selects a free one.", metavar="PORT", min=0, max=65535)
    workers: int | None = option(None, "Texts embedded at once (embedder.workers).", metavar="N")
    api_key: str | None = option(None, "Key that clients must send (server.api_key).", metavar="KEY")
    log_level: str | None = option(None, "debug, info, warning or error (log.level).", metavar="LEVEL")


@with_options
def embed_server(options: EmbedServerOptions) -> ExitCode:
    """Serve the bundled embedding model by itself, with OpenAI's API, until SIGTERM or Ctrl-C.

    Several servers can share one such model, and so can any OpenAI client. No index is opened. Set the key in
    the environment (RAG_CONTEXT_API_KEY): other users of the machine can see what is on the command line.
    """
    flags = {
        "server.host": options.host,
        "server.api_key": options.api_key,
        "embedder.workers": options.workers,
        "log.level": options.log_level,
    }
    settings = options.load(flags).settings
    configure_logging(settings.log.level, settings.log.format)
    http = replace(server_options(settings), port=options.port, body_bytes=BODY_BYTES)
    with closing(bind(http)) as listener:
        http = replace(http, port=listener.getsockname()[1])
        bundled = settings.model_copy(update={"embedder": EmbedderSettings(workers=settings.embedder.workers)})
        run_loop(_serve_embeddings(bundled, http, listener))
    return ExitCode.OK


async def _serve_embeddings(settings: Settings, options: ServerOptions, listener: socket.socket) -> None:
    from rag_context.server.embedding_routes import EmbeddingApp  # noqa: PLC0415
    from rag_context.server.running import serve as serve_app  # noqa: PLC0415
    from rag_context.wiring.model_adapters import open_embedder  # noqa: PLC0415

    url = server_url(options.host, options.port)
    async with open_embedder(settings) as embedder:
        Console().note((f"rag-context {__version__}", "bold"), f" embeds at {url}/v1/embeddings. Ctrl-C stops it.")
        await serve_app(EmbeddingApp(embedder, options), [listener], options)

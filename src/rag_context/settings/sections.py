"""Every setting: its type, default, limits and the one line that the documentation prints. All frozen.

Lists are tuples, so that a loaded configuration cannot change under the parts that read it.
"""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, ByteSize, ConfigDict, Field, StringConstraints, field_validator
from pydantic_core import PydanticCustomError

from rag_context.domain.ranking_rules import Rule
from rag_context.settings import values
from rag_context.settings.config_file import user_folder
from rag_context.settings.values import setting

MIB = 1 << 20


def default_data_dir() -> Path:
    return Path(user_folder("XDG_DATA_HOME", "~/.local/share"))


def _lower(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


def _level(value: object) -> object:
    level = _lower(value)
    return "warning" if level == "warn" else level


class ScopeParts(values.Section):
    """Parts of the memory."""

    projects: values.Names = setting((), "Names of projects, with all their branches.")
    collections: values.Names = setting((), "Names of collections, or connection:name.")
    agents: values.Names = setting((), "Of the agents' memory what was stored with a key of one of these agents.")
    tags: values.Names = setting((), "Of the agents' memory what has one of these tags.")


class KeyScope(ScopeParts):
    """What a key is bound to: nothing else exists for it. Empty lists open nothing."""

    groups: values.Names = setting((), "Names in server.groups, whose parts are the key's too.")


class KeyGroup(ScopeParts):
    """Parts of the memory that several keys are bound to, under one name."""

    name: values.Name = Field(description="The name by which scopes, and tokens (group:NAME), mention the group.")


class ApiKey(values.Section):
    """A named key, of which only the hash is kept."""

    name: values.Name = Field(description="Name of the key's owner; shown in logs.")
    hash: values.KeyHash = Field(description='"sha256:" and the hex digest of the key.', repr=False)
    access: Literal["read", "add", "write", "admin"] = setting(
        "write",
        "Access level of the key: add may store documents, but not correct, replace, forget or delete what is there; "
        "admin may open providers by a configuration of its own.",
    )
    scope: KeyScope | None = setting(None, "What the key is bound to; default: nothing.")


class OAuthSettings(values.Section):
    """Access tokens of an authorisation server, which count beside API keys."""

    issuer: values.HttpUrl | None = setting(None, "The authorisation server whose tokens count.")
    resource: values.HttpUrl | None = setting(None, "The audience of tokens: the address of /mcp as clients know it.")
    jwks_url: values.HttpUrl | None = setting(
        None, "Address of the issuer's public keys; default: where its metadata say."
    )
    bound_only: values.Switch = setting(
        False, "A token without a scope that binds it to parts of the memory sees nothing."
    )


class ServerSettings(values.Section):
    """The HTTP server."""

    host: values.Name = setting("127.0.0.1", "Address to bind; any but a loopback one needs an API key.")
    port: int = setting(3000, "TCP port; 0 selects a free one.", ge=0, le=65535)
    workers: int = setting(
        1,
        "Processes that answer behind the one port; each has its own copy of the index and of the model.",
        ge=1,
        le=64,
    )
    allowed_hosts: values.Names = setting(
        (), "Additional host names that clients may use in the Host and Origin headers."
    )
    cors_origins: values.Origins = setting(
        (), "Origins of web pages elsewhere that may call the API (CORS), https://app.example.com."
    )
    test_addresses: values.Names = setting(
        (),
        "Addresses (host or host:port, * for any) on which clients may test providers, "
        "beside those of the connections.",
    )
    api_key: values.Secret | None = setting(
        None, "One key with full access; the command line sends it to a running server too."
    )
    api_keys: tuple[ApiKey, ...] = setting(
        (), "Named keys: name, hash and access (read, add, write or admin); `rag-context key` creates one."
    )
    groups: tuple[KeyGroup, ...] = setting((), "Parts of the memory that scopes of several keys share, by name.")
    max_body_bytes: values.Bytes = setting(ByteSize(MIB), "Largest request body.", gt=0)
    max_index_body_bytes: values.Bytes = setting(
        ByteSize(2 * MIB), "Largest body of a request that indexes a document.", gt=0
    )
    max_collection_body_bytes: values.Bytes = setting(
        ByteSize(64 * MIB), "Largest body of a request that stores documents in a collection.", gt=0
    )

    requests_per_s: float = setting(
        1000, "Requests per second of one key, or of one address without keys, after twice as many; 0: no limit.", ge=0
    )

    @field_validator("api_keys", "groups")
    @classmethod
    def _distinct_names(cls, named: tuple[ApiKey | KeyGroup, ...]) -> tuple[ApiKey | KeyGroup, ...]:
        if len({each.name for each in named}) < len(named):
            raise PydanticCustomError("distinct_names", "has two entries of one name")
        return named


class LogSettings(values.Section):
    """What is logged, and how."""

    level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_level)] = setting(
        "info", "Lowest severity to log; warn is accepted too."
    )
    format: Annotated[Literal["auto", "console", "json"], BeforeValidator(_lower)] = setting(
        "auto", "Log format; auto is console on a terminal, else json."
    )
    audit_days: int = setting(365, "Days for which a server keeps who changed something or was rejected.", ge=1)


class StoreSettings(values.Section):
    """Which backend holds what."""

    vectors: Literal["embedded", "postgres", "qdrant", "chroma"] = setting(
        "embedded", "Store of the vectors; postgres if the documents are there too."
    )
    documents: Literal["embedded", "postgres", "mongodb"] = setting(
        "embedded", "Store of the documents; postgres if the vectors are there too."
    )
    cache: Literal["memory", "redis"] = setting("memory", "Cache of results.")
    erase_after_s: float = setting(
        30.0, "Seconds within which deleted content is erased from the files of an embedded store.", gt=0.0, le=60.0
    )
    postgres_url: values.PostgresUrl | None = setting(
        values.once("documents", "postgres", "postgresql://localhost:5432/rag_context"),
        "PostgreSQL's address; postgresql://localhost:5432/rag_context once PostgreSQL is chosen.",
        repr=False,
    )
    postgres_pool_size: int = setting(10, "Connections to PostgreSQL at most.", ge=2, le=1000)
    postgres_statement_cache_size: int = setting(
        64, "Prepared statements of each connection to PostgreSQL; 0 behind PgBouncer.", ge=0
    )
    qdrant_url: values.HttpUrl | None = setting(
        values.once("vectors", "qdrant", "http://localhost:6333"),
        "Qdrant's address, or those of a cluster's nodes (http://one:6333,two:6333); http://localhost:6333 by default.",
        repr=False,
    )
    qdrant_api_key: values.Secret | None = setting(None, "Key for Qdrant.")
    qdrant_collection: values.Name = setting("p4nth30n_context", "Qdrant's collection; created when missing.")
    qdrant_transport: Literal["http", "grpc"] = setting("http", "Protocol to Qdrant; grpc uses qdrant_grpc_port.")
    qdrant_grpc_port: int = setting(6334, "Qdrant's port for gRPC.", ge=1, le=65535)
    qdrant_quantization: Literal["none", "scalar", "binary"] = setting(
        "none", "Quantization of a new Qdrant collection's vectors in memory."
    )
    qdrant_shards: int | None = setting(None, "Shards of the new collection of vectors; default: the server's.", ge=1)
    qdrant_replicas: int | None = setting(
        None, "Replicas of each shard of a new Qdrant collection, of any kind; default: the server's.", ge=1
    )
    qdrant_read_consistency: values.Consistency = setting(
        "one", "How many replicas of a shard a read queries; one is the fastest, and may be stale."
    )
    chroma_url: values.HttpUrl | None = setting(
        values.once("vectors", "chroma", "http://localhost:8000"),
        "Chroma's address; http://localhost:8000 once Chroma is chosen and no folder is named.",
        repr=False,
    )
    chroma_dir: values.UserPath | None = setting(None, "Folder of a Chroma inside this process, instead of a server.")
    chroma_collection: values.Name = setting("rag-context", "Chroma's collection; created when missing.")
    mongodb_uri: values.MongoUri | None = setting(
        values.once("documents", "mongodb", "mongodb://localhost:27017/P4NTH30N"),
        "MongoDB's address; mongodb://localhost:27017/P4NTH30N once MongoDB is chosen.",
        repr=False,
    )
    mongodb_documents: values.Name = setting("C0N7EXT", "MongoDB's collection of documents.")
    mongodb_metrics: values.Name = setting("R4G_M37R1C5", "MongoDB's collection of search records.")
    redis_url: values.RedisUrl | None = setting(
        values.once("cache", "redis", "redis://localhost:6379/0"),
        "Redis's address; redis://localhost:6379/0 once Redis is chosen.",
        repr=False,
    )
    redis_secret: values.Secret | None = setting(
        None, "Authenticates values in Redis, so that forged ones are ignored; the same on every server."
    )
    redis_prefix: values.Name = setting("rag-context", "Prefix of all keys in Redis.")


class EmbedderSettings(values.Section):
    """What turns text into vectors."""

    kind: Literal["onnx", "openai_compatible"] = setting(
        "onnx", "The bundled model, or a server with an OpenAI-compatible API."
    )
    model: values.Name | None = setting(
        values.once("kind", "openai_compatible", "nomic-embed-text-v1.5"),
        "Name of the server's model; default: nomic-embed-text-v1.5. The bundled model has one name only.",
    )
    model_dir: values.UserPath | None = setting(None, "Folder of an ONNX model that replaces the bundled one.")
    url: values.HttpUrl | None = setting(
        values.once("kind", "openai_compatible", "http://localhost:1234"),
        "The embedding server's address; http://localhost:1234 once one is chosen.",
        repr=False,
    )
    api_key: values.Secret | None = setting(None, "Key for the embedding server.")
    timeout_s: float = setting(30.0, "Timeout of one request to the embedding server.", gt=0)
    workers: int = setting(0, "Texts embedded at once; 0 is the number of cores.", ge=0, le=256)


class SearchSettings(values.Section):
    """How searches are answered."""

    deadline_ms: int = setting(450, "Deadline of a search from the moment it is admitted.", ge=10)
    min_score: float | None = setting(
        None, "Minimum score of a returned passage; default: the model's threshold.", ge=0, le=1
    )
    without: Annotated[tuple[Rule, ...], values.Expected(f"a list with names out of: {', '.join(Rule)}")] = setting(
        (), "Rules of ranking that are left out, to measure what they do."
    )
    cache_size: int = setting(1000, "Results cached in memory; 0 caches none.", ge=0)
    cache_ttl_s: float = setting(300.0, "How long a result is cached; in Redis a minute at most.", ge=0)


class AdmissionSettings(values.Section):
    """How much is worked on at once; the rest waits its turn, and deadlines begin when it comes."""

    searches: int = setting(0, "Searches at once; 0 adapts the number so that they meet their deadline.", ge=0, le=1024)
    writes: int = setting(
        0, "Writes and embedding requests at once; 0 is one more than the number of cores.", ge=0, le=1024
    )
    max_wait_ms: int = setting(2000, "Longest wait in the queue; then the call is rejected with 503 OVERLOADED.", ge=1)
    max_waiting: int = setting(
        128, "Length of the queue of searches, and of writes; further calls are rejected at once.", ge=0
    )


class ConnectionSettings(values.Section):
    """Where collections live: a kind of provider, and beside these two the settings of that kind."""

    model_config = ConfigDict(extra="allow")

    provider: values.Name = Field(
        description="Kind of provider: embedded, postgres, qdrant, chroma, or the name of a plug-in."
    )
    embedder: EmbedderSettings | None = setting(
        None, "Embedder of its collections' texts, with the keys of [embedder]; default: this server's."
    )

    @property
    def configuration(self) -> dict[str, object]:
        return dict(self.__pydantic_extra__ or {})


class RerankerSettings(values.Section):
    """What puts the best passages of a search in order, if anything: a cross-encoder here, or a server."""

    model_dir: values.UserPath | None = setting(
        None, "Folder of a cross-encoder: model.onnx and tokenizer.json; without it none is run."
    )
    url: values.HttpUrl | None = setting(
        None, "Address of a server with a /rerank endpoint, instead of a folder.", repr=False
    )
    api: Literal["cohere", "tei"] = setting(
        "cohere", "Form of requests: cohere (also Jina, vLLM, llama.cpp, Infinity) or tei (Hugging Face)."
    )
    model: values.Name | None = setting(None, "Name of the server's model; tei needs none.")
    api_key: values.Secret | None = setting(None, "Key for the server.")
    passages: int = setting(20, "How many of the best passages are reranked.", ge=2, le=100)


class ChatSettings(values.Section):
    """What writes answers from the context that project documents give; without it, contexts are all there is."""

    url: values.HttpUrl | None = setting(
        None, "Address of a server with an OpenAI-compatible chat API; without it no answers are generated.", repr=False
    )
    model: values.Name | None = setting(None, "Name of its model; required with chat.url.")
    api_key: values.Secret | None = setting(None, "Key for the chat server.")
    timeout_s: float = setting(60.0, "Timeout of one answer.", gt=0)


class BreakerSettings(values.Section):
    """When searches stop trying for a while."""

    threshold: int = setting(5, "Total failures in a row that open the circuit breaker.", ge=1)
    timeout_ms: int = setting(60_000, "How long it stays open before one search probes.", ge=1)


class IndexingSettings(values.Section):
    """How documents come in."""

    timeout_s: float = setting(5.0, "Timeout of embedding a document; after it the document is pending.", gt=0)
    redaction: Literal["redact", "reject", "off"] = setting(
        "redact", "Secrets in what is stored: masked, the request rejected, or kept."
    )
    max_file_bytes: values.Bytes = setting(ByteSize(MIB), "Maximum size of a file.", gt=0)
    concurrency: int = setting(5, "Batches of up to 32 documents that a bulk run indexes at once.", ge=1, le=64)
    include: values.Names = setting((), "Patterns of files to index although they look generated.")
    roots: values.Names = setting((), "Folders that agents may index files of, beside their client's workspace.")


class HistorySettings(values.Section):
    """Conversations that agents' clients keep on this machine."""

    follow: values.Switch = setting(False, "Whether a server takes in sessions as they go on.")
    exclude: values.Names = setting((), "Patterns of folders whose sessions are left out, such as */private/*.")
    headless: values.Switch = setting(
        False, "Whether sessions that a program led are taken, such as those of claude -p."
    )
    subagents: values.Switch = setting(False, "Whether sessions of sub-agents are taken.")


class ProjectSettings(values.Section):
    """Projects whose documents are files."""

    follow: values.Switch = setting(True, "Whether a restarted server follows its earlier projects again.")
    forget_after_days: float = setting(
        14.0,
        "Days after which a project whose files or branch no longer exist is removed from the index.",
        ge=0,
        le=36500,
    )


class TelemetrySettings(values.Section):
    """What is remembered of searches."""

    retention_days: int = setting(31, "Days for which records of searches are kept.", ge=1)
    queries: values.Switch = setting(True, "Whether records of searches hold the queries, their secrets masked.")
    traces: values.Switch = setting(
        False, "Whether traces are sent to an OpenTelemetry collector, as OTEL_* variables say (extra otel)."
    )
    trace_content: Annotated[bool, values.Expected("true or false")] = setting(
        False, "Whether traces hold queries, and the ids and scores of what was found."
    )


class RetentionSettings(values.Section):
    """How long documents are kept."""

    trash_days: float = setting(30.0, "Days for which what was forgotten can be restored.", ge=0, le=36500)
    keep: Annotated[
        tuple[Annotated[str, StringConstraints(pattern=r"^[^=]+=[0-9]{1,5}$")], ...],
        values.Expected("a list of texts such as chat=365"),
    ] = setting((), "Days for which documents of a content type are kept, such as chat=365.")

    @property
    def kinds(self) -> dict[str, int]:
        return {kind: int(days) for kind, _, days in (each.partition("=") for each in self.keep)}


class HookSettings(values.Section):
    """What the hooks of clients show to agents unasked."""

    enabled: values.Switch = setting(True, "Whether hooks say anything and conversations are taken in.")
    silent_projects: values.Names = setting(
        (), "Folders of projects, or their tags, in which hooks say and take in nothing."
    )
    prompt_tokens: int = setting(300, "Most tokens shown at a prompt or an action.", ge=0, le=2000)
    start_tokens: int = setting(600, "Most tokens shown at the start of a session.", ge=0, le=2000)
    session_tokens: int = setting(3000, "Most tokens shown in a session in all.", ge=0, le=100_000)
    bound_ms: int = setting(250, "Time budget of a hook; hooks read it from the environment only.", ge=10, le=5000)


class VocabularySettings(values.Section):
    """Values that requests may use in addition to the built-in ones."""

    content_types: values.Names = setting((), "Additional content types, chunked like documentation.")
    categories: values.Names = setting((), "Additional categories for filters.")


class ClientSettings(values.Section):
    """How programs and commands of this machine find a server."""

    url: values.HttpUrl | None = setting(
        None, "Address of the server for Python clients; default: the server of the data directory.", repr=False
    )


ConnectionId = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]
ConnectionTables = Annotated[
    dict[ConnectionId, ConnectionSettings], values.Expected("tables with provider, and what that provider asks for")
]


class Settings(values.Section):
    """The whole configuration."""

    data_dir: values.UserPath = setting(
        default_data_dir, "Folder of the index; default: the platform's user data folder."
    )
    server: ServerSettings = Field(default_factory=ServerSettings.model_construct)
    oauth: OAuthSettings = Field(default_factory=OAuthSettings.model_construct)
    log: LogSettings = Field(default_factory=LogSettings.model_construct)
    stores: StoreSettings = Field(default_factory=StoreSettings.model_construct)
    embedder: EmbedderSettings = Field(default_factory=EmbedderSettings.model_construct)
    search: SearchSettings = Field(default_factory=SearchSettings.model_construct)
    admission: AdmissionSettings = Field(default_factory=AdmissionSettings.model_construct)
    reranker: RerankerSettings = Field(default_factory=RerankerSettings.model_construct)
    chat: ChatSettings = Field(default_factory=ChatSettings.model_construct)
    breaker: BreakerSettings = Field(default_factory=BreakerSettings.model_construct)
    indexing: IndexingSettings = Field(default_factory=IndexingSettings.model_construct)
    history: HistorySettings = Field(default_factory=HistorySettings.model_construct)
    projects: ProjectSettings = Field(default_factory=ProjectSettings.model_construct)
    telemetry: TelemetrySettings = Field(default_factory=TelemetrySettings.model_construct)
    retention: RetentionSettings = Field(default_factory=RetentionSettings.model_construct)
    hooks: HookSettings = Field(default_factory=HookSettings.model_construct)
    vocabulary: VocabularySettings = Field(default_factory=VocabularySettings.model_construct)
    connections: ConnectionTables = setting(
        {}, "Connections for collections: a table [connections.<id>] each.", repr=False
    )
    client: ClientSettings = Field(default_factory=ClientSettings.model_construct)

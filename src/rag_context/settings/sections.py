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

MIB = 1 << 20


def default_data_dir() -> Path:
    """The platform's place for this program's data of this user."""
    return user_folder("XDG_DATA_HOME", "~/.local/share")


def _lower(value: object) -> object:
    return value.strip().lower() if isinstance(value, str) else value


def _level(value: object) -> object:
    level = _lower(value)
    return "warning" if level == "warn" else level


class KeyScope(values.Section):
    """What a key is bound to: nothing else exists for it. Empty lists open nothing."""

    projects: values.Names = Field(default=(), description="Names of projects, with all their branches.")
    collections: values.Names = Field(default=(), description="Names of collections, or connection:name.")
    agents: values.Names = Field(
        default=(), description="Of the agents' memory what was stored with a key of one of these agents."
    )
    tags: values.Names = Field(default=(), description="Of the agents' memory what has one of these tags.")


class ApiKey(values.Section):
    """A named key, of which only the hash is kept."""

    name: values.Name = Field(description="Name of the key's owner; shown in logs.")
    hash: values.KeyHash = Field(description='"sha256:" and the hex digest of the key.', repr=False)
    access: Literal["read", "write", "admin"] = Field(
        default="write", description="Access level of the key: admin may open providers by a configuration of its own."
    )
    scope: KeyScope | None = Field(default=None, description="What the key is bound to; default: nothing.")


class OAuthSettings(values.Section):
    """Access tokens of an authorisation server, which count beside API keys."""

    issuer: values.HttpUrl | None = Field(default=None, description="The authorisation server whose tokens count.")
    resource: values.HttpUrl | None = Field(
        default=None, description="The audience of tokens: the address of /mcp as clients know it."
    )
    jwks_url: values.HttpUrl | None = Field(
        default=None, description="Address of the issuer's public keys; default: where its metadata say."
    )


class ServerSettings(values.Section):
    """The HTTP server."""

    host: values.Name = Field(
        default="127.0.0.1", description="Address to bind; any but a loopback one needs an API key."
    )
    port: int = Field(default=3000, ge=0, le=65535, description="TCP port; 0 selects a free one.")
    workers: int = Field(
        default=1,
        ge=1,
        le=64,
        description="Processes that answer behind the one port; each has its own copy of the index and of the model.",
    )
    allowed_hosts: values.Names = Field(
        default=(), description="Additional host names that clients may use in the Host and Origin headers."
    )
    cors_origins: values.Origins = Field(
        default=(), description="Origins of web pages elsewhere that may call the API (CORS), https://app.example.com."
    )
    test_addresses: values.Names = Field(
        default=(),
        description="Addresses (host or host:port, * for any) on which clients may test providers, "
        "beside those of the connections.",
    )
    api_key: values.Secret | None = Field(
        default=None, description="One key with full access; the command line sends it to a running server too."
    )
    api_keys: tuple[ApiKey, ...] = Field(
        default=(), description="Named keys: name, hash and access (read or write); `rag-context key` creates one."
    )
    max_body_bytes: values.Bytes = Field(default=ByteSize(MIB), gt=0, description="Largest request body.")
    max_index_body_bytes: values.Bytes = Field(
        default=ByteSize(2 * MIB), gt=0, description="Largest body of a request that indexes a document."
    )
    max_collection_body_bytes: values.Bytes = Field(
        default=ByteSize(64 * MIB), gt=0, description="Largest body of a request that stores documents in a collection."
    )

    requests_per_s: float | None = Field(
        default=None,
        gt=0,
        description="Requests per second of one key, or of one address without keys; default: no limit.",
    )

    @field_validator("api_keys")
    @classmethod
    def _distinct_names(cls, keys: tuple[ApiKey, ...]) -> tuple[ApiKey, ...]:
        if len({key.name for key in keys}) < len(keys):
            raise PydanticCustomError("distinct_names", "has two keys of one name")
        return keys


class LogSettings(values.Section):
    """What is logged, and how."""

    level: Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(_level)] = Field(
        default="info", description="Lowest severity to log; warn is accepted too."
    )
    format: Annotated[Literal["auto", "console", "json"], BeforeValidator(_lower)] = Field(
        default="auto", description="Log format; auto is console on a terminal, else json."
    )
    audit_days: int = Field(
        default=365, ge=1, description="Days for which a server keeps who changed something or was rejected."
    )


class StoreSettings(values.Section):
    """Which backend holds what."""

    vectors: Literal["embedded", "postgres", "qdrant", "chroma"] = Field(
        default="embedded", description="Store of the vectors; postgres if the documents are there too."
    )
    documents: Literal["embedded", "postgres", "mongodb"] = Field(
        default="embedded", description="Store of the documents; postgres if the vectors are there too."
    )
    cache: Literal["memory", "redis"] = Field(default="memory", description="Cache of results.")
    erase_after_s: float = Field(
        default=30.0,
        gt=0.0,
        le=60.0,
        description="Seconds within which deleted content is erased from the files of an embedded store.",
    )
    postgres_url: values.PostgresUrl | None = Field(
        default_factory=values.once("documents", "postgres", "postgresql://localhost:5432/rag_context"),
        description="PostgreSQL's address; postgresql://localhost:5432/rag_context once PostgreSQL is chosen.",
        repr=False,
    )
    postgres_pool_size: int = Field(default=10, ge=2, le=1000, description="Connections to PostgreSQL at most.")
    postgres_statement_cache_size: int = Field(
        default=64, ge=0, description="Prepared statements of each connection to PostgreSQL; 0 behind PgBouncer."
    )
    qdrant_url: values.HttpUrl | None = Field(
        default_factory=values.once("vectors", "qdrant", "http://localhost:6333"),
        description="Qdrant's address; http://localhost:6333 once Qdrant is chosen.",
        repr=False,
    )
    qdrant_api_key: values.Secret | None = Field(default=None, description="Key for Qdrant.")
    qdrant_collection: values.Name = Field(
        default="p4nth30n_context", description="Qdrant's collection; created when missing."
    )
    qdrant_transport: Literal["http", "grpc"] = Field(
        default="http", description="Protocol to Qdrant; grpc uses qdrant_grpc_port."
    )
    qdrant_grpc_port: int = Field(default=6334, ge=1, le=65535, description="Qdrant's port for gRPC.")
    qdrant_quantization: Literal["none", "scalar", "binary"] = Field(
        default="none", description="Quantization of a new Qdrant collection's vectors in memory."
    )
    qdrant_shards: int | None = Field(
        default=None, ge=1, description="Shards of a new Qdrant collection; default: the server's."
    )
    qdrant_replicas: int | None = Field(
        default=None, ge=1, description="Replicas of each shard of a new Qdrant collection; default: the server's."
    )
    qdrant_read_consistency: Literal["one", "majority", "quorum", "all"] = Field(
        default="one", description="How many replicas of a shard a read queries; one is the fastest, and may be stale."
    )
    chroma_url: values.HttpUrl | None = Field(
        default_factory=values.once("vectors", "chroma", "http://localhost:8000"),
        description="Chroma's address; http://localhost:8000 once Chroma is chosen and no folder is named.",
        repr=False,
    )
    chroma_dir: values.UserPath | None = Field(
        default=None, description="Folder of a Chroma inside this process, instead of a server."
    )
    chroma_collection: values.Name = Field(
        default="rag-context", description="Chroma's collection; created when missing."
    )
    mongodb_uri: values.MongoUri | None = Field(
        default_factory=values.once("documents", "mongodb", "mongodb://localhost:27017/P4NTH30N"),
        description="MongoDB's address; mongodb://localhost:27017/P4NTH30N once MongoDB is chosen.",
        repr=False,
    )
    mongodb_documents: values.Name = Field(default="C0N7EXT", description="MongoDB's collection of documents.")
    mongodb_metrics: values.Name = Field(default="R4G_M37R1C5", description="MongoDB's collection of search records.")
    redis_url: values.RedisUrl | None = Field(
        default_factory=values.once("cache", "redis", "redis://localhost:6379/0"),
        description="Redis's address; redis://localhost:6379/0 once Redis is chosen.",
        repr=False,
    )
    redis_secret: values.Secret | None = Field(
        default=None,
        description="Authenticates values in Redis, so that forged ones are ignored; the same on every server.",
    )
    redis_prefix: values.Name = Field(default="rag-context", description="Prefix of all keys in Redis.")


class EmbedderSettings(values.Section):
    """What turns text into vectors."""

    kind: Literal["onnx", "openai_compatible"] = Field(
        default="onnx", description="The bundled model, or a server with an OpenAI-compatible API."
    )
    model: values.Name | None = Field(
        default_factory=values.once("kind", "openai_compatible", "nomic-embed-text-v1.5"),
        description="Name of the server's model; default: nomic-embed-text-v1.5. The bundled model has one name only.",
    )
    model_dir: values.UserPath | None = Field(
        default=None, description="Folder of an ONNX model that replaces the bundled one."
    )
    url: values.HttpUrl | None = Field(
        default_factory=values.once("kind", "openai_compatible", "http://localhost:1234"),
        description="The embedding server's address; http://localhost:1234 once one is chosen.",
        repr=False,
    )
    api_key: values.Secret | None = Field(default=None, description="Key for the embedding server.")
    timeout_s: float = Field(default=30.0, gt=0, description="Timeout of one request to the embedding server.")
    workers: int = Field(default=0, ge=0, le=256, description="Texts embedded at once; 0 is the number of cores.")


class SearchSettings(values.Section):
    """How searches are answered."""

    deadline_ms: int = Field(default=450, ge=10, description="Deadline of a search from the moment it is admitted.")
    min_score: float | None = Field(
        default=None, ge=0, le=1, description="Minimum score of a returned passage; default: the model's threshold."
    )
    without: Annotated[tuple[Rule, ...], values.Expected(f"a list with names out of: {', '.join(Rule)}")] = Field(
        default=(), description="Rules of ranking that are left out, to measure what they do."
    )
    cache_size: int = Field(default=1000, ge=0, description="Results cached in memory; 0 caches none.")
    cache_ttl_s: float = Field(
        default=300.0, ge=0, description="How long a result is cached; in Redis a minute at most."
    )


class AdmissionSettings(values.Section):
    """How much is worked on at once; the rest waits its turn, and deadlines begin when it comes."""

    searches: int = Field(
        default=0, ge=0, le=1024, description="Searches at once; 0 adapts the number so that they meet their deadline."
    )
    writes: int = Field(
        default=0,
        ge=0,
        le=1024,
        description="Writes and embedding requests at once; 0 is one more than the number of cores.",
    )
    max_wait_ms: int = Field(
        default=2000, ge=1, description="Longest wait in the queue; then the call is rejected with 503 OVERLOADED."
    )
    max_waiting: int = Field(
        default=128,
        ge=0,
        description="Length of the queue of searches, and of writes; further calls are rejected at once.",
    )


class ConnectionSettings(values.Section):
    """Where collections live: a kind of provider, and beside these two the settings of that kind."""

    model_config = ConfigDict(extra="allow")

    provider: values.Name = Field(
        description="Kind of provider: embedded, postgres, qdrant, chroma, or the name of a plug-in."
    )
    embedder: EmbedderSettings | None = Field(
        default=None,
        description="Embedder of its collections' texts, with the keys of [embedder]; default: this server's.",
    )

    @property
    def configuration(self) -> dict[str, object]:
        """The options of the provider."""
        return dict(self.__pydantic_extra__ or {})


class RerankerSettings(values.Section):
    """What puts the best passages of a search in order, if anything: a cross-encoder here, or a server."""

    model_dir: values.UserPath | None = Field(
        default=None, description="Folder of a cross-encoder: model.onnx and tokenizer.json; without it none is run."
    )
    url: values.HttpUrl | None = Field(
        default=None, description="Address of a server with a /rerank endpoint, instead of a folder.", repr=False
    )
    api: Literal["cohere", "tei"] = Field(
        default="cohere",
        description="Form of requests: cohere (also Jina, vLLM, llama.cpp, Infinity) or tei (Hugging Face).",
    )
    model: values.Name | None = Field(default=None, description="Name of the server's model; tei needs none.")
    api_key: values.Secret | None = Field(default=None, description="Key for the server.")
    passages: int = Field(default=20, ge=2, le=100, description="How many of the best passages are reranked.")


class ChatSettings(values.Section):
    """What writes answers from the context that project documents give; without it, contexts are all there is."""

    url: values.HttpUrl | None = Field(
        default=None,
        description="Address of a server with an OpenAI-compatible chat API; without it no answers are generated.",
        repr=False,
    )
    model: values.Name | None = Field(default=None, description="Name of its model; required with chat.url.")
    api_key: values.Secret | None = Field(default=None, description="Key for the chat server.")
    timeout_s: float = Field(default=60.0, gt=0, description="Timeout of one answer.")


class BreakerSettings(values.Section):
    """When searches stop trying for a while."""

    threshold: int = Field(default=5, ge=1, description="Total failures in a row that open the circuit breaker.")
    timeout_ms: int = Field(default=60_000, ge=1, description="How long it stays open before one search probes.")


class IndexingSettings(values.Section):
    """How documents come in."""

    timeout_s: float = Field(
        default=5.0, gt=0, description="Timeout of embedding a document; after it the document is pending."
    )
    redaction: Literal["redact", "reject", "off"] = Field(
        default="redact", description="Secrets in what is stored: masked, the request rejected, or kept."
    )
    max_file_bytes: values.Bytes = Field(default=ByteSize(MIB), gt=0, description="Maximum size of a file.")
    concurrency: int = Field(
        default=5, ge=1, le=64, description="Batches of up to 32 documents that a bulk run indexes at once."
    )
    include: values.Names = Field(default=(), description="Patterns of files to index although they look generated.")
    roots: values.Names = Field(
        default=(), description="Folders that agents may index files of, beside their client's workspace."
    )


class HistorySettings(values.Section):
    """Conversations that agents' clients keep on this machine."""

    follow: values.Switch = Field(default=False, description="Whether a server takes in sessions as they go on.")
    exclude: values.Names = Field(
        default=(), description="Patterns of folders whose sessions are left out, such as */private/*."
    )
    headless: values.Switch = Field(
        default=False, description="Whether sessions that a program led are taken, such as those of claude -p."
    )
    subagents: values.Switch = Field(default=False, description="Whether sessions of sub-agents are taken.")


class ProjectSettings(values.Section):
    """Projects whose documents are files."""

    follow: values.Switch = Field(
        default=True, description="Whether a restarted server follows its earlier projects again."
    )
    forget_after_days: float = Field(
        default=14.0,
        ge=0,
        le=36500,
        description="Days after which a project whose files or branch no longer exist is removed from the index.",
    )


class TelemetrySettings(values.Section):
    """What is remembered of searches."""

    retention_days: int = Field(default=31, ge=1, description="Days for which records of searches are kept.")
    queries: values.Switch = Field(
        default=True, description="Whether records of searches hold the queries, their secrets masked."
    )
    traces: values.Switch = Field(
        default=False,
        description="Whether traces are sent to an OpenTelemetry collector, as OTEL_* variables say (extra otel).",
    )
    trace_content: Annotated[bool, values.Expected("true or false")] = Field(
        default=False, description="Whether traces hold queries, and the ids and scores of what was found."
    )


class RetentionSettings(values.Section):
    """How long documents are kept."""

    trash_days: float = Field(
        default=30.0, ge=0, le=36500, description="Days for which what was forgotten can be restored."
    )
    keep: Annotated[
        tuple[Annotated[str, StringConstraints(pattern=r"^[^=]+=[0-9]{1,5}$")], ...],
        values.Expected("a list of texts such as chat=365"),
    ] = Field(default=(), description="Days for which documents of a content type are kept, such as chat=365.")

    @property
    def kinds(self) -> dict[str, int]:
        """The days by content type."""
        return {kind: int(days) for kind, _, days in (each.partition("=") for each in self.keep)}


class HookSettings(values.Section):
    """What the hooks of clients show to agents unasked."""

    enabled: values.Switch = Field(
        default=True, description="Whether hooks say anything and conversations are taken in."
    )
    silent_projects: values.Names = Field(
        default=(), description="Folders of projects, or their tags, in which hooks say and take in nothing."
    )
    prompt_tokens: int = Field(default=300, ge=0, le=2000, description="Most tokens shown at a prompt or an action.")
    start_tokens: int = Field(default=600, ge=0, le=2000, description="Most tokens shown at the start of a session.")
    session_tokens: int = Field(default=3000, ge=0, le=100_000, description="Most tokens shown in a session in all.")
    bound_ms: int = Field(
        default=250, ge=10, le=5000, description="Time budget of a hook; hooks read it from the environment only."
    )


class VocabularySettings(values.Section):
    """Values that requests may use in addition to the built-in ones."""

    content_types: values.Names = Field(default=(), description="Additional content types, chunked like documentation.")
    categories: values.Names = Field(default=(), description="Additional categories for filters.")


class ClientSettings(values.Section):
    """How programs and commands of this machine find a server."""

    url: values.HttpUrl | None = Field(
        default=None,
        description="Address of the server for Python clients; default: the server of the data directory.",
        repr=False,
    )


ConnectionId = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]
ConnectionTables = Annotated[
    dict[ConnectionId, ConnectionSettings], values.Expected("tables with provider, and what that provider asks for")
]


class Settings(values.Section):
    """The whole configuration."""

    data_dir: values.UserPath = Field(
        default_factory=default_data_dir, description="Folder of the index; default: the platform's user data folder."
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
    connections: ConnectionTables = Field(
        default={}, description="Connections for collections: a table [connections.<id>] each.", repr=False
    )
    client: ClientSettings = Field(default_factory=ClientSettings.model_construct)

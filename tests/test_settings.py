"""Settings: where values come from, which names work, and what does not start (M-4, M-5, M-6, X-1)."""

import json
import re
import sys
from pathlib import Path

import pytest

from rag_context.errors import ConfigurationError
from rag_context.settings import KEYS, Loaded, Settings, check_available, is_loopback, load_settings, mask_url, shown
from rag_context.settings.installation import install_command
from rag_context.settings.keys import Key, variable
from rag_context.settings.sections import ApiKey

HASH = "sha256:" + "0" * 64


@pytest.fixture(autouse=True)
def _no_configuration_of_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home-config"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def load(
    cwd: Path,
    *,
    flags: dict[str, object] | None = None,
    environ: dict[str, str] | None = None,
    config_file: Path | None = None,
) -> Loaded:
    return load_settings(flags=flags or {}, environ=environ or {}, config_file=config_file, cwd=cwd)


def refusal(cwd: Path, *, toml: str = "", environ: dict[str, str] | None = None) -> str:
    if toml:
        (cwd / "rag-context.toml").write_text(toml)
    with pytest.raises(ConfigurationError) as caught:
        load(cwd, environ=environ)
    return str(caught.value)


class TestOrder:
    """M-4: flag, then environment, then file, then default."""

    def test_defaults_are_the_documented_ones(self, tmp_path: Path) -> None:
        settings = load(tmp_path).settings

        assert (settings.server.host, settings.server.port) == ("127.0.0.1", 3000)
        assert (settings.search.cache_size, settings.search.cache_ttl_s) == (1000, 300)
        assert (settings.breaker.threshold, settings.breaker.timeout_ms) == (5, 60_000)
        assert (settings.stores.vectors, settings.stores.documents, settings.stores.cache) == (
            "embedded",
            "embedded",
            "memory",
        )
        assert (settings.embedder.kind, settings.log.level, settings.search.deadline_ms) == ("onnx", "info", 450)
        assert settings.data_dir.name == "rag-context"

    def test_a_flag_beats_the_environment_which_beats_the_file(self, tmp_path: Path) -> None:
        (tmp_path / "rag-context.toml").write_text('[server]\nport = 1\nhost = "::1"\n[log]\nlevel = "error"\n')
        environ = {"MCP_SERVER_PORT": "2", "RAG_CONTEXT_SERVER__HOST": "127.0.0.2"}

        loaded = load(tmp_path, flags={"server.port": 3, "server.host": None}, environ=environ)

        assert (loaded.settings.server.port, loaded.settings.server.host) == (3, "127.0.0.2")
        assert loaded.settings.log.level == "error"
        assert loaded.sources["server.port"] == "flag --port"
        assert loaded.sources["server.host"] == "environment RAG_CONTEXT_SERVER__HOST"
        assert loaded.sources["log.level"] == "file rag-context.toml"
        assert loaded.sources["log.format"] == "default"

    def test_every_key_has_a_source(self, tmp_path: Path) -> None:
        assert list(load(tmp_path).sources) == list(KEYS)

    def test_the_named_file_replaces_the_one_in_the_folder(self, tmp_path: Path) -> None:
        (tmp_path / "rag-context.toml").write_text("[server]\nport = 1\n")
        (tmp_path / "other.toml").write_text("[server]\nport = 2\n")

        loaded = load(tmp_path, config_file=Path("other.toml"))

        assert loaded.settings.server.port == 2
        assert loaded.sources["server.port"] == "file other.toml"

    def test_the_users_own_file_is_the_last_resort(self, tmp_path: Path) -> None:
        own = tmp_path / "home-config" / "rag-context" / "rag-context.toml"
        own.parent.mkdir(parents=True)
        own.write_text("[server]\nport = 7\n")

        loaded = load(tmp_path / "elsewhere")

        assert loaded.settings.server.port == 7
        assert loaded.sources["server.port"] == f"file {own}"

    def test_an_empty_variable_says_nothing(self, tmp_path: Path) -> None:
        loaded = load(tmp_path, environ={"MCP_SERVER_PORT": "", "QDRANT_URL": " "})

        assert loaded.settings == load(tmp_path).settings

    def test_relative_paths_of_a_file_start_at_the_file(self, tmp_path: Path) -> None:
        (tmp_path / "etc").mkdir()
        (tmp_path / "etc" / "c.toml").write_text('data_dir = "index"\n')

        assert load(tmp_path, config_file=Path("etc/c.toml")).settings.data_dir == tmp_path / "etc" / "index"
        assert load(tmp_path, flags={"data_dir": Path("d")}).settings.data_dir == tmp_path / "d"

    @pytest.mark.parametrize("key", [key for key in KEYS.values() if key.is_path], ids=lambda key: key.name)
    def test_every_path_is_relative_to_where_it_is_stated(self, tmp_path: Path, key: Key) -> None:
        settings = load(tmp_path, environ={variable(key.name): "some/place"}).settings

        assert shown(settings)[key.name] == str(tmp_path / "some/place")


class TestNames:
    """M-4: the short names, and one long name for every key."""

    @pytest.mark.parametrize(
        ("variable", "value", "key", "expected"),
        [
            ("DATABASE_URL", "postgresql://h/db", "stores.postgres_url", "postgresql://h/db"),
            ("POSTGRES_URL", "postgres://h/db", "stores.postgres_url", "postgres://h/db"),
            ("MONGODB_URI", "mongodb://h/db", "stores.mongodb_uri", "mongodb://h/db"),
            ("QDRANT_URL", "http://q:6333", "stores.qdrant_url", "http://q:6333"),
            ("CHROMA_URL", "http://c:8000", "stores.chroma_url", "http://c:8000"),
            ("REDIS_URL", "redis://r:6379/1", "stores.redis_url", "redis://r:6379/1"),
            ("LM_STUDIO_URL", "http://l:1234", "embedder.url", "http://l:1234"),
            ("MCP_SERVER_PORT", "3100", "server.port", 3100),
            ("LOG_LEVEL", "WARN", "log.level", "warning"),
            ("RAG_CACHE_SIZE", "10", "search.cache_size", 10),
            ("RAG_CACHE_TTL", "1.5", "search.cache_ttl_s", 1.5),
            ("CIRCUIT_BREAKER_THRESHOLD", "2", "breaker.threshold", 2),
            ("CIRCUIT_BREAKER_TIMEOUT", "100", "breaker.timeout_ms", 100),
        ],
    )
    def test_a_short_name_sets_its_key(
        self, tmp_path: Path, variable: str, value: str, key: str, expected: object
    ) -> None:
        loaded = load(tmp_path, environ={variable: value})

        assert shown(loaded.settings)[key] == expected
        assert loaded.sources[key] == f"environment {variable}"

    def test_key_and_folder_have_short_names(self, tmp_path: Path) -> None:
        environ = {"RAG_CONTEXT_API_KEY": "k", "RAG_CONTEXT_DATA_DIR": "d"}

        settings = load(tmp_path, environ=environ).settings

        assert settings.server.api_key is not None
        assert settings.server.api_key.get_secret_value() == "k"
        assert settings.data_dir == tmp_path / "d"

    def test_the_long_name_wins_over_the_short_one(self, tmp_path: Path) -> None:
        loaded = load(tmp_path, environ={"MCP_SERVER_PORT": "1", "RAG_CONTEXT_SERVER__PORT": "2"})

        assert loaded.settings.server.port == 2
        assert loaded.sources["server.port"] == "environment RAG_CONTEXT_SERVER__PORT"

    def test_lists_are_names_between_commas_or_json(self, tmp_path: Path) -> None:
        keys = json.dumps([{"name": "ci", "hash": HASH, "access": "read"}])
        environ = {
            "RAG_CONTEXT_SERVER__ALLOWED_HOSTS": "a.example, b.example",
            "RAG_CONTEXT_VOCABULARY__CATEGORIES": '["x"]',
            "RAG_CONTEXT_INDEXING__INCLUDE": "dist/*,*.min.js",
            "RAG_CONTEXT_SERVER__API_KEYS": keys,
        }

        settings = load(tmp_path, environ=environ).settings

        assert settings.server.allowed_hosts == ("a.example", "b.example")
        assert settings.vocabulary.categories == ("x",)
        assert settings.indexing.include == ("dist/*", "*.min.js")
        assert settings.server.api_keys == (ApiKey(name="ci", hash=HASH, access="read"),)

    def test_sizes_may_have_a_unit(self, tmp_path: Path) -> None:
        environ = {"RAG_CONTEXT_SERVER__MAX_BODY_BYTES": "2MiB"}

        assert load(tmp_path, environ=environ).settings.server.max_body_bytes == 2 << 20


class TestBackends:
    """M-4, M-6: a URL in the environment selects its backend; defaults of URLs only then."""

    @pytest.mark.parametrize(
        ("variable", "value", "key", "backend"),
        [
            ("DATABASE_URL", "postgresql://p", "stores.documents", "postgres"),
            ("DATABASE_URL", "postgresql://p", "stores.vectors", "postgres"),
            ("POSTGRES_URL", "postgres://p", "stores.documents", "postgres"),
            ("QDRANT_URL", "http://q", "stores.vectors", "qdrant"),
            ("CHROMA_URL", "http://c", "stores.vectors", "chroma"),
            ("MONGODB_URI", "mongodb://m", "stores.documents", "mongodb"),
            ("REDIS_URL", "redis://r", "stores.cache", "redis"),
            ("LM_STUDIO_URL", "http://l", "embedder.kind", "openai_compatible"),
        ],
    )
    def test_a_url_in_the_environment_selects_its_backend(
        self, tmp_path: Path, variable: str, value: str, key: str, backend: str
    ) -> None:
        loaded = load(tmp_path, environ={variable: value})

        assert shown(loaded.settings)[key] == backend
        assert loaded.sources[key] == f"environment {variable}"

    def test_an_explicit_choice_overrides_the_url(self, tmp_path: Path) -> None:
        (tmp_path / "rag-context.toml").write_text('[stores]\nvectors = "embedded"\n')

        settings = load(tmp_path, environ={"QDRANT_URL": "http://q"}).settings

        assert (settings.stores.vectors, settings.stores.qdrant_url) == ("embedded", "http://q")

    def test_a_url_in_the_file_selects_nothing(self, tmp_path: Path) -> None:
        (tmp_path / "rag-context.toml").write_text('[stores]\nqdrant_url = "http://q"\n')

        assert load(tmp_path).settings.stores.vectors == "embedded"

    def test_two_urls_for_one_backend_need_an_explicit_choice(self, tmp_path: Path) -> None:
        environ = {"QDRANT_URL": "http://q", "CHROMA_URL": "http://c"}

        assert "QDRANT_URL and CHROMA_URL both select a backend" in refusal(tmp_path, environ=environ)
        both = {"DATABASE_URL": "postgresql://p", "MONGODB_URI": "mongodb://m"}
        assert "DATABASE_URL and MONGODB_URI both select a backend" in refusal(tmp_path, environ=both)
        chosen = load(tmp_path, environ={**environ, "RAG_CONTEXT_STORES__VECTORS": "chroma"})
        assert chosen.settings.stores.vectors == "chroma"

    def test_default_addresses_come_with_the_choice(self) -> None:
        assert Settings().stores.qdrant_url is None
        assert Settings().embedder.url is None
        chosen = Settings.model_validate(
            {"stores": {"vectors": "qdrant", "documents": "mongodb"}, "embedder": {"kind": "openai_compatible"}}
        )
        assert chosen.stores.qdrant_url == "http://localhost:6333"
        in_one = Settings.model_validate({"stores": {"vectors": "postgres", "documents": "postgres"}})
        assert in_one.stores.postgres_url == "postgresql://localhost:5432/rag_context"
        assert chosen.stores.mongodb_uri == "mongodb://localhost:27017/P4NTH30N"
        assert (chosen.embedder.url, chosen.embedder.model) == ("http://localhost:1234", "nomic-embed-text-v1.5")

    @pytest.mark.parametrize(
        ("variable", "value", "module", "key", "extra"),
        [
            ("QDRANT_URL", "http://q", "qdrant_client", "stores.vectors", "qdrant"),
            ("DATABASE_URL", "postgresql://p", "asyncpg", "stores.documents", "postgres"),
            ("MONGODB_URI", "mongodb://m", "pymongo", "stores.documents", "mongodb"),
            ("REDIS_URL", "redis://r", "redis", "stores.cache", "redis"),
        ],
    )
    def test_a_backend_whose_client_is_not_installed_says_what_to_install(
        self,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
        variable: str,
        value: str,
        module: str,
        key: str,
        extra: str,
    ) -> None:
        loaded = load(tmp_path, environ={variable: value})
        check_available(loaded.settings, loaded.sources)
        monkeypatch.setitem(sys.modules, module, None)  # Python's own mark of a module that cannot be imported

        with pytest.raises(ConfigurationError) as caught:
            check_available(loaded.settings, loaded.sources)

        assert str(caught.value) == (
            f'{key} = "{extra}" (environment {variable}) needs a client that is not installed: '
            f"run `{install_command(extra)}`, or choose another."
        )

    def test_only_a_chroma_inside_this_process_needs_its_library(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(sys.modules, "chromadb", None)
        inside = {"RAG_CONTEXT_STORES__VECTORS": "chroma", "RAG_CONTEXT_STORES__CHROMA_DIR": "vectors"}

        check_available(load(tmp_path, environ={"CHROMA_URL": "http://c"}).settings)
        with pytest.raises(ConfigurationError, match=re.escape(install_command("chroma"))):
            check_available(load(tmp_path, environ=inside).settings)

    def test_every_missing_client_is_reported_at_once(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "rag-context.toml").write_text('[stores]\ndocuments = "mongodb"\nvectors = "qdrant"\n')
        loaded = load(tmp_path)
        for module in ("pymongo", "qdrant_client"):
            monkeypatch.setitem(sys.modules, module, None)

        with pytest.raises(ConfigurationError) as caught:
            check_available(loaded.settings, loaded.sources)

        assert [line.partition(" needs")[0] for line in str(caught.value).splitlines()] == [
            'stores.vectors = "qdrant" (file rag-context.toml)',
            'stores.documents = "mongodb" (file rag-context.toml)',
        ]

    def test_traces_need_their_extra(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        settings = load(tmp_path, environ={"RAG_CONTEXT_TELEMETRY__TRACES": "true"}).settings
        check_available(settings)
        monkeypatch.setitem(sys.modules, "opentelemetry.sdk", None)

        with pytest.raises(ConfigurationError, match=r"^telemetry.traces = true needs ") as caught:
            check_available(settings)
        assert install_command("otel") in str(caught.value)

    def test_the_defaults_are_available(self) -> None:
        check_available(Settings())


class TestRefusals:
    """M-4, M-5: one sentence per problem, that names the place and the nearest known key."""

    def test_a_misspelt_key_of_the_file(self, tmp_path: Path) -> None:
        assert refusal(tmp_path, toml="[server]\nprot = 1\n") == (
            "server.prot (file rag-context.toml) is not a setting; did you mean server.port?"
        )

    def test_a_misspelt_section(self, tmp_path: Path) -> None:
        assert refusal(tmp_path, toml="[serve]\nport = 1\n") == (
            "serve (file rag-context.toml) is not a setting; did you mean server?"
        )

    def test_a_key_outside_its_section(self, tmp_path: Path) -> None:
        assert "did you mean server.port?" in refusal(tmp_path, toml="port = 1\n")

    def test_a_misspelt_variable(self, tmp_path: Path) -> None:
        assert refusal(tmp_path, environ={"RAG_CONTEXT_SERVER_PORT": "1"}) == (
            "RAG_CONTEXT_SERVER_PORT in the environment is not a setting; did you mean RAG_CONTEXT_SERVER__PORT?"
        )

    def test_a_bad_value_names_key_place_and_what_it_must_be(self, tmp_path: Path) -> None:
        assert refusal(tmp_path, environ={"MCP_SERVER_PORT": "abc"}) == (
            "server.port (environment MCP_SERVER_PORT) must be a whole number from 0 to 65535, not 'abc'."
        )

    @pytest.mark.parametrize(
        "toml",
        [
            "[server]\nport = true\n",
            "[server]\nport = 65536\n",
            '[log]\nlevel = "loud"\n',
            '[stores]\nvectors = "faiss"\n',
            '[stores]\nqdrant_url = "q:6333"\n',
            "[search]\nmin_score = 1.5\n",
            "[search]\ndeadline_ms = nan\n",
            "[breaker]\nthreshold = 0\n",
            "[indexing]\nmax_file_bytes = 0\n",
            '[vocabulary]\ncategories = "x"\n',
            '[server]\napi_key = ""\n',
        ],
    )
    def test_values_outside_their_limits_are_rejected(self, tmp_path: Path, toml: str) -> None:
        assert "(file rag-context.toml) must be" in refusal(tmp_path, toml=toml)

    def test_all_problems_are_reported_at_once(self, tmp_path: Path) -> None:
        environ = {"MCP_SERVER_PORT": "x", "LOG_LEVEL": "y", "RAG_CONTEXT_NONSENSE": "z"}

        assert len(refusal(tmp_path, toml="[serve]\na = 1\n", environ=environ).splitlines()) == 4

    def test_problems_of_a_key_are_reported_without_its_hash(self, tmp_path: Path) -> None:
        text = refusal(tmp_path, toml='[[server.api_keys]]\nname = "ci"\nhash = "abc123"\nacess = "read"\n')

        assert "server.api_keys[0].hash (file rag-context.toml) must be" in text
        assert "server.api_keys[0].acess (file rag-context.toml) is not a setting; known are" in text
        assert "abc123" not in text

    def test_key_names_are_distinct(self, tmp_path: Path) -> None:
        key = f'[[server.api_keys]]\nname = "ci"\nhash = "{HASH}"\n'

        assert "has two entries of one name" in refusal(tmp_path, toml=key * 2)

    def test_a_bad_address_is_not_repeated(self, tmp_path: Path) -> None:
        assert "pw" not in refusal(tmp_path, environ={"MONGODB_URI": "mongo://user:pw@h"})

    def test_a_file_that_is_not_there(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match=r"The configuration file no\.toml cannot be read"):
            load(tmp_path, config_file=Path("no.toml"))

    @pytest.mark.parametrize("content", [b"[server\n", b"\xff\xfe"])
    def test_a_file_that_is_not_toml(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "rag-context.toml").write_bytes(content)

        assert "rag-context.toml is not valid TOML" in refusal(tmp_path)

    def test_a_value_in_place_of_a_section(self, tmp_path: Path) -> None:
        assert "server (file rag-context.toml) is a section" in refusal(tmp_path, toml="server = 1\n")


class TestExposure:
    """X-1: which hosts other machines can reach."""

    @pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost", "LOCALHOST"])
    def test_these_are_of_this_machine_only(self, host: str) -> None:
        assert is_loopback(host)

    @pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.2", "example.org", "localhost.example.org"])
    def test_these_are_not(self, host: str) -> None:
        assert not is_loopback(host)


class TestSecrets:
    """M-4, X-5: what is printed holds no secret."""

    @pytest.mark.parametrize(
        ("url", "masked"),
        [
            ("http://u:pw@h:1/x", "http://u:********@h:1/x"),
            ("mongodb://u:p%40w@a,b/db?tls=true", "mongodb://u:********@a,b/db?tls=true"),
            ("redis://:pw@h", "redis://:********@h"),
            ("https://tok@h", "https://********@h"),
            ("http://h/?api_key=abc&Timeout=1", "http://h/?api_key=********&Timeout=1"),
            ("https://h/a?access=abc", "https://h/a?access=********"),
            ("https://h/a?abc", "https://h/a?********"),
            ("https://h/a?&b=#c=d", "https://h/a?&b=#********"),
            (
                "mongodb://h/db?authMechanism=MONGODB-AWS&authMechanismProperties=AWS_SESSION_TOKEN:ab&w=1;x=y",
                "mongodb://h/db?authMechanism=MONGODB-AWS&authMechanismProperties=********&w=1;x=********",
            ),
            ("http://h:6333", "http://h:6333"),
        ],
    )
    def test_urls_lose_their_secrets(self, url: str, masked: str) -> None:
        assert mask_url(url) == masked

    def test_neither_shown_nor_printed_settings_contain_a_secret(self, tmp_path: Path) -> None:
        environ = {
            "RAG_CONTEXT_API_KEY": "hush-1",
            "RAG_CONTEXT_EMBEDDER__API_KEY": "hush-2",
            "MONGODB_URI": "mongodb://u:hush-3@h",
            "RAG_CONTEXT_SERVER__API_KEYS": json.dumps([{"name": "ci", "hash": HASH}]),
        }
        settings = load(tmp_path, environ=environ).settings

        for text in (json.dumps(shown(settings)), repr(settings)):
            assert "hush" not in text
            assert HASH not in text


def test_every_setting_says_what_it_does_and_what_it_may_be() -> None:
    for key in KEYS.values():
        assert key.description.endswith("."), key.name
        assert key.expected, key.name

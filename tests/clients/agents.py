"""The clients, each as data: its package, its program, and how it takes one prompt with the model on loopback."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PACKAGES: Final[dict[str, str]] = json.loads(Path(__file__).with_name("package.json").read_text())["dependencies"]
"""The version of each package."""


@dataclass(frozen=True, slots=True)
class AgentClient:
    """A client.

    Args:
        name: what `rag-context install` calls it.
        package: its package in npm.
        program: the words that start it, the first of them below `node_modules`; one that ends in .js is a script.
        files: what it needs in its home folder to work without an account, by the address of the model.
        variables: the same as variables of its environment.
        prompt: the words of one turn.
        resume: the words of a turn that goes on with the last session of the folder.
        role: the role of the message that carries what a hook says before and beside a prompt.
        trusted: options with which it runs hooks without approval in its window.
    """

    name: str
    package: str
    program: str
    files: Callable[[str], Mapping[str, str]]
    variables: Callable[[str], Mapping[str, str]]
    prompt: Callable[[str], Sequence[str]]
    resume: Callable[[str], Sequence[str]]
    role: str
    trusted: Sequence[str] = ()

    @property
    def version(self) -> str:
        """The version that is driven."""
        return PACKAGES[self.package]


def _nothing(_url: str) -> Mapping[str, str]:
    return {}


def _json(value: object) -> str:
    return json.dumps(value, indent=2) + "\n"


CODEX_CONFIG = """model = "mock-model"
model_provider = "mock"

[model_providers.mock]
name = "mock"
base_url = "{url}/v1"
wire_api = "responses"
env_key = "MOCK_KEY"
"""

CLAUDE_CODE = AgentClient(
    "claude-code",
    "@anthropic-ai/claude-code",
    "@anthropic-ai/claude-code/bin/claude.exe",
    _nothing,
    lambda url: {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "x",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
    },
    lambda prompt: ["-p", prompt, "--model", "mock-model"],
    lambda prompt: ["-p", prompt, "--model", "mock-model", "--continue"],
    "system",
)
CODEX = AgentClient(
    "codex",
    "@openai/codex",
    "@openai/codex/bin/codex.js",
    lambda url: {".codex/config.toml": CODEX_CONFIG.format(url=url)},
    lambda _url: {"MOCK_KEY": "x"},
    lambda prompt: ["exec", "--skip-git-repo-check", prompt],
    lambda prompt: ["exec", "--skip-git-repo-check", "resume", "--last", prompt],
    "developer",
    ["--dangerously-bypass-hook-trust"],
)
GEMINI = AgentClient(
    "gemini",
    "@google/gemini-cli",
    "@google/gemini-cli/bundle/gemini.js",
    lambda _url: {".gemini/settings.json": _json({"security": {"auth": {"selectedType": "gemini-api-key"}}})},
    lambda url: {"GEMINI_API_KEY": "x", "GOOGLE_GEMINI_BASE_URL": url, "GEMINI_CLI_TRUST_WORKSPACE": "true"},
    lambda prompt: ["-m", "gemini-2.5-flash", "-p", prompt],
    lambda prompt: ["-m", "gemini-2.5-flash", "--resume", "latest", "-p", prompt],
    "user",
)
OPENCODE = AgentClient(
    "opencode",
    "opencode-ai",
    "opencode-linux-x64/bin/opencode",
    lambda url: {
        ".config/opencode/opencode.json": _json(
            {
                "provider": {
                    "mock": {
                        "npm": "@ai-sdk/openai-compatible",
                        "options": {"baseURL": f"{url}/v1", "apiKey": "x"},
                        "models": {"mock-model": {}},
                    }
                },
                "model": "mock/mock-model",
                "small_model": "mock/mock-model",
                "autoupdate": False,
            }
        )
    },
    lambda _url: {"OPENCODE_DISABLE_AUTOUPDATE": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1"},
    lambda prompt: ["run", prompt],
    lambda prompt: ["run", "--continue", prompt],
    "user",
)
COPILOT = AgentClient(
    "copilot",
    "@github/copilot",
    "@github/copilot/npm-loader.js",
    _nothing,
    lambda url: {
        "COPILOT_OFFLINE": "true",
        "COPILOT_PROVIDER_TYPE": "openai",
        "COPILOT_PROVIDER_BASE_URL": f"{url}/v1",
        "COPILOT_PROVIDER_API_KEY": "x",
        "COPILOT_MODEL": "mock-model",
    },
    lambda prompt: ["-p", prompt, "--allow-all-tools"],
    lambda prompt: ["--continue", "-p", prompt, "--allow-all-tools"],
    "user",
)
QWEN = AgentClient(
    "qwen",
    "@qwen-code/qwen-code",
    "@qwen-code/qwen-code/cli.js",
    lambda _url: {".qwen/settings.json": _json({"security": {"auth": {"selectedType": "openai"}}})},
    lambda url: {"OPENAI_API_KEY": "x", "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_MODEL": "mock-model"},
    lambda prompt: ["-p", prompt],
    lambda prompt: ["--continue", "-p", prompt],
    "user",
)

CLIENTS: Final = {each.name: each for each in (CLAUDE_CODE, CODEX, GEMINI, OPENCODE, COPILOT, QWEN)}

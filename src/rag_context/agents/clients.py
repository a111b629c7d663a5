"""The programs that agents run in, as data: where each keeps its settings, what an entry is like, and its events.

It needs the standard library only. Places are templates, as `Machine.path` reads them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final, Literal, TypeAlias

NAME: Final = "rag-context"
"""What our entries, files and plug-ins are called."""

EventName: TypeAlias = Literal["session-start", "prompt", "action", "stop", "compact"]

TIMEOUTS_S: Final[Mapping[EventName, int]] = {"session-start": 5, "prompt": 5, "action": 5, "stop": 10, "compact": 10}
"""When a client gives a hook up; the program gives up much earlier by itself."""


class Scope(StrEnum):
    USER = "user"
    PROJECT = "project"


class Tier(StrEnum):
    """What reaches the model by itself."""

    PROMPT = "A"
    START = "B"
    RULES = "C"


Files: TypeAlias = Mapping[Scope, str]
"""The place of a file in each scope that has one."""


@dataclass(frozen=True, slots=True)
class Mcp:
    """How a client learns of an MCP server.

    Attributes:
        files: where; JSON, or TOML by its suffix.
        section: the keys that lead to the table of servers.
        of_command, of_url: what an entry has besides the command or the address.
        url_key: the field of the address; empty where only commands are possible.
        in_one_list: the program stands with its arguments in one list.
        key: what to add for a server with keys; the key itself stays in the environment.
    """

    files: Files
    section: tuple[str, ...] = ("mcpServers",)
    of_command: Mapping[str, Any] = field(default_factory=dict)
    of_url: Mapping[str, Any] = field(default_factory=dict)
    url_key: str = "url"
    in_one_list: bool = False
    key: str = ""


@dataclass(frozen=True, slots=True)
class Event:
    """An event of a client, by the client's own name; `matcher` selects the tools whose use it reports."""

    native: str
    matcher: str = ""


class HookShape(StrEnum):
    ARGUMENTS = "arguments"
    """`{matcher, hooks: [{type, command, args, timeout}]}`: the program is started without a shell."""
    GROUPS = "groups"
    """`{matcher, hooks: [{type, command, timeout}]}`: a line for a shell."""
    FLAT = "flat"
    """`{command, timeout}`"""
    SHELLS = "shells"
    """`{type, bash, powershell, timeoutSec}`"""
    PLUGIN = "plugin"
    """A program in JavaScript, which is the whole file."""
    AGENT = "agent"
    """An agent of its own, which is the whole file; below its events `{command, timeout_ms}`."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """How a client runs a program at its events.

    Attributes:
        files: where they are configured.
        events: the client's event for each of ours that it has.
        units_per_s: in how many parts of a second the client counts time-outs.
        reported_as: the name that the program gets for `--client`; another one where both read the same file.
        has_version: the file says `"version": 1`.
        takes_failure_for_refusal: it sends no prompt where the program of a hook is missing.
    """

    files: Files
    events: Mapping[EventName, Event]
    shape: HookShape = HookShape.GROUPS
    units_per_s: int = 1
    reported_as: str = ""
    has_version: bool = False
    takes_failure_for_refusal: bool = False


class RulesForm(StrEnum):
    SKILL = "skill"
    """A file of our own that the client shows when it fits, by its name and description."""
    FILE = "file"
    """A file of our own."""
    BLOCK = "block"
    """A block between marks in a file that has other text."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Where a client reads instructions; agents run our command line where it `has_tools` not.

    `head` stands before them in a file of our own.
    """

    files: Files
    form: RulesForm
    head: str = ""
    has_tools: bool = True


@dataclass(frozen=True, slots=True)
class PluginMark:
    """How an installed plug-in is recognised: by a folder, or by a key of settings that begins with `rag-context@`."""

    place: str
    section: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Client:
    """A program in which agents run, found by one of its `programs` or `folders`.

    `is_desktop`: it is not started from a terminal, and so has another `PATH`. `to_do` is what remains for the person,
    by scope, `remark` what people should know besides.
    """

    name: str
    title: str
    tier: Tier
    programs: tuple[str, ...]
    folders: tuple[str, ...]
    mcp: Mcp | None = None
    hooks: Hooks | None = None
    rules: Rules | None = None
    plugin: PluginMark | None = None
    is_desktop: bool = False
    to_do: Mapping[Scope, str] = field(default_factory=dict)
    remark: str = ""


def _files(user: str = "", project: str = "") -> Files:
    return {scope: place for scope, place in ((Scope.USER, user), (Scope.PROJECT, project)) if place}


def _everywhere(step: str) -> Mapping[Scope, str]:
    return dict.fromkeys(Scope, step)


def _bearer(variable: str) -> str:
    return f'"headers": {{"Authorization": "Bearer {variable}"}}'


def _events(names: str, tools: str = "") -> Mapping[EventName, Event]:
    """A client's names for our events, in their order, `-` for one that is missing; `tools` are those of an action."""
    return {
        event: Event(native, tools if event == "action" else "")
        for event, native in zip(TIMEOUTS_S, names.split(), strict=True)
        if native != "-"
    }


_AS_IN_CLAUDE: Final = "SessionStart UserPromptSubmit PreToolUse Stop PreCompact"
_OF_HTTP: Final = {"type": "http"}
_OF_STDIO: Final = {"type": "stdio"}

_COPILOT_HOOKS: Final = Hooks(
    _files("{copilot}/hooks/rag-context.json", ".github/hooks/rag-context.json"),
    _events("sessionStart userPromptSubmitted preToolUse agentStop preCompact"),
    HookShape.SHELLS,
    has_version=True,
)
_ROO: Final = "{app}/Code/User/globalStorage/rooveterinaryinc.roo-cline"

_KNOWN: Final = (
    Client(
        "claude-code", "Claude Code", Tier.PROMPT, programs=("claude",), folders=("{claude}",),
        mcp=Mcp(
            _files("{claude_state}/.claude.json", ".mcp.json"), of_command=_OF_STDIO, of_url=_OF_HTTP,
            key=_bearer("${RAG_CONTEXT_API_KEY}"),
        ),
        hooks=Hooks(
            _files("{claude}/settings.json", ".claude/settings.json"),
            _events(_AS_IN_CLAUDE, "Edit|Write|MultiEdit|NotebookEdit|Bash"), HookShape.ARGUMENTS,
        ),
        rules=Rules(
            _files("{claude}/skills/rag-context/SKILL.md", ".claude/skills/rag-context/SKILL.md"), RulesForm.SKILL,
        ),
        plugin=PluginMark("{claude}/settings.json", ("enabledPlugins",)),
        to_do={
            Scope.PROJECT: "Start `claude` in the project once, trust the folder and approve the server of .mcp.json.",
        },
    ),
    Client(
        "codex", "Codex", Tier.PROMPT, programs=("codex",), folders=("{codex}",),
        mcp=Mcp(
            _files("{codex}/config.toml", ".codex/config.toml"), section=("mcp_servers",),
            key='bearer_token_env_var = "RAG_CONTEXT_API_KEY"',
        ),
        hooks=Hooks(
            _files("{codex}/hooks.json", ".codex/hooks.json"), _events(_AS_IN_CLAUDE, "Bash|apply_patch|Edit|Write"),
        ),
        rules=Rules(
            _files("{codex}/skills/rag-context/SKILL.md", ".agents/skills/rag-context/SKILL.md"), RulesForm.SKILL,
        ),
        plugin=PluginMark("{codex}/config.toml", ("plugins",)),
        to_do={
            Scope.USER: "Type `/hooks` in Codex once and trust the hooks: until then Codex runs none of them.",
            Scope.PROJECT: "Trust the folder in Codex, type `/hooks` there once and trust the hooks: "
            "until then Codex runs none of them.",
        },
    ),
    Client(
        "gemini", "Gemini CLI", Tier.PROMPT, programs=("gemini",), folders=("{gemini}/.gemini",),
        mcp=Mcp(
            _files("{gemini}/.gemini/settings.json", ".gemini/settings.json"), url_key="httpUrl",
            key=_bearer("$RAG_CONTEXT_API_KEY"),
        ),
        hooks=Hooks(
            _files("{gemini}/.gemini/settings.json", ".gemini/settings.json"),
            # Only what follows a tool can add text, so the file's decision comes when the file is read.
            _events("SessionStart BeforeAgent AfterTool AfterAgent -", "read_file|read_many_files"), units_per_s=1000,
            takes_failure_for_refusal=True,
        ),
        rules=Rules(_files("{gemini}/.gemini/GEMINI.md", "GEMINI.md"), RulesForm.BLOCK),
        plugin=PluginMark("{gemini}/.gemini/extensions/rag-context"),
        to_do={Scope.PROJECT: "Trust the folder in Gemini CLI: in others it starts no servers and no hooks."},
        remark="In a folder that is not trusted, Gemini CLI shows the server as disabled.",
    ),
    Client(
        "opencode", "OpenCode", Tier.PROMPT, programs=("opencode",), folders=("{config}/opencode",),
        mcp=Mcp(
            _files("{config}/opencode/opencode.json", "opencode.json"), section=("mcp",),
            of_command={"type": "local", "enabled": True}, of_url={"type": "remote", "enabled": True}, in_one_list=True,
            key=_bearer("{env:RAG_CONTEXT_API_KEY}"),
        ),
        hooks=Hooks(
            _files("{config}/opencode/plugins/rag-context.js", ".opencode/plugins/rag-context.js"),
            _events("chat.message chat.message tool.execute.after session.idle experimental.session.compacting",
                    "read|edit|write|bash"),
            HookShape.PLUGIN,
        ),
        rules=Rules(_files("{config}/opencode/AGENTS.md", "AGENTS.md"), RulesForm.BLOCK),
    ),
    Client(
        "copilot", "GitHub Copilot CLI", Tier.PROMPT, programs=("copilot",), folders=("{copilot}",),
        mcp=Mcp(
            _files("{copilot}/mcp-config.json", ".github/mcp.json"), of_command={"type": "local", "tools": ["*"]},
            of_url={"type": "http", "tools": ["*"]}, key=_bearer("${RAG_CONTEXT_API_KEY}"),
        ),
        hooks=_COPILOT_HOOKS,
        rules=Rules(_files("{copilot}/copilot-instructions.md", ".github/copilot-instructions.md"), RulesForm.BLOCK),
    ),
    Client(
        "qwen", "Qwen Code", Tier.PROMPT, programs=("qwen",), folders=("~/.qwen",),
        mcp=Mcp(
            _files("~/.qwen/settings.json", ".qwen/settings.json"), url_key="httpUrl",
            key=_bearer("$RAG_CONTEXT_API_KEY"),
        ),
        hooks=Hooks(
            _files("~/.qwen/settings.json", ".qwen/settings.json"),
            _events(_AS_IN_CLAUDE, "edit|write_file|run_shell_command|Edit|WriteFile|Shell"), units_per_s=1000,
        ),
        rules=Rules(_files("~/.qwen/QWEN.md", "QWEN.md"), RulesForm.BLOCK),
    ),
    Client(
        "droid", "Factory Droid", Tier.PROMPT, programs=("droid",), folders=("~/.factory",),
        mcp=Mcp(_files("~/.factory/mcp.json", ".factory/mcp.json"), of_command=_OF_STDIO, of_url=_OF_HTTP),
        hooks=Hooks(
            _files("~/.factory/settings.json", ".factory/settings.json"),
            _events(_AS_IN_CLAUDE, "Edit|Create|ApplyPatch|Execute"),
        ),
        rules=Rules(_files("~/.factory/AGENTS.md", "AGENTS.md"), RulesForm.BLOCK),
        remark="If there is a `hooks.json` beside `settings.json`, Droid reads hooks from there only: move ours over.",
    ),
    Client(
        "kiro", "Kiro CLI", Tier.PROMPT, programs=("kiro-cli", "kiro"), folders=("~/.kiro",),
        mcp=Mcp(_files("~/.kiro/settings/mcp.json", ".kiro/settings/mcp.json")),
        hooks=Hooks(
            _files("~/.kiro/agents/rag-context.json", ".kiro/agents/rag-context.json"),
            _events("agentSpawn userPromptSubmit preToolUse stop -"), HookShape.AGENT, units_per_s=1000,
        ),
        rules=Rules(_files("~/.kiro/steering/rag-context.md", ".kiro/steering/rag-context.md"), RulesForm.FILE),
        to_do=_everywhere("Start it with `kiro-cli chat --agent rag-context`: the hooks belong to that agent."),
    ),
    Client(
        "cursor", "Cursor", Tier.START, programs=("cursor", "cursor-agent"), folders=("~/.cursor",),
        mcp=Mcp(_files("~/.cursor/mcp.json", ".cursor/mcp.json"), key=_bearer("${env:RAG_CONTEXT_API_KEY}")),
        hooks=Hooks(
            _files("~/.cursor/hooks.json", ".cursor/hooks.json"), _events("sessionStart - - stop preCompact"),
            HookShape.FLAT, has_version=True,
        ),
        rules=Rules(
            _files(project=".cursor/rules/rag-context.mdc"), RulesForm.FILE,
            head="---\ndescription: The memory that agents share\nalwaysApply: true\n---\n",
        ),
        plugin=PluginMark("~/.cursor/plugins/local/rag-context"),
        is_desktop=True,
        to_do=_everywhere("Switch the server on in Cursor's settings, under MCP."),
        remark="Cursor also runs the hooks of Claude Code's settings.",
    ),
    Client(
        "vscode", "VS Code", Tier.START, programs=("code",), folders=("{app}/Code/User",),
        mcp=Mcp(
            _files("{app}/Code/User/mcp.json", ".vscode/mcp.json"), section=("servers",), of_command=_OF_STDIO,
            of_url=_OF_HTTP, key=_bearer("${input:rag-context-key}"),
        ),
        hooks=replace(_COPILOT_HOOKS, reported_as="copilot"),
        rules=Rules(_files(project=".github/copilot-instructions.md"), RulesForm.BLOCK),
        is_desktop=True,
        to_do=_everywhere("Start the server in VS Code once (command `MCP: List Servers`) and trust it."),
        remark="VS Code also runs the hooks of Claude Code's settings. Its hooks are a preview.",
    ),
    Client(
        "claude-desktop", "Claude Desktop", Tier.RULES, programs=(), folders=("{app}/Claude",),
        mcp=Mcp(_files("{app}/Claude/claude_desktop_config.json"), url_key=""),
        is_desktop=True,
        to_do={Scope.USER: "Quit and start Claude Desktop; closing its window is not enough."},
        remark="Its file takes commands only: add the address of a running server as a connector in the settings.",
    ),
    Client(
        "windsurf", "Windsurf", Tier.RULES, programs=("windsurf",), folders=("~/.codeium/windsurf",),
        mcp=Mcp(
            _files("~/.codeium/windsurf/mcp_config.json"), url_key="serverUrl",
            key=_bearer("${env:RAG_CONTEXT_API_KEY}"),
        ),
        rules=Rules(
            _files(project=".windsurf/rules/rag-context.md"), RulesForm.FILE, head="---\ntrigger: always_on\n---\n",
        ),
        is_desktop=True,
        to_do={Scope.USER: "Press refresh in Windsurf's list of MCP servers."},
    ),
    Client(
        "zed", "Zed", Tier.RULES, programs=("zed",), folders=("{zed}/zed", "{app}/Zed"),
        mcp=Mcp(_files("{zed}/zed/settings.json", ".zed/settings.json"), section=("context_servers",)),
        rules=Rules(
            _files("~/.agents/skills/rag-context/SKILL.md", ".agents/skills/rag-context/SKILL.md"), RulesForm.SKILL,
        ),
        is_desktop=True,
    ),
    Client(
        "cline", "Cline", Tier.RULES, programs=("cline",), folders=("~/.cline", "~/Documents/Cline"),
        mcp=Mcp(_files("~/.cline/data/settings/cline_mcp_settings.json"), of_url={"type": "streamableHttp"}),
        rules=Rules(_files("~/.cline/rules/rag-context.md", ".clinerules/rag-context.md"), RulesForm.FILE),
    ),
    Client(
        "roo", "Roo Code", Tier.RULES, programs=(), folders=("~/.roo", _ROO),
        mcp=Mcp(_files(f"{_ROO}/settings/mcp_settings.json", ".roo/mcp.json"), of_url={"type": "streamable-http"}),
        rules=Rules(_files("~/.roo/rules/rag-context.md", ".roo/rules/rag-context.md"), RulesForm.FILE),
        is_desktop=True,
    ),
    Client(
        "continue", "Continue", Tier.RULES, programs=("cn",), folders=("~/.continue",),
        mcp=Mcp(
            _files("~/.continue/mcpServers/rag-context.json", ".continue/mcpServers/rag-context.json"),
            of_url={"type": "streamable-http"},
        ),
        rules=Rules(_files("~/.continue/rules/rag-context.md", ".continue/rules/rag-context.md"), RulesForm.FILE),
        is_desktop=True,
    ),
    Client(
        "amp", "Amp", Tier.RULES, programs=("amp",), folders=("{config}/amp",),
        mcp=Mcp(_files("{config}/amp/settings.json", ".amp/settings.json"), section=("amp.mcpServers",)),
        rules=Rules(_files("{config}/amp/AGENTS.md", "AGENTS.md"), RulesForm.BLOCK),
    ),
    Client(
        "goose", "Goose", Tier.RULES, programs=("goose",), folders=("{config}/goose",),
        rules=Rules(_files("{config}/goose/.goosehints", ".goosehints"), RulesForm.BLOCK),
        to_do=_everywhere("Run `goose configure`: Add Extension, Command-line Extension, `rag-context mcp`."),
    ),
    Client(
        "aider", "Aider", Tier.RULES, programs=("aider",), folders=("~/.aider",),
        rules=Rules(_files(project="CONVENTIONS.md"), RulesForm.BLOCK, has_tools=False),
        to_do={Scope.PROJECT: "Start it with `aider --read CONVENTIONS.md`; Aider has no MCP."},
    ),
    Client(
        "warp", "Warp", Tier.RULES, programs=("warp-terminal",), folders=("~/.warp",),
        rules=Rules(_files(project="AGENTS.md"), RulesForm.BLOCK),
        is_desktop=True,
        to_do={Scope.PROJECT: "Add the server in Warp's settings, under MCP servers: `rag-context mcp`."},
    ),
)  # fmt: skip
CLIENTS: Final[Mapping[str, Client]] = {client.name: client for client in _KNOWN}

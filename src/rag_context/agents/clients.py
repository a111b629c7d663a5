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
    """Whose settings: those of this user, or those of a project, which a team commits."""

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
    """What an entry for a hook looks like, below the event's name."""

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
    """

    files: Files
    events: Mapping[EventName, Event]
    shape: HookShape = HookShape.GROUPS
    units_per_s: int = 1
    reported_as: str = ""
    has_version: bool = False


class RulesForm(StrEnum):
    """How the instructions for agents stand in a file."""

    SKILL = "skill"
    """A file of our own that the client shows when it fits, by its name and description."""
    FILE = "file"
    """A file of our own."""
    BLOCK = "block"
    """A block between marks in a file that has other text."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Where a client reads instructions.

    Attributes:
        files: the places.
        form: how the instructions stand there.
        head: what stands before them in a file of our own.
        has_tools: the client has MCP; otherwise agents run our command line.
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
    """A program in which agents run.

    Attributes:
        name: what the command line calls it.
        programs, folders: by which it is found on this machine; one of them is enough.
        is_desktop: it is not started from a terminal, and so has another `PATH`.
        to_do: what remains for the person, by scope.
        remark: what people should know besides.
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


def _everywhere(step: str) -> Mapping[Scope, str]:
    return dict.fromkeys(Scope, step)


def _events_as_in_claude(tools: str) -> Mapping[EventName, Event]:
    return {
        "session-start": Event("SessionStart"),
        "prompt": Event("UserPromptSubmit"),
        "action": Event("PreToolUse", tools),
        "stop": Event("Stop"),
        "compact": Event("PreCompact"),
    }


_COPILOT_HOOKS: Final = Hooks(
    {Scope.USER: "{copilot}/hooks/rag-context.json", Scope.PROJECT: ".github/hooks/rag-context.json"},
    {
        "session-start": Event("sessionStart"),
        "prompt": Event("userPromptSubmitted"),
        "action": Event("preToolUse"),
        "stop": Event("agentStop"),
        "compact": Event("preCompact"),
    },
    HookShape.SHELLS,
    has_version=True,
)

_KNOWN: Final = (
    Client(
        "claude-code",
        "Claude Code",
        Tier.PROMPT,
        programs=("claude",),
        folders=("{claude}",),
        mcp=Mcp(
            {Scope.USER: "{claude_state}/.claude.json", Scope.PROJECT: ".mcp.json"},
            of_command={"type": "stdio"},
            of_url={"type": "http"},
            key='"headers": {"Authorization": "Bearer ${RAG_CONTEXT_API_KEY}"}',
        ),
        hooks=Hooks(
            {Scope.USER: "{claude}/settings.json", Scope.PROJECT: ".claude/settings.json"},
            _events_as_in_claude("Edit|Write|MultiEdit|NotebookEdit|Bash"),
            HookShape.ARGUMENTS,
        ),
        rules=Rules(
            {
                Scope.USER: "{claude}/skills/rag-context/SKILL.md",
                Scope.PROJECT: ".claude/skills/rag-context/SKILL.md",
            },
            RulesForm.SKILL,
        ),
        plugin=PluginMark("{claude}/settings.json", ("enabledPlugins",)),
        to_do={
            Scope.PROJECT: "Start `claude` in the project once, trust the folder and approve the server of .mcp.json."
        },
    ),
    Client(
        "codex",
        "Codex",
        Tier.PROMPT,
        programs=("codex",),
        folders=("{codex}",),
        mcp=Mcp(
            {Scope.USER: "{codex}/config.toml", Scope.PROJECT: ".codex/config.toml"},
            section=("mcp_servers",),
            key='bearer_token_env_var = "RAG_CONTEXT_API_KEY"',
        ),
        hooks=Hooks(
            {Scope.USER: "{codex}/hooks.json", Scope.PROJECT: ".codex/hooks.json"},
            _events_as_in_claude("Bash|apply_patch|Edit|Write"),
        ),
        rules=Rules(
            {
                Scope.USER: "{codex}/skills/rag-context/SKILL.md",
                Scope.PROJECT: ".agents/skills/rag-context/SKILL.md",
            },
            RulesForm.SKILL,
        ),
        plugin=PluginMark("{codex}/config.toml", ("plugins",)),
        to_do={
            Scope.USER: "Type `/hooks` in Codex once and trust the hooks: until then Codex runs none of them.",
            Scope.PROJECT: "Trust the folder in Codex, type `/hooks` there once and trust the hooks: until then Codex "
            "runs none of them.",
        },
    ),
    Client(
        "gemini",
        "Gemini CLI",
        Tier.PROMPT,
        programs=("gemini",),
        folders=("{gemini}/.gemini",),
        mcp=Mcp(
            {Scope.USER: "{gemini}/.gemini/settings.json", Scope.PROJECT: ".gemini/settings.json"},
            url_key="httpUrl",
            key='"headers": {"Authorization": "Bearer $RAG_CONTEXT_API_KEY"}',
        ),
        hooks=Hooks(
            {Scope.USER: "{gemini}/.gemini/settings.json", Scope.PROJECT: ".gemini/settings.json"},
            {
                "session-start": Event("SessionStart"),
                "prompt": Event("BeforeAgent"),
                # Only what follows a tool can add text, so the file's decision comes when the file is read.
                "action": Event("AfterTool", "read_file|read_many_files"),
                "stop": Event("AfterAgent"),
            },
            units_per_s=1000,
        ),
        rules=Rules({Scope.USER: "{gemini}/.gemini/GEMINI.md", Scope.PROJECT: "GEMINI.md"}, RulesForm.BLOCK),
        plugin=PluginMark("{gemini}/.gemini/extensions/rag-context"),
        to_do={Scope.PROJECT: "Trust the folder in Gemini CLI: in others it starts no servers and no hooks."},
        remark="In a folder that is not trusted, Gemini CLI shows the server as disabled.",
    ),
    Client(
        "opencode",
        "OpenCode",
        Tier.PROMPT,
        programs=("opencode",),
        folders=("{config}/opencode",),
        mcp=Mcp(
            {Scope.USER: "{config}/opencode/opencode.json", Scope.PROJECT: "opencode.json"},
            section=("mcp",),
            of_command={"type": "local", "enabled": True},
            of_url={"type": "remote", "enabled": True},
            in_one_list=True,
            key='"headers": {"Authorization": "Bearer {env:RAG_CONTEXT_API_KEY}"}',
        ),
        hooks=Hooks(
            {
                Scope.USER: "{config}/opencode/plugins/rag-context.js",
                Scope.PROJECT: ".opencode/plugins/rag-context.js",
            },
            {
                "session-start": Event("chat.message"),
                "prompt": Event("chat.message"),
                "action": Event("tool.execute.after", "read|edit|write|bash"),
                "stop": Event("session.idle"),
                "compact": Event("experimental.session.compacting"),
            },
            HookShape.PLUGIN,
        ),
        rules=Rules({Scope.USER: "{config}/opencode/AGENTS.md", Scope.PROJECT: "AGENTS.md"}, RulesForm.BLOCK),
    ),
    Client(
        "copilot",
        "GitHub Copilot CLI",
        Tier.PROMPT,
        programs=("copilot",),
        folders=("{copilot}",),
        mcp=Mcp(
            {Scope.USER: "{copilot}/mcp-config.json", Scope.PROJECT: ".github/mcp.json"},
            of_command={"type": "local", "tools": ["*"]},
            of_url={"type": "http", "tools": ["*"]},
            key='"headers": {"Authorization": "Bearer ${RAG_CONTEXT_API_KEY}"}',
        ),
        hooks=_COPILOT_HOOKS,
        rules=Rules(
            {Scope.USER: "{copilot}/copilot-instructions.md", Scope.PROJECT: ".github/copilot-instructions.md"},
            RulesForm.BLOCK,
        ),
    ),
    Client(
        "qwen",
        "Qwen Code",
        Tier.PROMPT,
        programs=("qwen",),
        folders=("~/.qwen",),
        mcp=Mcp(
            {Scope.USER: "~/.qwen/settings.json", Scope.PROJECT: ".qwen/settings.json"},
            url_key="httpUrl",
            key='"headers": {"Authorization": "Bearer $RAG_CONTEXT_API_KEY"}',
        ),
        hooks=Hooks(
            {Scope.USER: "~/.qwen/settings.json", Scope.PROJECT: ".qwen/settings.json"},
            _events_as_in_claude("edit|write_file|run_shell_command|Edit|WriteFile|Shell"),
            units_per_s=1000,
        ),
        rules=Rules({Scope.USER: "~/.qwen/QWEN.md", Scope.PROJECT: "QWEN.md"}, RulesForm.BLOCK),
    ),
    Client(
        "droid",
        "Factory Droid",
        Tier.PROMPT,
        programs=("droid",),
        folders=("~/.factory",),
        mcp=Mcp(
            {Scope.USER: "~/.factory/mcp.json", Scope.PROJECT: ".factory/mcp.json"},
            of_command={"type": "stdio"},
            of_url={"type": "http"},
        ),
        hooks=Hooks(
            {Scope.USER: "~/.factory/settings.json", Scope.PROJECT: ".factory/settings.json"},
            _events_as_in_claude("Edit|Create|ApplyPatch|Execute"),
        ),
        rules=Rules({Scope.USER: "~/.factory/AGENTS.md", Scope.PROJECT: "AGENTS.md"}, RulesForm.BLOCK),
        remark="If there is a `hooks.json` beside `settings.json`, Droid reads hooks from there only: move ours over.",
    ),
    Client(
        "kiro",
        "Kiro CLI",
        Tier.PROMPT,
        programs=("kiro-cli", "kiro"),
        folders=("~/.kiro",),
        mcp=Mcp({Scope.USER: "~/.kiro/settings/mcp.json", Scope.PROJECT: ".kiro/settings/mcp.json"}),
        hooks=Hooks(
            {Scope.USER: "~/.kiro/agents/rag-context.json", Scope.PROJECT: ".kiro/agents/rag-context.json"},
            {
                "session-start": Event("agentSpawn"),
                "prompt": Event("userPromptSubmit"),
                "action": Event("preToolUse"),
                "stop": Event("stop"),
            },
            HookShape.AGENT,
            units_per_s=1000,
        ),
        rules=Rules(
            {Scope.USER: "~/.kiro/steering/rag-context.md", Scope.PROJECT: ".kiro/steering/rag-context.md"},
            RulesForm.FILE,
        ),
        to_do=_everywhere("Start it with `kiro-cli chat --agent rag-context`: the hooks belong to that agent."),
    ),
    Client(
        "cursor",
        "Cursor",
        Tier.START,
        programs=("cursor", "cursor-agent"),
        folders=("~/.cursor",),
        mcp=Mcp(
            {Scope.USER: "~/.cursor/mcp.json", Scope.PROJECT: ".cursor/mcp.json"},
            key='"headers": {"Authorization": "Bearer ${env:RAG_CONTEXT_API_KEY}"}',
        ),
        hooks=Hooks(
            {Scope.USER: "~/.cursor/hooks.json", Scope.PROJECT: ".cursor/hooks.json"},
            {
                "session-start": Event("sessionStart"),
                "stop": Event("stop"),
                "compact": Event("preCompact"),
            },
            HookShape.FLAT,
            has_version=True,
        ),
        rules=Rules(
            {Scope.PROJECT: ".cursor/rules/rag-context.mdc"},
            RulesForm.FILE,
            head="---\ndescription: The memory that agents share\nalwaysApply: true\n---\n",
        ),
        plugin=PluginMark("~/.cursor/plugins/local/rag-context"),
        is_desktop=True,
        to_do=_everywhere("Switch the server on in Cursor's settings, under MCP."),
        remark="Cursor also runs the hooks of Claude Code's settings.",
    ),
    Client(
        "vscode",
        "VS Code",
        Tier.START,
        programs=("code",),
        folders=("{app}/Code/User",),
        mcp=Mcp(
            {Scope.USER: "{app}/Code/User/mcp.json", Scope.PROJECT: ".vscode/mcp.json"},
            section=("servers",),
            of_command={"type": "stdio"},
            of_url={"type": "http"},
            key='"headers": {"Authorization": "Bearer ${input:rag-context-key}"}',
        ),
        hooks=replace(_COPILOT_HOOKS, reported_as="copilot"),
        rules=Rules({Scope.PROJECT: ".github/copilot-instructions.md"}, RulesForm.BLOCK),
        is_desktop=True,
        to_do=_everywhere("Start the server in VS Code once (command `MCP: List Servers`) and trust it."),
        remark="VS Code also runs the hooks of Claude Code's settings. Its hooks are a preview.",
    ),
    Client(
        "claude-desktop",
        "Claude Desktop",
        Tier.RULES,
        programs=(),
        folders=("{app}/Claude",),
        mcp=Mcp({Scope.USER: "{app}/Claude/claude_desktop_config.json"}, url_key=""),
        is_desktop=True,
        to_do={Scope.USER: "Quit and start Claude Desktop; closing its window is not enough."},
        remark="Its file takes commands only: add the address of a running server as a connector in the settings.",
    ),
    Client(
        "windsurf",
        "Windsurf",
        Tier.RULES,
        programs=("windsurf",),
        folders=("~/.codeium/windsurf",),
        mcp=Mcp(
            {Scope.USER: "~/.codeium/windsurf/mcp_config.json"},
            url_key="serverUrl",
            key='"headers": {"Authorization": "Bearer ${env:RAG_CONTEXT_API_KEY}"}',
        ),
        rules=Rules(
            {Scope.PROJECT: ".windsurf/rules/rag-context.md"}, RulesForm.FILE, head="---\ntrigger: always_on\n---\n"
        ),
        is_desktop=True,
        to_do={Scope.USER: "Press refresh in Windsurf's list of MCP servers."},
    ),
    Client(
        "zed",
        "Zed",
        Tier.RULES,
        programs=("zed",),
        folders=("{zed}/zed", "{app}/Zed"),
        mcp=Mcp(
            {Scope.USER: "{zed}/zed/settings.json", Scope.PROJECT: ".zed/settings.json"},
            section=("context_servers",),
        ),
        rules=Rules(
            {
                Scope.USER: "~/.agents/skills/rag-context/SKILL.md",
                Scope.PROJECT: ".agents/skills/rag-context/SKILL.md",
            },
            RulesForm.SKILL,
        ),
        is_desktop=True,
    ),
    Client(
        "cline",
        "Cline",
        Tier.RULES,
        programs=("cline",),
        folders=("~/.cline", "~/Documents/Cline"),
        mcp=Mcp(
            {Scope.USER: "~/.cline/data/settings/cline_mcp_settings.json"},
            of_url={"type": "streamableHttp"},
        ),
        rules=Rules(
            {Scope.USER: "~/.cline/rules/rag-context.md", Scope.PROJECT: ".clinerules/rag-context.md"}, RulesForm.FILE
        ),
    ),
    Client(
        "roo",
        "Roo Code",
        Tier.RULES,
        programs=(),
        folders=("~/.roo", "{app}/Code/User/globalStorage/rooveterinaryinc.roo-cline"),
        mcp=Mcp(
            {
                Scope.USER: "{app}/Code/User/globalStorage/rooveterinaryinc.roo-cline/settings/mcp_settings.json",
                Scope.PROJECT: ".roo/mcp.json",
            },
            of_url={"type": "streamable-http"},
        ),
        rules=Rules(
            {Scope.USER: "~/.roo/rules/rag-context.md", Scope.PROJECT: ".roo/rules/rag-context.md"}, RulesForm.FILE
        ),
        is_desktop=True,
    ),
    Client(
        "continue",
        "Continue",
        Tier.RULES,
        programs=("cn",),
        folders=("~/.continue",),
        mcp=Mcp(
            {
                Scope.USER: "~/.continue/mcpServers/rag-context.json",
                Scope.PROJECT: ".continue/mcpServers/rag-context.json",
            },
            of_url={"type": "streamable-http"},
        ),
        rules=Rules(
            {Scope.USER: "~/.continue/rules/rag-context.md", Scope.PROJECT: ".continue/rules/rag-context.md"},
            RulesForm.FILE,
        ),
        is_desktop=True,
    ),
    Client(
        "amp",
        "Amp",
        Tier.RULES,
        programs=("amp",),
        folders=("{config}/amp",),
        mcp=Mcp(
            {Scope.USER: "{config}/amp/settings.json", Scope.PROJECT: ".amp/settings.json"},
            section=("amp.mcpServers",),
        ),
        rules=Rules({Scope.USER: "{config}/amp/AGENTS.md", Scope.PROJECT: "AGENTS.md"}, RulesForm.BLOCK),
    ),
    Client(
        "goose",
        "Goose",
        Tier.RULES,
        programs=("goose",),
        folders=("{config}/goose",),
        rules=Rules({Scope.USER: "{config}/goose/.goosehints", Scope.PROJECT: ".goosehints"}, RulesForm.BLOCK),
        to_do=_everywhere("Run `goose configure`: Add Extension, Command-line Extension, `rag-context mcp`."),
    ),
    Client(
        "aider",
        "Aider",
        Tier.RULES,
        programs=("aider",),
        folders=("~/.aider",),
        rules=Rules({Scope.PROJECT: "CONVENTIONS.md"}, RulesForm.BLOCK, has_tools=False),
        to_do={Scope.PROJECT: "Start it with `aider --read CONVENTIONS.md`; Aider has no MCP."},
    ),
    Client(
        "warp",
        "Warp",
        Tier.RULES,
        programs=("warp-terminal",),
        folders=("~/.warp",),
        rules=Rules({Scope.PROJECT: "AGENTS.md"}, RulesForm.BLOCK),
        is_desktop=True,
        to_do={Scope.PROJECT: "Add the server in Warp's settings, under MCP servers: `rag-context mcp`."},
    ),
)
CLIENTS: Final[Mapping[str, Client]] = {client.name: client for client in _KNOWN}

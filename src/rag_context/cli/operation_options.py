"""The options of a command, made from the fields of the operation that it runs.

Each field is one option, `--session-id` for `session_id`; `NAMES` says where the command line has another name or help.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from inspect import Parameter
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, Union, get_args, get_origin

import typer
from pydantic.fields import FieldInfo

from rag_context.api.operations import Operation
from rag_context.api.parsing import read_fields
from rag_context.api.wire import Vocabulary, WireRequest
from rag_context.cli.command_line import ExitCode
from rag_context.cli.console import safe
from rag_context.cli.options import with_options
from rag_context.domain.documents import FILTERED
from rag_context.errors import FieldError, InvalidInputError
from rag_context.settings import Settings

Fields: TypeAlias = Mapping[str, Any]
"""What was typed, by the Python names of the request's fields; a field that was not typed is missing."""

Request = TypeVar("Request", bound=WireRequest)


@dataclass(frozen=True, slots=True)
class Name:
    """How the command line names a field. What is None follows from the field."""

    flag: str | None = None
    metavar: str | None = None
    help: str | None = None
    is_argument: bool = False
    is_json: bool = False
    """Whether a value is typed as JSON."""


_AGO = re.compile(r"(\d{1,6})\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}

_EXACTLY_ONE = "Name exactly one of"

_QUESTION = Name(None, "QUESTION", "A question, or an exact name or error code.", is_argument=True)

NAMES: Mapping[str, Name] = {
    "query": _QUESTION,
    "document_id": Name(None, "DOCUMENT_ID", "Id of a document, as search and list print it.", is_argument=True),
    "session_id": Name("--session", "ID", "Session that the documents belong to."),
    "content_type": Name("--type", "KIND", "Kind of content: chat, decision, code or documentation."),
    "agents": Name("--by", "AGENT", "Only what this agent produced; may be given several times."),
    "tags": Name("--tag", "TAG", "A tag; may be given several times."),
    **{name: Name(None, "NAME", field.option) for name, field in FILTERED.items()},
    "agent": Name(None, "NAME", "Name for the statistics; default cli."),
    "source": Name(None, "SOURCE", "A source; ending in * a prefix."),
    "since": Name(None, "WHEN", "Only what was said or written since: 7d, 2026-01-31 or RFC 3339."),
    "until": Name(None, "WHEN", "Only what was said or written before this time."),
    "include_superseded": Name("--superseded", None, "Also versions that were corrected; they are marked."),
    "as_of": Name(None, "WHEN", "Search as of this time: nothing that was said or written later."),
    "min_trust": Name(None, None, "Only what has this origin, or a more trusted one."),
    "cursor": Name(None, "CURSOR", "Continue after the previous page."),
    "min_score": Name(None, "SCORE", "Minimum score, 0 to 1; 0 returns everything."),
    "max_tokens": Name(None, "N", "Token budget of all passages together."),
    "project": Name(None, "NAME", "Documents of this project instead of the agents' own memory."),
    "branch": Name(None, "NAME", "Branch of the project."),
    "path_hash": Name(None, "HASH", "Path hash of the project's repository."),
    "time_range": Name("--range", None, "Time range."),
}
"""By the Python name of the field, for all operations."""


def with_fields(
    operation: Operation[Any, Any], names: Mapping[str, Name] = {}, *, only: Collection[str] | None = None
) -> Callable[[Callable[..., ExitCode | None]], Callable[..., None]]:
    """Make a command of a function: an option for each field of the operation, before the function's own parameters.

    The function takes the `Fields` that were typed as its argument `fields`, and others as `with_options` says. `names`
    differ from `NAMES` here; `only` these fields have an option, None: all that the operation has on the command line.
    """
    order = {name: place for place, name in enumerate(names)}

    def decorate(run: Callable[..., ExitCode | None]) -> Callable[..., None]:
        offered = [name for name in command_fields(operation) if only is None or name in only]
        fields = sorted(offered, key=lambda name: order.get(name, len(order)))
        chosen = {name: _name(name, names) for name in fields}
        options = [parameter(name, operation.request.model_fields[name], each) for name, each in chosen.items()]

        def read(typed: Mapping[str, Any]) -> Fields:
            return {name: _read(value, name, chosen[name]) for name, value in typed.items() if _is_typed(value)}

        return with_options(run, {"fields": (options, read)})

    return decorate


def command_fields(operation: Operation[Any, Any]) -> list[str]:
    return [name for name in operation.request.model_fields if f"cli.{name}" not in operation.omitted]


def read_typed(
    request: type[Request],
    fields: Fields,
    settings: Settings | None = None,
    names: Mapping[str, Name] = {},
    now: datetime | None = None,
) -> Request:
    """The request that was typed, in the vocabulary of the settings; times such as `7d` are counted from now.

    Raises: InvalidInputError (with a line for each invalid value, under the name of its option).
    """
    now = now or datetime.now(UTC)
    model = request
    if settings is not None:
        words = settings.vocabulary
        model = request.with_vocabulary(Vocabulary.extended(words.content_types, words.categories))
    read = {
        model.model_fields[name].alias or name: parse_time(value, _shown(name, _name(name, names)), now)
        if _plain(model.model_fields[name].annotation) is datetime
        else value
        for name, value in fields.items()
    }
    try:
        return read_fields(model, read)
    except InvalidInputError as error:
        sentences = (_as_typed(detail, model, names) for detail in error.details)
        raise InvalidInputError("\n".join(sentences), error.details) from None


def json_of(text: str | None, option: str) -> object:
    """What a JSON option says. Raises: InvalidInputError."""
    if text is None:
        return None
    try:
        value: object = json.loads(text, object_pairs_hook=partial(_distinct, option))
    except (ValueError, RecursionError):
        raise InvalidInputError(f"{option} must be valid JSON.") from None
    return value


def _distinct(option: str, pairs: list[tuple[str, object]]) -> dict[str, object]:
    """An object, whose keys must differ: JSON would keep the last of two, and lose the other."""
    found: dict[str, object] = {}
    for key, value in pairs:
        if key in found:
            raise InvalidInputError(f"{option} has {safe(key)!r} twice.")
        found[key] = value
    return found


def parse_time(text: str, option: str, now: datetime) -> datetime:
    """Read `7d`, `2026-01-31` or `2026-01-31T12:00:00+01:00`; without an offset it is this machine's time.

    Raises: InvalidInputError (it is none of these).
    """
    text = text.strip()
    try:
        if ago := _AGO.fullmatch(text.lower()):
            return (now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})).astimezone(UTC)
        return datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidInputError(
            f"{option} {text!r} is not a moment: write 7d, 2026-01-31 or 2026-01-31T12:00:00Z."
        ) from None


def parameter(name: str, field: FieldInfo, chosen: Name) -> Parameter:
    kind, metavar = _kind(field.annotation)
    text = _help(name, field, chosen)
    shown = chosen.metavar or metavar
    is_required = field.is_required()
    info: Any
    if chosen.is_argument:
        many = "..." if get_origin(kind) is list else ""
        info = typer.Argument(metavar=shown if is_required else f"[{shown}{many}]", help=text, show_default=False)
    else:
        info = typer.Option(_flag(name, chosen), metavar=shown, help=text)
    default: Any = Parameter.empty if is_required else False if kind is bool else None
    annotation = Annotated[kind if is_required or kind is bool else kind | None, info]  # type: ignore[valid-type]
    return Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def _name(name: str, names: Mapping[str, Name]) -> Name:
    return names.get(name) or NAMES.get(name) or Name()


def _is_typed(value: Any) -> bool:
    return value is not None and value is not False and value != []


def _read(value: Any, name: str, chosen: Name) -> Any:
    """The value of an option; what was typed as JSON is read, and may be null or false."""
    if not chosen.is_json:
        return value
    return json_of(value, _shown(name, chosen))


def _shown(name: str, chosen: Name) -> str:
    return str(chosen.metavar) if chosen.is_argument else _flag(name, chosen)


def _flag(name: str, chosen: Name) -> str:
    return chosen.flag or f"--{name.replace('_', '-')}"


def _kind(annotation: Any) -> tuple[Any, str | None]:
    """The type that the command line reads, and what stands for a value in the help."""
    plain = _plain(annotation)
    if get_origin(plain) is list:
        return list[str], None
    if get_origin(plain) is Literal:
        return plain, "|".join(map(str, get_args(plain)))
    if plain in (bool, int, float):
        return plain, None if plain is bool else "N"
    return str, "TEXT"


def _plain(annotation: Any) -> Any:
    """The type behind `Annotated`, and beside None; the first of several."""
    while get_origin(annotation) in (Annotated, Union, UnionType):
        annotation = next(each for each in get_args(annotation) if each is not NoneType)
    return annotation


def _help(name: str, field: FieldInfo, chosen: Name) -> str:
    found = {bound: getattr(each, bound) for each in field.metadata for bound in ("ge", "le") if hasattr(each, bound)}
    text = (chosen.help or field.description or name).rstrip(".")
    if len(found) == 2 and chosen.metavar != "SCORE":
        text += f", {found['ge']} to {found['le']}"
    has_default = isinstance(field.default, int | str) and not isinstance(field.default, bool)
    if has_default and "default" not in text:
        text += f"; default {field.default}"
    return f"{text}."


def _as_typed(detail: FieldError, model: type[WireRequest], names: Mapping[str, Name]) -> str:
    """A field error with the option that was typed in place of the name on the wire."""
    wire = detail.field.partition("[")[0]
    if not wire and model.exactly_one_of and detail.message.startswith(_EXACTLY_ONE):
        return f"{_EXACTLY_ONE} {' or '.join(_shown(name, _name(name, names)) for name in model.exactly_one_of)}"
    for name, field in model.model_fields.items():
        chosen = _name(name, names)
        if (field.alias or name) == wire and not chosen.is_argument and detail.message.startswith(detail.field):
            return f"{_flag(name, chosen)}{detail.message.removeprefix(detail.field)}"
    return detail.message

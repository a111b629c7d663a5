"""What collections, their documents and connections may be called."""

NAME_CHARS = 300
ID_CHARS = 1024
CONNECTION_PATTERN = "^[a-z][a-z0-9_-]{0,63}$"
DOTS = (".", "..")
"""No address can hold these, however they are written: clients take them for steps."""


def name_problem(value: object) -> str | None:
    """Why a collection cannot be called so, as the end of "name ..."; None where it can."""
    return _problem(value, NAME_CHARS)


def id_problem(value: object) -> str | None:
    """Why a document cannot have this id, as the end of "id ..."; None where it can."""
    return _problem(value, ID_CHARS)


def _problem(value: object, most: int) -> str | None:
    if not isinstance(value, str):
        return "must be a string"
    if not value.strip():
        return "must not be empty"
    if len(value) > most:
        return f"too long (max {most} characters)"
    if not value.isprintable() and any(_is_control(sign) for sign in value):
        return "must not hold control characters or half a surrogate pair"
    return "must not be . or .., which no address can hold" if value in DOTS else None


def _is_control(sign: str) -> bool:
    number = ord(sign)
    return number < 0x20 or 0x7F <= number < 0xA0 or 0xD800 <= number < 0xE000

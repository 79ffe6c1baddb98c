"""What may stand in the name of a tenant and in a user id.

Both become parts of keys in other stores (`{tenant}#{user_id}` in DynamoDB) and of paths
(`/users/{user_id}/…`), so what would break those is refused at the door, with a reason that the
caller can read. The database refuses the same again (`rbac.constraints`).

Upper and lower case are different names. Unicode is brought to NFC, so that an `é` typed on one
keyboard is the `é` of another.
"""

from __future__ import annotations

import re
import unicodedata

MAX_CHARS = 128
DEFAULT_TENANT = "default"
# DynamoDB keeps the costs of everybody under this key.
RESERVED = "SYSTEM"

# `#` joins tenant and user id; `/` would end a path segment, and joins them in a username.
_SEPARATORS = "#/"
# Tenants stand in Redis keys as well, where these move a key to another slot, match the keys
# of others, or end a prefix.
_KEY_SYNTAX = "{}*?[]\\:"
# Control, format (invisible), surrogate, unassigned; line and paragraph separators.
_UNPRINTABLE = {"Cc", "Cf", "Cs", "Cn", "Zl", "Zp"}
# What decoders put in the place of bytes that they can't read: it stands for many names.
_REPLACEMENT = "\ufffd"
_PLAIN = re.compile(r"[A-Za-z0-9_@.+-]{1,128}")


class BadName(ValueError):
    """The name can't be used; the message says why."""


def normal(text: str) -> str:
    """Return `text` in the one form in which names are kept and compared (NFC)."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def user_id(text: str) -> str:
    """Return `text` as a user id; raise `BadName` when it can't be one.

    `"ana"`, `"ana@acme.example"`, `"auth0|5f7c"`, `"arn:aws:…"` without slashes, `"Señora Ana"`.
    """
    return _checked(text, _SEPARATORS)


def tenant(text: str) -> str:
    """Return `text` as the name of a tenant; raise `BadName` when it can't be one."""
    return _checked(text, _SEPARATORS + _KEY_SYNTAX)


def split(username: str) -> tuple[str, str]:
    """Return tenant and user id of `"acme/ana"`, or of `"ana"` in the default tenant.

    Raises `BadName`.
    """
    first, slash, second = username.partition("/")
    return (tenant(first), user_id(second)) if slash else (DEFAULT_TENANT, user_id(first))


def joined(tenant_name: str, user: str) -> str:
    """Return the username: what `split` takes apart."""
    return user if tenant_name == DEFAULT_TENANT else f"{tenant_name}/{user}"


def _checked(text: str, refused: str) -> str:
    if len(text) > MAX_CHARS:
        raise BadName(f"May be at most {MAX_CHARS} characters long.")
    name = normal(text)
    if reason := _fault(name, refused):
        raise BadName(reason)
    return name


def _fault(name: str, refused: str) -> str | None:
    if not name or name in {".", ".."}:
        return "May not be empty, nor one or two dots."
    if len(name) > MAX_CHARS:
        return f"May be at most {MAX_CHARS} characters long."
    if name != name.strip():
        return "May not begin or end with white space."
    if name.casefold() == RESERVED.casefold():
        return f"{RESERVED} is reserved."
    if not _PLAIN.fullmatch(name):
        return _bad_character(name, refused)
    return None


def _bad_character(name: str, refused: str) -> str | None:
    for character in name:
        if character in refused:
            return f"May not contain {' '.join(refused)}"
        if character == _REPLACEMENT:
            return "May not contain U+FFFD, which stands for what could not be read."
        if unicodedata.category(character) in _UNPRINTABLE:
            return f"May not contain U+{ord(character):04X}, which can't be seen."
    return None

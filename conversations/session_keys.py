"""The names of a live session's keys in Redis.

All keys of a session share one hash tag, so that they stand in one slot of a cluster and one
script may change them together. The tag carries the tenant where that is not `default`, and
neither part may hold what separates them, so that no two sessions share a key:

    SessionKey("default", "s-81").session        session:{s-81}
    SessionKey("acme", "s-81").file("f:1")       file:{acme#s-81}:f:1
"""

from __future__ import annotations

import re
from typing import NamedTuple

from django.conf import settings

from config.errors import Problem
from rbac import names

ID_MAX_CHARS = 200
# Braces end a hash tag, `#` joins tenant and session, `/` ends a segment of an address, and
# nobody sees the difference that control characters make.
_REFUSED = re.compile("[{}#/\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\ufffd]")


class BadId(Problem):
    """The id of a session or file can't be used; the detail says why."""

    status = 422
    code = "bad_id"
    title = "The id can't be used"


class SessionKey(NamedTuple):
    """One session of one tenant; every name of a key raises `BadId` where an id can't be one."""

    tenant: str
    session_id: str

    @property
    def tag(self) -> str:
        """What stands between the braces: `s-81`, or `acme#s-81`."""
        session_id = checked_id("session_id", self.session_id)
        try:
            tenant = names.tenant(self.tenant)
        except names.BadName as error:
            raise BadId(f"tenant: {error}") from error
        return session_id if tenant == names.DEFAULT_TENANT else f"{tenant}#{session_id}"

    @property
    def session(self) -> str:
        """The session itself."""
        return self._key("session")

    @property
    def checkpoint(self) -> str:
        """The checkpoint of its clarification loop."""
        return self._key("checkpoint")

    @property
    def active_file(self) -> str:
        """The id of its newest upload."""
        return self._key("file:active")

    @property
    def file_index(self) -> str:
        """Which files it has, and how many bytes each takes."""
        return self._key("file:index")

    @property
    def files(self) -> str:
        """What the keys of its files begin with."""
        return self._key("file") + ":"

    def file(self, file_id: str) -> str:
        """Return the key of one uploaded file."""
        return self.files + checked_id("file_id", file_id)

    def unfinished_file(self, token: str) -> str:
        """Return the key of an upload that is not whole yet."""
        return f"{self._key('file:new')}:{token}"

    def _key(self, name: str) -> str:
        return f"{settings.SESSION_KEY_PREFIX}{name}:{{{self.tag}}}"


def checked_id(field: str, value: str) -> str:
    """Return the id of a session or file as it is; raise `BadId` where it can't be one.

    Texts of 1 to 200 characters; a number is none, since `1` and `"1"` would be one session.
    """
    if reason := _fault(value):
        raise BadId(f"{field}: {reason}", errors={field: [reason]})
    return value


def _fault(value: object) -> str | None:
    if not isinstance(value, str):
        return "Must be a text."
    if not 0 < len(value) <= ID_MAX_CHARS:
        return f"Must be 1 to {ID_MAX_CHARS} characters long."
    if value in {".", ".."} or value != value.strip():
        return "May not be one or two dots, nor begin or end with white space."
    if _REFUSED.search(value):
        return "May not contain { } # / or what can't be seen."
    return None

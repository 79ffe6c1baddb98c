"""What can be refused about uploaded files, each with a stable code.

| status | code | why |
|---|---|---|
| 404 | `file_not_found` | never stored, expired, deleted, or lost with Redis |
| 413 | `file_too_large` | over a limit; `setting` and the detail name it |
| 422 | `file_…` | can't be read; the detail says where, and what to do |
| 503 | `unavailable` | Redis is away, or enough files are being read just now |
| 507 | `storage_full` | Redis has no room for files |
"""

from __future__ import annotations

from config.errors import NotFound, Problem, Unavailable
from conversations.tables import TableRefused


class FileNotFound(NotFound):
    """The session has no such file, or no longer."""

    code = "file_not_found"

    def __init__(self) -> None:
        super().__init__("The session has no such file, or no longer; upload it again.")


class FileTooLarge(Problem):
    """The file is over a limit: `setting` names it."""

    status = 413
    code = "file_too_large"
    title = "The file is too large"


class FileUnreadable(Problem):
    """The file can't be read; its own `code` says why: see `of`."""

    status = 422
    code = "file_unreadable"
    title = "The file can't be read"


class StorageFull(Problem):
    """Redis has no room for a file, or would have to drop something else for it."""

    status = 507
    code = "storage_full"
    title = "There is no room for files"

    def __init__(self) -> None:
        super().__init__(
            "There is no room for another file now (UPLOAD_REDIS_SHARE); conversations are not "
            "touched by it. Try again later, or delete files.",
            headers={"Retry-After": "60"},
        )


class UploadsUnavailable(Unavailable):
    """Files can't be stored or read for the moment."""

    def __init__(self, detail: str = "Files are not available for the moment.") -> None:
        super().__init__(detail, headers={"Retry-After": "2"})


def problem_of(refused: TableRefused) -> Problem:
    """Return the answer to a refusal of the reader's."""
    if refused.setting:
        return FileTooLarge(refused.sentence, setting=refused.setting)
    problem = FileUnreadable(refused.sentence)
    problem.code = refused.code
    return problem

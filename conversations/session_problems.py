"""What can be refused about live sessions, each with a stable code."""

from __future__ import annotations

from collections.abc import Sequence

from config.errors import NotFound, Problem, Unavailable


class SessionNotFound(NotFound):
    """Never opened, expired, ended or somebody else's: the four are never told apart."""

    code = "session_not_found"

    def __init__(self) -> None:
        super().__init__("There is no such session, or no longer; PUT it to open it.")


class CheckpointNotFound(NotFound):
    """The session has no checkpoint, or no longer."""

    code = "checkpoint_not_found"

    def __init__(self) -> None:
        super().__init__("The session has no checkpoint, or no longer.")


class CheckpointsUnavailable(Unavailable):
    """Checkpoints stand in Redis alone, and that does not answer."""

    def __init__(self) -> None:
        super().__init__(
            "Checkpoints are not available for the moment.", headers={"Retry-After": "2"}
        )


class OutOfTurn(Problem):
    """The message can't follow the one before it; `waiting_for` names calls without a result.

    Two clients of one session get in each other's way like this: the second waits, or asks for
    the session again.
    """

    status = 409
    code = "out_of_turn"
    title = "The message can't follow the one before it"

    def __init__(self, detail: str, waiting_for: Sequence[str] = ()) -> None:
        headers = {"Retry-After": "1"} if waiting_for else None
        super().__init__(detail, headers=headers, waiting_for=list(waiting_for))


class MessageConflict(Problem):
    """The message_id is taken, by a message with another content."""

    status = 409
    code = "message_conflict"
    title = "The message is stored with another content"

    def __init__(self, message_id: str) -> None:
        super().__init__(
            f"The session has a message {message_id} with another content; a new message needs "
            "an id of its own.",
            message_id=message_id,
        )


class ThreadConflict(Problem):
    """The session sits on another thread (`thread_id` says on which), and stays there."""

    status = 409
    code = "thread_conflict"
    title = "The session sits on another thread"

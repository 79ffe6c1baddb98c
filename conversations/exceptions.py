"""What can be refused about threads and turns, each with a stable code."""

from __future__ import annotations

from config.errors import NotFound, Problem


class ThreadNotFound(NotFound):
    """Absent, deleted or somebody else's."""

    def __init__(self) -> None:
        super().__init__("There is no such thread.")


class TurnNotFound(NotFound):
    """The thread has no such turn."""

    def __init__(self) -> None:
        super().__init__("The thread has no such turn.")


class ArtifactNotFound(NotFound):
    """The thread has no artifact of that number."""

    def __init__(self) -> None:
        super().__init__("The thread has no such artifact; numbers look like t7.2.")


class TurnConflict(Problem):
    """The turn is stored already, with another body (`stored`: its position and status)."""

    status = 409
    code = "turn_conflict"
    title = "The turn is stored with another body"


class TurnElsewhere(Problem):
    """The turn is stored already, in another thread of the same person."""

    status = 409
    code = "turn_elsewhere"
    title = "The turn is stored in another thread"


class StalePosition(Problem):
    """The turn would not get the position that the caller expects."""

    status = 409
    code = "stale_position"
    title = "The thread has moved on"


class PositionNotReached(Problem):
    """The thread has not got as far as `min_position`."""

    status = 409
    code = "position_not_reached"
    title = "The thread has not got that far"


class AgentTypeRequired(Problem):
    """A thread's first turn must say what kind of agent it is with."""

    status = 422
    code = "agent_type_required"
    title = "A first turn needs its agent_type"

    def __init__(self) -> None:
        super().__init__(
            "The first turn of a thread names its agent_type: chat or copilot.",
            errors={"agent_type": ["Needed on the first turn of a thread."]},
        )


class TooLarge(Problem):
    """Something is over its limit; the detail names the limit and its number."""

    status = 413
    code = "too_large"
    title = "Too large"

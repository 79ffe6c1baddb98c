"""A turn as it comes in, by HTTP, from an agent's run or from an import: fields, rules, limits.

Lengths are checked against the settings, each refusal naming its number.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Self

from django.conf import settings
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from config.errors import Invalid
from config.plain_json import dump_bytes, to_plain
from conversations.artifact_derivation import derive_artifacts
from conversations.artifacts import (
    Artifact,
    ArtifactError,
    ArtifactLimits,
    check_artifacts,
    to_stored,
)
from conversations.exceptions import TooLarge
from conversations.turns import AgentType, Status, TurnBody

Short = Annotated[str, StringConstraints(max_length=200)]
Title = Annotated[str, StringConstraints(max_length=4_000)]
MetadataKey = Annotated[str, StringConstraints(min_length=1, max_length=64)]
MetadataValue = Annotated[str, StringConstraints(max_length=500)]


class Body(BaseModel):
    """A JSON object or a query string: unknown fields are refused, never ignored."""

    # What was sent is somebody's data: it has no place in an error that ends up in a log.
    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)


# pydantic would take "1700000000" for a time, too.
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}[T ]")


def _few_keys(metadata: dict[str, str]) -> dict[str, str]:
    limit = settings.MAX_METADATA_KEYS
    if len(metadata) > limit:
        raise ValueError(f"metadata may have {limit} keys (MAX_METADATA_KEYS)")
    return metadata


def _as_text(value: Any) -> Any:
    if not isinstance(value, datetime) and not (isinstance(value, str) and _DATE.match(value)):
        raise ValueError("must be an ISO 8601 time with an offset")
    return value


def _in_utc(time: datetime) -> datetime:
    try:
        return time.astimezone(UTC)
    except OverflowError:
        raise ValueError("is outside the years that can be kept") from None


Metadata = Annotated[dict[MetadataKey, MetadataValue], AfterValidator(_few_keys)]
Time = Annotated[AwareDatetime, BeforeValidator(_as_text), AfterValidator(_in_utc)]


class TurnContent(Body):
    """What a turn holds, whoever it is for and wherever it goes."""

    agent_type: AgentType | None = Field(None, description="Needed on a thread's first turn.")
    query: str = Field(description="What was asked; may be empty beside a file artifact.")
    answer: str = Field("", description="What was answered, as text or Markdown.")
    artifacts: list[Artifact] | None = Field(
        None, description="What was built; left out, it is derived from response_payload."
    )
    response_payload: Any = Field(
        None, description="Any JSON, kept for the transcript: rows, columns, raw chart specs."
    )
    status: Status = Field(
        Status.COMPLETE, description="pending may be put again; the others are final."
    )
    waiting_for: Short | None = Field(None, description="Whom or what a pending turn waits for.")
    error_code: Short | None = Field(None, description="Why a failed turn failed.")
    revision: int = Field(
        0, ge=0, le=2**31 - 1, description="Must grow with each PUT of a pending turn."
    )
    session_id: Short | None = Field(None, description="The live session it was part of.")
    created_at: Time | None = Field(
        None, description="ISO 8601 with an offset; now if left out, never in the future."
    )

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.waiting_for is not None and self.status is not Status.PENDING:
            raise ValueError("waiting_for goes with status pending")
        if self.error_code is not None and self.status is not Status.FAILED:
            raise ValueError("error_code goes with status failed")
        return self

    def to_body(self) -> TurnBody:
        """Return the turn, its artifacts checked or, where none were sent, derived.

        Raises `TooLarge` and `Invalid`.
        """
        self._check_sizes()
        limits = ArtifactLimits(count=settings.MAX_ARTIFACTS, bytes=settings.MAX_ARTIFACT_BYTES)
        sent = self._sent(limits)
        body = TurnBody(
            query=self.query,
            answer=self.answer,
            artifacts=sent,
            derived=_derived(self.response_payload, limits) if sent is None else (),
            response_payload=self.response_payload,
            status=self.status,
            agent_type=self.agent_type,
            waiting_for=self.waiting_for,
            error_code=self.error_code,
            revision=self.revision,
            session_id=self.session_id,
        )
        if not (self.query.strip() or body.has_file()):
            message = "may be empty only beside a file artifact"
            raise Invalid(f"query {message}.", errors={"query": [message]})
        return body

    def _sent(self, limits: ArtifactLimits) -> list[dict[str, Any]] | None:
        if self.artifacts is None:
            return None
        try:
            check_artifacts(self.artifacts, self.response_payload, limits)
        except ArtifactError as error:
            raise _artifact_problem(error) from error
        return to_stored(self.artifacts)

    def _check_sizes(self) -> None:
        within("query", len(self.query), "MAX_QUERY_CHARS", "characters")
        within("answer", len(self.answer), "MAX_ANSWER_CHARS", "characters")
        if self.response_payload is not None:
            size = len(dump_bytes(self.response_payload))
            within("response_payload", size, "MAX_PAYLOAD_BYTES", "bytes")


class TurnIn(TurnContent):
    """A turn as the agent sends it."""

    user_id: str | None = Field(
        None, description="For whom: needed from agents, here or in the query string."
    )
    expected_position: int | None = Field(
        None, ge=1, le=2**31 - 1, description="Refuse (409) if the turn would get another one."
    )


def within(field: str, size: int, setting: str, unit: str) -> None:
    """Raise `TooLarge` when `size` is over the number of `setting`."""
    limit = getattr(settings, setting)
    if size > limit:
        message = f"{field} may have {limit} {unit} ({setting}); this one has {size}."
        raise TooLarge(message, errors={field: [message]})


def _derived(payload: Any, limits: ArtifactLimits) -> list[dict[str, Any]]:
    if not isinstance(payload, dict):
        return []
    # A spec that is sent as JSON text can hold, once read, what no store can.
    derived: list[dict[str, Any]] = to_plain(derive_artifacts(payload, limits))
    return derived


_SETTING_OF = {
    "too_many_artifacts": "MAX_ARTIFACTS",
    "artifact_too_large": "MAX_ARTIFACT_BYTES",
}


def _artifact_problem(error: ArtifactError) -> Invalid | TooLarge:
    where = ".".join(str(part) for part in error.location)
    problem_type = TooLarge if error.code == "artifact_too_large" else Invalid
    setting = _SETTING_OF.get(error.code)
    message = f"{error.message} ({setting})" if setting else error.message
    problem = problem_type(message, errors={where: [message]})
    problem.code = error.code
    return problem

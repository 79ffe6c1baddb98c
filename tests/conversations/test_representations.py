"""What the API answers has exactly the fields that its documentation names."""

import pytest

from conversations.api import representations as shapes

SQL = {"kind": "sql", "sql": "SELECT 1"}


@pytest.fixture
def answers(agent, thread_id):
    written = agent.put_turn(thread_id, artifacts=[SQL]).json()
    address = f"threads/{thread_id}"
    return {
        shapes.TurnWritten: written,
        shapes.ThreadOut: agent.get(address).json(),
        shapes.TurnOut: agent.get(f"{address}/turns/{written['turn_id']}").json(),
        shapes.ArtifactOut: agent.get(f"{address}/artifacts/t1.1").json(),
        shapes.ContextOut: agent.context(thread_id).json(),
    }


def test_every_field_is_documented_and_every_documented_field_is_there(answers):
    for shape, answer in answers.items():
        documented = set(shape.model_fields) - (
            {"messages"} if shape is shapes.ContextOut else set()
        )
        assert set(answer) == documented, shape


def test_every_answer_is_valid_by_its_documentation(answers):
    for shape, answer in answers.items():
        shape.model_validate(answer)

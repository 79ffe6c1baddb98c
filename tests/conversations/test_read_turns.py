"""GET /threads/{thread_id}/turns and /artifacts: the transcript and what was built."""

import uuid

import pytest
from django.test import override_settings

SPEC = {"mark": "bar", "encoding": {"x": {"field": "region"}, "y": {"field": "revenue"}}}
SQL = {"kind": "sql", "sql": "SELECT region, SUM(amount) AS revenue FROM sales GROUP BY 1"}
CHART = {"kind": "chart", "chart_type": "bar", "x": "region", "y": ["revenue"], "data": 1,
         "spec_path": "/charts/0/spec"}  # fmt: skip


@pytest.fixture
def built(agent, thread_id):
    """A thread of three turns; the first and third built SQL and a chart."""
    payload = {"rows": [["North", 4.1]], "charts": [{"spec": SPEC}]}
    agent.put_turn(thread_id, artifacts=[SQL, CHART], response_payload=payload)
    agent.put_turn(thread_id, query="thanks", answer="Any time.")
    agent.put_turn(thread_id, artifacts=[SQL, CHART], response_payload=payload)
    return thread_id


def numbers(answer):
    assert answer.status_code == 200, answer.content
    return [found["number"] for found in answer.json()["results"]]


def test_a_transcript_is_read_in_pages_from_a_position_on(agent, thread_id):
    for n in range(5):
        agent.put_turn(thread_id, query=f"q{n}")

    first = agent.get(f"threads/{thread_id}/turns", limit=2).json()
    second = agent.client.get(first["next"]).json()
    last = agent.get(f"threads/{thread_id}/turns", after_position=4).json()

    assert [turn["position"] for turn in first["results"] + second["results"]] == [1, 2, 3, 4]
    assert [turn["query"] for turn in last["results"]] == ["q4"]
    assert last["next"] is None


@override_settings(MAX_PAGE_BYTES=10_000)
def test_a_page_of_large_turns_is_shorter_and_the_next_goes_on(agent, thread_id):
    for n, size in enumerate([4_000, 4_000, 4_000, 50_000, 10]):
        agent.put_turn(thread_id, query=f"q{n}", response_payload={"text": "a" * size})

    answer, pages = agent.get(f"threads/{thread_id}/turns").json(), []
    pages.append([turn["position"] for turn in answer["results"]])
    while answer["next"]:
        answer = agent.client.get(answer["next"]).json()
        pages.append([turn["position"] for turn in answer["results"]])

    assert pages == [[1, 2], [3], [4], [5]]


def test_a_transcript_takes_three_queries_whatever_its_length(
    agent, thread_id, django_assert_num_queries
):
    for _ in range(5):
        agent.put_turn(thread_id)
    agent.get(f"threads/{thread_id}/turns")

    with django_assert_num_queries(3):
        agent.get(f"threads/{thread_id}/turns")


def test_a_turn_is_read_whole_by_its_id(agent, thread_id):
    turn_id = uuid.uuid4()
    agent.put_turn(thread_id, turn_id, answer="North.", artifacts=[SQL], session_id="s-81",
                   response_payload={"rows": [[1]]})  # fmt: skip

    turn = agent.get(f"threads/{thread_id}/turns/{turn_id}").json()

    assert (turn["answer"], turn["session_id"]) == ("North.", "s-81")
    assert turn["artifacts"] == [{"number": "t1.1", **SQL}]
    assert turn["response_payload"] == {"rows": [[1]]}


def test_a_turn_of_another_thread_is_a_404(agent, thread_id):
    turn_id = uuid.uuid4()
    agent.put_turn(uuid.uuid4(), turn_id)
    agent.put_turn(thread_id)

    assert agent.get(f"threads/{thread_id}/turns/{turn_id}").status_code == 404


def test_artifacts_are_listed_in_order_with_their_numbers(agent, built):
    assert numbers(agent.get(f"threads/{built}/artifacts")) == ["t1.1", "t1.2", "t3.1", "t3.2"]


def test_artifacts_are_listed_by_kind(agent, built):
    assert numbers(agent.get(f"threads/{built}/artifacts", kind="chart")) == ["t1.2", "t3.2"]
    assert numbers(agent.get(f"threads/{built}/artifacts", kind="dashboard")) == []


def test_a_kind_that_is_only_quoted_in_sql_is_not_found(agent, thread_id):
    agent.put_turn(thread_id, artifacts=[{"kind": "sql", "sql": """SELECT '"kind":"chart"'"""}])

    assert numbers(agent.get(f"threads/{thread_id}/artifacts", kind="chart")) == []


def test_the_latest_artifact_is_the_newest_of_its_kind(agent, built):
    assert numbers(agent.get(f"threads/{built}/artifacts", latest="true")) == ["t3.2"]
    assert numbers(agent.get(f"threads/{built}/artifacts", latest="true", kind="sql")) == ["t3.1"]


def test_artifacts_are_paged(agent, thread_id):
    for _ in range(3):
        agent.put_turn(thread_id, artifacts=[SQL])

    first = agent.get(f"threads/{thread_id}/artifacts", limit=2).json()
    second = agent.client.get(first["next"])

    assert [found["number"] for found in first["results"]] == ["t1.1", "t2.1"]
    assert numbers(second) == ["t3.1"]


def test_one_artifact_comes_with_its_sql_or_its_raw_spec(agent, built):
    chart = agent.get(f"threads/{built}/artifacts/t1.2").json()
    sql = agent.get(f"threads/{built}/artifacts/t1.1").json()

    assert chart["artifact"]["chart_type"] == "bar"
    assert chart["spec"] == SPEC
    assert sql["artifact"]["sql"] == SQL["sql"]


@pytest.mark.parametrize(
    "number", ["t9.1", "t1.9", "t1.0", "t0.1", "x", "t1", "t1.1.1", "t99999999999.1"]
)
def test_an_artifact_that_is_not_there_is_a_404(agent, built, number):
    assert agent.get(f"threads/{built}/artifacts/{number}").status_code == 404


def test_artifacts_are_derived_from_the_payload_when_none_are_sent(agent, thread_id):
    agent.put_turn(
        thread_id,
        response_payload={"sql": SQL["sql"], "columns": ["region", "revenue"],
                          "rows": [["North", 4.1]], "charts": [{"spec": SPEC}]},
    )  # fmt: skip

    found = agent.get(f"threads/{thread_id}/artifacts").json()["results"]

    assert [one["artifact"]["kind"] for one in found] == ["sql", "chart"]
    assert found[0]["artifact"]["sql"] == SQL["sql"]
    assert found[1]["artifact"]["spec_path"] == "/charts/0/spec"


def test_an_empty_list_of_artifacts_derives_nothing(agent, thread_id):
    agent.put_turn(thread_id, artifacts=[], response_payload={"sql": SQL["sql"]})

    assert numbers(agent.get(f"threads/{thread_id}/artifacts")) == []

"""Prompts from Langfuse and traces to it, over HTTP; and that a fold never depends on them."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import threading
import uuid

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from pytest_httpserver import HTTPServer
from werkzeug import Response

from conversations import langfuse_prompts
from conversations.chat_completions import Usage
from conversations.conversation_summarizer import ConversationSummarizer, get_summarizer
from conversations.langfuse_prompts import LangfuseConnection, LangfusePrompts, LangfuseTracer
from conversations.summaries import SummarizationFailed
from conversations.summary_prompt import built_in_prompt
from tests.conversations.folds_to_summarize import THREAD, request, turn
from tests.conversations.llm_server import (
    LLMServer,
    RawServer,
    dribbles_its_head,
    refused_address,
    silent,
)

PROMPTS = "/api/public/v2/prompts/conversation_summarizer"
TRACES = "/api/public/otel/v1/traces"
NOTES = "Goals:\n- Revenue by region [t1]"
TEXT = "Summarise: {{summary}} {{turns}}"
SECRET = "sk-lf-" + "a1B2" * 8


class Langfuse:
    """A Langfuse host of one test: `shows` a prompt, keeps the spans it is sent."""

    def __init__(self, http):
        # What a client of another test still sends does not come here.
        path = f"/{uuid.uuid4()}"
        self.host = f"http://127.0.0.1:{http.port}{path}"
        self.asked = 0
        self.spans = []
        self.arrived = threading.Event()
        self.status = 200
        self.shown = None
        http.expect_request(path + PROMPTS).respond_with_handler(self._prompt)
        http.expect_request(path + TRACES, method="POST").respond_with_handler(self._traces)

    def shows(self, prompt, version=3):
        kind = "text" if isinstance(prompt, str) else "chat"
        self.shown = {"name": "conversation_summarizer", "version": version, "type": kind, "prompt": prompt,
                      "config": {}, "labels": ["production"], "tags": []}  # fmt: skip

    def _prompt(self, request):
        self.asked += 1
        if self.status != 200:
            return Response('{"message": "no"}', self.status, content_type="application/json")
        return Response(json.dumps(self.shown), 200, content_type="application/json")

    def _traces(self, request):
        data = request.get_data()
        sent = ExportTraceServiceRequest.FromString(
            gzip.decompress(data) if request.headers.get("Content-Encoding") == "gzip" else data
        )
        self.spans += [
            s for r in sent.resource_spans for scope in r.scope_spans for s in scope.spans
        ]
        self.arrived.set()
        return Response(b"", 200, content_type="application/x-protobuf")


@pytest.fixture(scope="module")
def http():
    with HTTPServer(host="127.0.0.1", port=0, threaded=True) as server:
        yield server


@pytest.fixture
def langfuse(http):
    return Langfuse(http)


class Clock:
    seconds = 1000.0

    def __call__(self):
        return self.seconds


@pytest.fixture
def clock():
    return Clock()


connections = []


@pytest.fixture(autouse=True)
def _closed(langfuse, monkeypatch):
    """Langfuse keeps a client for each public key, with its threads, until it is closed."""
    monkeypatch.setattr(langfuse_prompts, "_EXPORT_SECONDS", 1)
    yield
    while connections:
        connections.pop().close()


def connection_to(host):
    connection = LangfuseConnection(
        public_key=f"pk-lf-{uuid.uuid4()}", secret_key=SECRET, host=host
    )
    connections.append(connection)
    return connection


def prompts_of(host, clock=None):
    more = {"now": clock} if clock else {}
    return LangfusePrompts(
        connection_to(host),
        name="conversation_summarizer",
        cache_seconds=300,
        retry_seconds=60,
        **more,
    )


# --- Prompts ------------------------------------------------------------------------------


def test_a_text_prompt_is_a_message_of_the_user(langfuse):
    langfuse.shows(TEXT, version=3)

    prompt = prompts_of(langfuse.host).prompt()
    assert prompt.messages == [("user", TEXT)]
    assert (prompt.source, prompt.name, prompt.version, prompt.problem) == (
        "langfuse", "conversation_summarizer", "3", "",
    )  # fmt: skip


def test_a_chat_prompt(langfuse):
    langfuse.shows([{"role": "system", "content": "Be brief."}, {"role": "user", "content": TEXT}])

    assert prompts_of(langfuse.host).prompt().messages == [
        ("system", "Be brief."),
        ("user", TEXT),
    ]


def test_a_prompt_is_kept_for_a_while(langfuse, clock):
    langfuse.shows(TEXT, version=3)
    prompts = prompts_of(langfuse.host, clock)

    prompts.prompt()
    clock.seconds += 299
    assert prompts.prompt().version == "3"
    assert langfuse.asked == 1
    langfuse.shows(TEXT, version=4)
    clock.seconds += 1
    assert prompts.prompt().version == "4"


@pytest.mark.parametrize(
    ("prompt", "problem"),
    [
        ("Summarise {{turns}}", "prompt_lacks_variable: summary"),
        ("Summarise {{summary}}", "prompt_lacks_variable: turns"),
        ([{"role": "system", "content": TEXT}], "prompt_misplaces_variable: summary"),
        (
            [{"type": "placeholder", "name": "turns"}, {"role": "user", "content": TEXT}],
            "prompt_unreadable",
        ),
        ([], "prompt_unreadable"),
    ],
)
def test_a_prompt_that_will_not_do_is_replaced_by_the_built_in_one(langfuse, prompt, problem):
    langfuse.shows(prompt)

    assert prompts_of(langfuse.host).prompt() == built_in_prompt(problem)


@pytest.mark.parametrize(
    ("status", "problem"),
    [(404, "prompt_not_found"), (401, "langfuse_unauthorized"), (403, "langfuse_unauthorized"),
     (500, "langfuse_unreachable"), (418, "langfuse_unreachable")],
)  # fmt: skip
def test_without_a_prompt_the_built_in_one_is_used(langfuse, status, problem):
    langfuse.status = status

    assert prompts_of(langfuse.host).prompt() == built_in_prompt(problem)


def test_that_it_had_none_is_remembered(langfuse, clock):
    langfuse.status = 404
    prompts = prompts_of(langfuse.host, clock)

    prompts.prompt()
    clock.seconds += 59
    assert prompts.prompt().problem == "prompt_not_found"
    assert langfuse.asked == 1
    langfuse.status = 200
    langfuse.shows(TEXT)
    clock.seconds += 1
    assert prompts.prompt().source == "langfuse"


@pytest.mark.parametrize("behave", [silent, dribbles_its_head])
def test_a_host_that_says_nothing_is_waited_for_once(behave, clock):
    with RawServer(behave) as server:
        prompts = prompts_of(server.host, clock)
        for _ in range(5):
            assert prompts.prompt() == built_in_prompt("langfuse_unreachable")

        assert server.connections == 1


def test_a_host_that_refuses(clock):
    with refused_address() as host:
        assert prompts_of(host, clock).prompt() == built_in_prompt("langfuse_unreachable")


def test_the_prompt_that_came_last_outlives_its_host(langfuse, clock):
    langfuse.shows(TEXT, version=3)
    prompts = prompts_of(langfuse.host, clock)
    prompts.prompt()

    langfuse.status = 500
    clock.seconds += 300
    prompt = prompts.prompt()
    assert (prompt.version, prompt.source, prompt.problem) == (
        "3",
        "langfuse",
        "langfuse_unreachable",
    )


def test_a_prompt_that_was_deleted_or_spoilt_does_not(langfuse, clock):
    langfuse.shows(TEXT)
    prompts = prompts_of(langfuse.host, clock)
    prompts.prompt()

    langfuse.shows("no variables")
    clock.seconds += 300
    assert prompts.prompt() == built_in_prompt("prompt_lacks_variable: summary")


# --- A fold with Langfuse -----------------------------------------------------------------


def summarizer(langfuse_host, base_url):
    connection = connection_to(langfuse_host)
    made = ConversationSummarizer(
        model="stub-1", temperature=0.2, timeout_seconds=20, max_output_tokens=1500, max_words=220,
        api_key="sk-1", base_url=base_url,
        prompts=LangfusePrompts(connection, name="conversation_summarizer", cache_seconds=300, retry_seconds=60),
        tracer=LangfuseTracer(connection),
    )  # fmt: skip
    return made, connection


@pytest.fixture(scope="module")
def model():
    with LLMServer() as server:
        yield server


@pytest.fixture
def llm(model):
    model.reset()
    model.reply_with(NOTES)
    return model


def attributes(span):
    kinds = ("string_value", "int_value", "double_value", "bool_value")
    return {
        a.key: next((getattr(a.value, kind) for kind in kinds if a.value.HasField(kind)), None)
        for a in span.attributes
    }


def test_a_fold_with_a_prompt_from_langfuse(langfuse, llm):
    langfuse.shows(
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": TEXT}], version=3
    )

    summary = summarizer(langfuse.host, llm.base_url)[0].summarize(request(turn(1)))
    assert (summary.prompt_source, summary.prompt_name, summary.prompt_version) == (
        "langfuse", "conversation_summarizer", "3",
    )  # fmt: skip
    assert llm.requests[0]["messages"][0] == {"role": "system", "content": "Be brief."}


def test_a_fold_goes_on_without_langfuse_and_says_so(llm):
    with refused_address() as host:
        ours, _ = summarizer(host, llm.base_url)

        summary = ours.summarize(request(turn(1)))
    assert (summary.text, summary.prompt_source) == (NOTES, "built_in")
    assert summary.prompt_problem == "langfuse_unreachable"


def test_a_failed_fold_says_so_too(langfuse, llm):
    langfuse.status = 404
    llm.reply_with("NONE")

    with pytest.raises(SummarizationFailed) as failed:
        summarizer(langfuse.host, llm.base_url)[0].summarize(request(turn(1)))
    assert failed.value.prompt_problem == "prompt_not_found"


def test_a_call_is_traced_with_its_usage_and_prompt(langfuse, llm):
    langfuse.shows(TEXT, version=3)
    ours, connection = summarizer(langfuse.host, llm.base_url)

    ours.summarize(request(turn(1)))
    connection.client().flush()

    [span] = langfuse.spans
    told = attributes(span)
    assert span.name == "conversation_summarizer"
    assert told["langfuse.observation.type"] == "generation"
    assert told["langfuse.observation.model.name"] == "stub-1"
    assert told["langfuse.observation.usage_details"] == (
        '{"input": 200, "input_cached_tokens": 1000, "output": 150}'
    )
    assert told["langfuse.observation.prompt.name"] == "conversation_summarizer"
    assert told["langfuse.observation.prompt.version"] == 3
    assert NOTES.splitlines()[1] in told["langfuse.observation.output"]
    assert str(THREAD) in str(told)


def test_a_failed_call_is_traced_with_its_code(langfuse, llm):
    langfuse.shows(TEXT)
    llm.reply_with("NONE")
    ours, connection = summarizer(langfuse.host, llm.base_url)

    with pytest.raises(SummarizationFailed):
        ours.summarize(request(turn(1)))
    connection.client().flush()

    told = attributes(langfuse.spans[0])
    assert (told["langfuse.observation.level"], told["langfuse.observation.status_message"]) == (
        "ERROR",
        "empty",
    )


def test_each_of_two_calls_is_traced(langfuse, llm):
    langfuse.shows(TEXT)
    llm.reply_with("Goals:\n- " + "word " * 400, NOTES)
    ours, connection = summarizer(langfuse.host, llm.base_url)

    ours.summarize(request(turn(1)))
    connection.client().flush()

    assert [
        attributes(span).get("langfuse.observation.status_message") for span in langfuse.spans
    ] == ["too_long", None]


def test_a_trace_is_sent_without_anybody_waiting_for_it(langfuse, llm):
    langfuse.shows(TEXT)
    ours, _ = summarizer(langfuse.host, llm.base_url)

    ours.summarize(request(turn(1)))
    assert langfuse.arrived.wait(30)


def test_a_client_that_can_not_be_made_costs_a_trace_and_no_more():
    class Broken(LangfuseConnection):
        def client(self):
            raise RuntimeError("no")

    broken = Broken(public_key="", secret_key="", host="")
    trace = LangfuseTracer(broken).start(THREAD, "m", {}, [], built_in_prompt())
    trace.end("text", Usage(), "")

    prompts = LangfusePrompts(broken, name="x", cache_seconds=1, retry_seconds=1)
    assert prompts.prompt() == built_in_prompt("langfuse_unreachable")


def test_a_process_ends_soon_although_langfuse_is_silent():
    """Left to itself, Langfuse waits for as long as sending may take: here for two minutes."""
    script = """
import sys, uuid
from conversations import langfuse_prompts
from conversations.chat_completions import Usage
from conversations.summary_prompt import built_in_prompt
langfuse_prompts._EXPORT_SECONDS = 120
connection = langfuse_prompts.LangfuseConnection(public_key="pk", secret_key="sk", host=sys.argv[1])
trace = langfuse_prompts.LangfuseTracer(connection).start(uuid.uuid4(), "m", {}, [], built_in_prompt())
trace.end("text", Usage(), "")
"""
    in_a_child = f"""
import multiprocessing, sys
child = multiprocessing.get_context("fork").Process(target=exec, args=({script!r}, {{}}))
child.start()
child.join()
sys.exit(child.exitcode)
"""
    for program in (script, in_a_child):
        with RawServer(silent) as server:
            command = [sys.executable, "-c", program, server.host]
            done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
            assert (done.stdout, done.stderr) == ("", "")
            assert server.connections == 1


# --- From the settings --------------------------------------------------------------------


def test_with_both_keys_langfuse_is_asked(settings, langfuse, llm):
    langfuse.shows(TEXT, version=9)
    settings.OPENAI_BASE_URL = llm.base_url
    settings.LANGFUSE_HOST = langfuse.host
    settings.LANGFUSE_PUBLIC_KEY, settings.LANGFUSE_SECRET_KEY = f"pk-{uuid.uuid4()}", SECRET
    get_summarizer.cache_clear()
    try:
        made = get_summarizer()
        connections.append(made._tracer._connection)
        assert made.summarize(request(turn(1))).prompt_version == "9"
    finally:
        get_summarizer.cache_clear()


def test_its_secret_shows_nowhere(langfuse, caplog, capfd):
    caplog.set_level("INFO")
    langfuse.status = 401
    prompts_of(langfuse.host).prompt()

    out, err = capfd.readouterr()
    assert SECRET not in caplog.text + out + err + repr(connection_to("http://x"))

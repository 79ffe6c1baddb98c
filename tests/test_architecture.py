"""Imports go one way, files stay small, and there is one road from a request to a thread."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = {
    "config": {"config", "embedded"},
    "rbac": {"rbac", "config"},
    "costs": {"costs", "rbac", "config"},
    "conversations": {"conversations", "costs", "rbac", "config"},
    "embedded": {"embedded"},
}
OURS = set(ROOMS) | {"tests", "benchmarks"}
# Mounting the apps is what config.urls is for.
MAY_LOOK_UP = {"config/urls.py", "config/gunicorn.py", "config/health.py"}

# Within conversations: a module may import its own floor and those below.
FLOORS = [
    {"exceptions", "turns", "tokenizer", "fields", "artifacts", "artifact_derivation",
     "chart_specs", "pieces", "head", "context", "turn_input", "thread_lines"},
    {"conversation_memory", "invalidation", "finalize", "events", "querysets", "models"},
    {"session_handler", "tasks", "api", "urls", "admin", "management", "demo", "checks", "apps"},
]  # fmt: skip


def python_files(room):
    return sorted(path for path in (ROOT / room).rglob("*.py") if "migrations" not in path.parts)


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def floor_of(module):
    return next((n for n, floor in enumerate(FLOORS) if module in floor), None)


@pytest.mark.parametrize("room", [room for room in ROOMS if (ROOT / room).is_dir()])
def test_a_room_imports_only_the_rooms_below(room):
    for path in python_files(room):
        if str(path.relative_to(ROOT)) in MAY_LOOK_UP:
            continue
        tops = {name.split(".")[0] for name in imported(path)} & OURS
        assert tops <= ROOMS[room], f"{path} imports {tops - ROOMS[room]}"


def test_every_module_of_conversations_has_its_floor():
    modules = {p.relative_to(ROOT / "conversations").parts[0].removesuffix(".py")
               for p in python_files("conversations")} - {"__init__"}  # fmt: skip

    assert modules - set().union(*FLOORS) == set()


def test_nothing_in_conversations_imports_upward():
    for path in python_files("conversations"):
        own = path.relative_to(ROOT / "conversations").parts[0].removesuffix(".py")
        for name in imported(path):
            parts = name.split(".")
            if parts[0] == "conversations" and len(parts) > 1 and own != "__init__":
                target = floor_of(parts[1])
                assert target is None or target <= floor_of(own), f"{path} imports {name}"


@pytest.mark.parametrize("module", sorted(FLOORS[0]))
def test_pure_modules_touch_no_store(module):
    home = ROOT / "conversations"
    found = [p for p in python_files("conversations")
             if p.relative_to(home).parts[0] in (module, f"{module}.py")]  # fmt: skip
    for path in found:
        if path.stem == "fields":
            continue
        bad = {"django.db", "redis", "boto3", "django_redis", "requests"}
        assert not {
            b for b in bad for name in imported(path) if name == b or name.startswith(b + ".")
        }, path


def test_models_never_see_a_request_or_a_serializer():
    for name in ("models", "querysets", "finalize", "events"):
        names = set(imported(ROOT / "conversations" / f"{name}.py"))
        assert not {n for n in names if n.startswith(("rest_framework", "django.http"))}, name


def test_adapters_never_import_models():
    names = set(imported(ROOT / "conversations" / "conversation_memory.py"))

    assert not {n for n in names if ".models" in n or ".querysets" in n}


def test_files_are_under_500_lines():
    long = {str(path): lines for room in ROOMS if (ROOT / room).is_dir() for path in python_files(room)
            if (lines := len(path.read_text().splitlines())) > 500}  # fmt: skip

    assert long == {}


def test_there_is_no_drawer_for_everything():
    apps = {"config", "rbac", "costs", "conversations"}
    names = {path.stem for app in apps if (ROOT / app).is_dir() for path in python_files(app)}

    assert not names & {"utils", "helpers", "services", "signals", "common", "misc"}


def test_the_api_reaches_threads_only_through_who_is_asking():
    for path in python_files("conversations/api"):
        calls = set(re.findall(r"ConversationThread\.objects\.(\w+)", path.read_text()))
        assert calls <= {
            "visible_to",
            "visible_or_404",
            "owned_by",
            "finalize_turn",
            "conversation_context",
        }, path


def test_no_path_of_one_machine_stands_in_the_project():
    tracked = [p for room in (*ROOMS, "tests", "benchmarks", "docs") if (ROOT / room).is_dir()
               for p in (ROOT / room).rglob("*.*") if p.suffix in {".py", ".md", ".lua", ".html"}]  # fmt: skip
    pattern = re.compile(r"/(?:wor[k]|roo[t]|hom[e])/\w")

    assert [str(path) for path in tracked if pattern.search(path.read_text())] == []

"""Imports go one way, files stay small, and one road leads from a request to a thread."""

import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ROOMS = ("config", "rbac", "costs", "conversations", "embedded")


def python_files(room):
    return sorted(path for path in (ROOT / room).rglob("*.py") if "migrations" not in path.parts)


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_imports_go_one_way():
    linter = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports; exit(lint_imports())",
    ]
    done = subprocess.run(linter, cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0, done.stdout


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
            "owned_by",
            "finalize_turn",
            "conversation_context",
        }, path


def test_no_path_of_one_machine_stands_in_the_project():
    tracked = [p for room in (*ROOMS, "tests", "benchmarks", "docs") if (ROOT / room).is_dir()
               for p in (ROOT / room).rglob("*.*") if p.suffix in {".py", ".md", ".lua", ".html"}]  # fmt: skip
    pattern = re.compile(r"/(?:wor[k]|roo[t]|hom[e])/\w")

    assert [str(path) for path in tracked if pattern.search(path.read_text())] == []

"""The Spanish texts: all there, compiled as they are written, with the same blanks to fill."""

from __future__ import annotations

import ast
import gettext
import re

import pytest
from django.conf import settings

ROOM = settings.BASE_DIR / "conversations"
FOLDER = ROOM / "locale" / "es" / "LC_MESSAGES"
NAMES = {"gettext", "ngettext", "gettext_lazy", "ngettext_lazy"}
BLANK = re.compile(r"%\(\w+\)[sd]")


def written():
    """Return what the .po file says: {msgid or (msgid, index): msgstr}."""
    found, key, plural = {}, "", False
    for line in (FOLDER / "django.po").read_text().splitlines():
        word, _, text = line.partition(" ")
        if line.startswith('"'):
            target = found.popitem()
            found[target[0]] = target[1] + ast.literal_eval(line)
        elif word == "msgid":
            key, plural = ast.literal_eval(text), False
        elif word == "msgid_plural":
            plural = True
        elif word.startswith("msgstr"):
            index = int(word[7]) if plural else None
            found[(key, index) if plural else key] = ast.literal_eval(text)
    return found


def compiled():
    with (FOLDER / "django.mo").open("rb") as file:
        return gettext.GNUTranslations(file)._catalog


def in_the_code():
    """Return the texts that the code asks for: {(singular, plural or None)}."""
    found = set()
    for path in ROOM.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in NAMES:
                is_plural = node.func.id.startswith("n")
                found.add(tuple(arg.value for arg in node.args[: 1 + is_plural]))
    return found


def test_what_is_compiled_is_what_is_written():
    """`manage.py compilemessages` after a change: nothing is compiled where this runs."""
    assert compiled() == written()


def test_every_text_of_the_code_is_translated():
    singular = {key if isinstance(key, str) else key[0] for key, text in written().items() if text}

    assert {texts[0] for texts in in_the_code()} == singular - {""}


@pytest.mark.parametrize(("key", "text"), written().items(), ids=str)
def test_a_translation_fills_in_the_same(key, text):
    source = key if isinstance(key, str) else key[0]

    assert sorted(BLANK.findall(text)) == sorted(BLANK.findall(source))

"""manage.py renew_epoch"""

from __future__ import annotations

import io

from django.core.management import call_command

from conversations.models import ConversationThread, DatabaseEpoch, ThreadMessage


def renew() -> str:
    out = io.StringIO()
    call_command("renew_epoch", stdout=out, no_color=True)
    return out.getvalue()


def test_it_says_the_new_name_and_what_for(db):
    before = DatabaseEpoch.objects.get().epoch
    out = renew()
    epoch = DatabaseEpoch.objects.get().epoch
    assert epoch != before
    assert str(epoch) in out
    assert "restore" in out


def test_a_copy_from_before_a_restore_is_no_longer_shown(agent, thread_id, settings):
    agent.put_turn(thread_id, query="Kept", answer="Yes.")
    agent.put_turn(thread_id, query="Lost in the restore", answer="No.")
    agent.context(thread_id)
    assert agent.context(thread_id).json()["source"] == "cache"
    ThreadMessage.objects.filter(thread=thread_id, position=2).delete()
    ConversationThread.objects.filter(pk=thread_id).update(turn_count=1, version=1)
    renew()
    settings.MEMORY_CHECK_SECONDS = 0
    view = agent.context(thread_id).json()
    assert (view["source"], view["positions"]) == ("database", [1])
    assert "Lost in the restore" not in view["text"]
    assert agent.context(thread_id).json()["source"] == "cache"


def test_no_thread_is_changed(agent, thread_id):
    agent.put_turn(thread_id)
    before = ConversationThread.objects.values().get()
    renew()
    assert ConversationThread.objects.values().get() == before

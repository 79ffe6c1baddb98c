"""The Django app of threads, turns and their context views."""

from django.apps import AppConfig


class ConversationsConfig(AppConfig):
    """Threads, turns, working sets and context views."""

    name = "conversations"
    verbose_name = "Conversations"

"""The Django app of threads, turns and their context views."""

from django.apps import AppConfig


class ConversationsConfig(AppConfig):
    """Threads, turns, working sets and context views."""

    name = "conversations"
    verbose_name = "Conversations"

    def ready(self) -> None:
        """Have Prometheus told of folds."""
        from config.metrics import AT_SCRAPE
        from conversations.fold_metrics import FoldCollector

        AT_SCRAPE.append(FoldCollector())

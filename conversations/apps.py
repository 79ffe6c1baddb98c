"""The Django app of threads, turns and their context views."""

from django.apps import AppConfig


class ConversationsConfig(AppConfig):
    """Threads, turns, working sets and context views."""

    name = "conversations"
    verbose_name = "Conversations"

    def ready(self) -> None:
        """Have Prometheus and the page of health told of folds."""
        from config.health import CHECKS, Check
        from config.metrics import AT_SCRAPE
        from conversations.fold_health import check_folds
        from conversations.fold_metrics import FoldCollector

        AT_SCRAPE.append(FoldCollector())
        CHECKS["folds"] = Check(check_folds)

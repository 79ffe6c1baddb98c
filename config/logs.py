"""How lines are logged: one structure for structlog's own and for everybody else's, on stderr."""

from __future__ import annotations

import sys
from typing import Any

import structlog

_SHARED_PROCESSORS: list[Any] = [
    structlog.contextvars.merge_contextvars,
    structlog.stdlib.add_log_level,
    structlog.stdlib.add_logger_name,
    structlog.processors.TimeStamper(fmt="iso", utc=True),
    structlog.stdlib.PositionalArgumentsFormatter(),
]


def configure_structlog() -> None:
    """Have structlog hand its lines to the logging of the standard library."""
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *_SHARED_PROCESSORS,
            structlog.processors.StackInfoRenderer(),
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )


def logging_settings(level: str, form: str) -> dict[str, Any]:
    """Return Django's LOGGING: lines from `level` on, as "json" or for a "console"."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "json": _formatter(
                structlog.processors.format_exc_info, structlog.processors.JSONRenderer()
            ),
            "console": _formatter(
                structlog.dev.ConsoleRenderer(
                    colors=sys.stderr.isatty(),
                    # The default prints local variables: passwords, tokens, what people said.
                    exception_formatter=structlog.dev.plain_traceback,
                )
            ),
        },
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": form}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            # It repeats each refused request that our own access line already carries.
            "django.request": {"level": "ERROR"},
            # At these levels they would write what was said in conversations, and headers.
            "openai": {"level": "INFO"},
            "httpx2": {"level": "WARNING"},
            "httpcore2": {"level": "WARNING"},
            # A warning for each attempt to send a trace; the error at their end will do.
            "opentelemetry": {"level": "ERROR"},
            # runserver's own access lines: they hold the query string.
            "django.server": {"handlers": [], "level": "CRITICAL", "propagate": False},
        },
    }


def _formatter(*last: Any) -> dict[str, Any]:
    return {
        "()": structlog.stdlib.ProcessorFormatter,
        "foreign_pre_chain": _SHARED_PROCESSORS,
        "processors": [structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
    }

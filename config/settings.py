"""Every setting of Rethread, read from the environment through one schema.

Order of precedence: the process's environment, then a `.env` file beside `manage.py`
(`RETHREAD_ENV_FILE` names another), then what a running `make up` has left for commands that
run beside it. `.env.example` lists each variable with its default and meaning.
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import environ
from redis.backoff import NoBackoff
from redis.retry import Retry

from config.environment import Environment, number_or_none, one_of, word_lists
from config.logs import configure_structlog, logging_settings
from embedded.running import data_folder, running_environment

BASE_DIR = Path(__file__).resolve().parent.parent

env = Environment(
    # The site
    SECRET_KEY=(str, ""),
    DEBUG=(bool, False),
    ALLOWED_HOSTS=(list, ["localhost", "127.0.0.1", "[::1]"]),
    CSRF_TRUSTED_ORIGINS=(list, []),
    HTTPS=(bool, False),
    TRUST_FORWARDED_PROTO=(bool, False),
    NUM_PROXIES=(int, 0),
    LOG_LEVEL=(one_of("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL", read=str.upper), "INFO"),
    LOG_FORMAT=(one_of("json", "console", read=str.lower), "json"),
    METRICS_TOKEN=(str, ""),
    RETHREAD_DATA_DIR=(str, str(BASE_DIR / ".data")),
    RETHREAD_ENV_FILE=(str, str(BASE_DIR / ".env")),
    # Stores
    DATABASE_URL=(str, ""),
    DATABASE_PREPARE_THRESHOLD=(int, 3),
    DATABASE_STATEMENT_TIMEOUT_SECONDS=(int, 30),
    DATABASE_LOCK_TIMEOUT_SECONDS=(int, 10),
    DATABASE_CONN_MAX_AGE_SECONDS=(int, 60),
    REDIS_URL=(str, ""),
    REDIS_TIMEOUT_SECONDS=(float, 0.2),
    REDIS_BREAKER_SECONDS=(float, 2.0),
    DYNAMODB_ENDPOINT_URL=(str, ""),
    AWS_REGION=(str, "us-east-1"),
    # People and keys
    PRINCIPAL_CACHE_SECONDS=(int, 30),
    PEOPLE_MADE_ON_FIRST_USE=(bool, True),
    TOKEN_TTL_HOURS=(int, 10),
    LOGIN_RATE=(str, "10/min"),
    # Conversation memory
    MEMORY_TTL_HOURS=(int, 24),
    MEMORY_MAX_RECENT_MESSAGES=(int, 10),
    MEMORY_COMPRESSION_THRESHOLD=(int, 20),
    MEMORY_KEY_PREFIX=(str, "chat_conversation"),
    MEMORY_WINDOW_TURNS=(int, 40),
    MEMORY_CHECK_SECONDS=(int, 30),
    MEMORY_LEASE_SECONDS=(float, 2.0),
    FOLD_INPUT_TOKENS=(int, 12_000),
    FOLD_KEPT_ARTIFACT_TURNS=(int, 5),
    FOLD_CLAIM_SECONDS=(int, 90),
    FOLD_BACKOFF_SECONDS=(int, 60),
    FOLD_BACKOFF_MAX_SECONDS=(int, 3_600),
    FACTS_MAX_TOKENS=(int, 600),
    SQL_DIALECT=(str, ""),
    CONTEXT_TOKEN_BUDGET=(int, 2000),
    CONTEXT_MAX_TOKEN_BUDGET=(int, 200_000),
    CONTEXT_PART_MAX_CHARS=(int, 20_000),
    FENCE_KEY=(str, ""),
    # Summaries
    SUMMARY_MODEL=(str, "gpt-4.1-mini"),
    SUMMARY_TEMPERATURE=(number_or_none, 0.2),
    SUMMARY_TIMEOUT_SECONDS=(float, 30.0),
    SUMMARY_MAX_OUTPUT_TOKENS=(int, 1500),
    SUMMARY_OUTPUT_LIMIT_NAME=(
        one_of("max_completion_tokens", "max_tokens"),
        "max_completion_tokens",
    ),
    SUMMARY_MAX_WORDS=(int, 220),
    SUMMARY_PROMPT_NAME=(str, "conversation_summarizer"),
    SUMMARY_PROMPT_CACHE_SECONDS=(int, 300),
    SUMMARY_PROMPT_RETRY_SECONDS=(int, 60),
    OPENAI_API_KEY=(str, ""),
    OPENAI_BASE_URL=(str, ""),
    LANGFUSE_PUBLIC_KEY=(str, ""),
    LANGFUSE_SECRET_KEY=(str, ""),
    LANGFUSE_HOST=(str, "https://cloud.langfuse.com"),
    # Limits at the door; each answers 413 or 422 and names its number
    MAX_BODY_BYTES=(int, 16 * 1024 * 1024),
    MAX_QUERY_CHARS=(int, 4_000_000),
    MAX_ANSWER_CHARS=(int, 4_000_000),
    MAX_PAYLOAD_BYTES=(int, 8 * 1024 * 1024),
    MAX_JSON_DEPTH=(int, 100),
    MAX_JSON_CONTAINERS=(int, 500_000),
    MAX_ARTIFACTS=(int, 50),
    MAX_ARTIFACT_BYTES=(int, 64 * 1024),
    MAX_METADATA_KEYS=(int, 16),
    MAX_PAGE_BYTES=(int, 16 * 1024 * 1024),
    # Uploaded files
    MAX_UPLOAD_BYTES=(int, 32 * 1024 * 1024),
    MAX_UPLOAD_UNPACKED_BYTES=(int, 160 * 1024 * 1024),
    MAX_UPLOAD_ROWS=(int, 500_000),
    MAX_UPLOAD_COLUMNS=(int, 1_000),
    MAX_UPLOAD_CELLS=(int, 5_000_000),
    MAX_UPLOAD_CELL_CHARS=(int, 100_000),
    MAX_SESSION_UPLOAD_BYTES=(int, 64 * 1024 * 1024),
    UPLOAD_REDIS_SHARE=(float, 0.7),
    UPLOAD_PARSE_SECONDS=(int, 30),
    UPLOAD_PARSE_MEMORY_BYTES=(int, 512 * 1024 * 1024),
    UPLOADS_AT_ONCE=(int, 2),
    UPLOAD_PAGE_ROWS=(int, 100),
    FILE_DATA_TTL_MINUTES=(int, 60),
    SESSION_KEY_PREFIX=(str, ""),
    # Long-term history
    HISTORY_TABLE=(str, "erp-agent-conversations"),
    DYNAMODB_TTL_DAYS=(int, 90),
    HISTORY_SESSIONS=(int, 10),
    HISTORY_CONTEXT_SESSIONS=(int, 5),
    HISTORY_CONTEXT_BYTES=(int, 6_000),
    SESSION_DIGEST_BYTES=(int, 16_000),
    SESSION_TOPICS=(word_lists, {}),
    # Live sessions
    SESSION_TTL_MINUTES=(int, 30),
    SESSION_MAX_MESSAGES=(int, 100),
    MAX_HISTORY_MESSAGES=(int, 5),
    SESSION_RESULT_ROWS=(int, 50),
    SESSION_MAX_MESSAGE_BYTES=(int, 128 * 1024),
    SESSION_MAX_TURN_MESSAGES=(int, 200),
    SESSION_TOOL_WAIT_SECONDS=(int, 300),
    CHECKPOINT_TTL_MINUTES=(int, 60),
    MAX_CHECKPOINT_BYTES=(int, 8 * 1024 * 1024),
    # Checkpoints
    CHECKPOINT_RETENTION_DAYS=(int, 30),
    CHECKPOINT_POOL_SIZE=(int, 4),
    # Jobs
    WORKERS=(int, 2),
    JOB_TIMEOUT_SECONDS=(int, 120),
    JOB_RETRY_SECONDS=(int, 180),
    WORKER_FROZEN_AFTER_SECONDS=(float, 20.0),
)

# Empty is no file at all, not the default: what tests run in reads none.
_ENV_FILE = environ.Env.ENVIRON.get("RETHREAD_ENV_FILE", str(BASE_DIR / ".env"))
if Path(_ENV_FILE).is_file():
    environ.Env.read_env(_ENV_FILE)
DATA_DIR = data_folder(environ.Env.ENVIRON)
environ.Env.ENVIRON.update(
    {
        name: value
        for name, value in running_environment(DATA_DIR).items()
        if not environ.Env.ENVIRON.get(name)
    }
)

# --- The site -----------------------------------------------------------------------------

DEBUG = env("DEBUG")
SECRET_KEY = env("SECRET_KEY")
METRICS_TOKEN = env("METRICS_TOKEN")
ALLOWED_HOSTS = env("ALLOWED_HOSTS")
CSRF_TRUSTED_ORIGINS = env("CSRF_TRUSTED_ORIGINS")
ROOT_URLCONF = "config.urls"
WSGI_APPLICATION = "config.wsgi.application"
USE_TZ = True
TIME_ZONE = "UTC"
LANGUAGE_CODE = "en"
USE_I18N = True
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
AUTH_USER_MODEL = "rbac.User"
AUTHENTICATION_BACKENDS = ["rbac.backends.TenantBackend"]
_PASSWORD = "django.contrib.auth.password_validation"  # noqa: S105
AUTH_PASSWORD_VALIDATORS = [
    {
        "NAME": f"{_PASSWORD}.UserAttributeSimilarityValidator",
        "OPTIONS": {"user_attributes": ("username", "user_id", "tenant")},
    },
    {"NAME": f"{_PASSWORD}.MinimumLengthValidator"},
    {"NAME": f"{_PASSWORD}.CommonPasswordValidator"},
    {"NAME": f"{_PASSWORD}.NumericPasswordValidator"},
]
LOGIN_URL = "admin:login"

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "whitenoise.runserver_nostatic",
    "django.contrib.staticfiles",
    "django_prometheus",
    "django_q",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "knox",
    "rest_framework",
    "config.apps.ConfigConfig",
    "rbac.apps.RbacConfig",
    "conversations.apps.ConversationsConfig",
]

MIDDLEWARE = [
    "django_prometheus.middleware.PrometheusBeforeMiddleware",
    "config.middleware.RequestIDMiddleware",
    "config.middleware.HonestRequestMiddleware",
    "django.middleware.security.SecurityMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "csp.middleware.CSPMiddleware",
    "django_prometheus.middleware.PrometheusAfterMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ]
        },
    }
]

STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / "staticfiles"
STATICFILES_DIRS = [BASE_DIR / "static"]
_COLLECTED = (STATIC_ROOT / "staticfiles.json").is_file()
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        # Names with a hash exist only once `collectstatic` has run.
        "BACKEND": "whitenoise.storage.CompressedManifestStaticFilesStorage"
        if _COLLECTED and not DEBUG
        else "django.contrib.staticfiles.storage.StaticFilesStorage"
    },
}
WHITENOISE_USE_FINDERS = not _COLLECTED

HTTPS = env("HTTPS")
SESSION_COOKIE_SECURE = HTTPS
CSRF_COOKIE_SECURE = HTTPS
SECURE_SSL_REDIRECT = HTTPS
SECURE_HSTS_SECONDS = 31_536_000 if HTTPS else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = HTTPS
SECURE_HSTS_PRELOAD = HTTPS
SECURE_PROXY_SSL_HEADER = (
    ("HTTP_X_FORWARDED_PROTO", "https") if env("TRUST_FORWARDED_PROTO") else None
)
# Orchestrators and Prometheus ask the process itself, by plain HTTP and its own address.
SECURE_REDIRECT_EXEMPT = [r"^health/", r"^metrics$"]
NUM_PROXIES = env("NUM_PROXIES")
X_FRAME_OPTIONS = "DENY"
CONTENT_SECURITY_POLICY = {
    "DIRECTIVES": {
        "default-src": ["'self'"],
        "img-src": ["'self'", "data:"],
        "object-src": ["'none'"],
        "base-uri": ["'none'"],
        "form-action": ["'self'"],
        "frame-ancestors": ["'none'"],
    }
}

# --- Stores -------------------------------------------------------------------------------

DATABASE_PREPARE_THRESHOLD = env("DATABASE_PREPARE_THRESHOLD")
DATABASE_STATEMENT_TIMEOUT_SECONDS = env("DATABASE_STATEMENT_TIMEOUT_SECONDS")
DATABASE_LOCK_TIMEOUT_SECONDS = env("DATABASE_LOCK_TIMEOUT_SECONDS")
DATABASE_CONN_MAX_AGE_SECONDS = env("DATABASE_CONN_MAX_AGE_SECONDS")
DATABASES: dict[str, dict[str, Any]] = {
    "default": {
        **env.database(env("DATABASE_URL") or "postgres://rethread@localhost:5432/rethread"),
        "CONN_MAX_AGE": DATABASE_CONN_MAX_AGE_SECONDS,
        "CONN_HEALTH_CHECKS": True,
        "DISABLE_SERVER_SIDE_CURSORS": True,
    }
}
DATABASES["default"]["ENGINE"] = "django.db.backends.postgresql"
DATABASES["default"].setdefault("OPTIONS", {}).update(
    {
        "server_side_binding": True,
        # None behind a PgBouncer older than 1.21, which can't carry prepared statements.
        "prepare_threshold": DATABASE_PREPARE_THRESHOLD or None,
        "connect_timeout": 5,
        "application_name": "rethread",
        "options": (
            f"-c statement_timeout={DATABASE_STATEMENT_TIMEOUT_SECONDS * 1000}"
            f" -c lock_timeout={DATABASE_LOCK_TIMEOUT_SECONDS * 1000}"
        ),
    }
)

REDIS_URL = env("REDIS_URL") or "redis://localhost:6379/0"
REDIS_TIMEOUT_SECONDS = env("REDIS_TIMEOUT_SECONDS")
REDIS_BREAKER_SECONDS = env("REDIS_BREAKER_SECONDS")
CACHES = {
    "default": {
        "BACKEND": "django_redis.cache.RedisCache",
        "LOCATION": REDIS_URL,
        "KEY_PREFIX": "cache",
        "OPTIONS": {
            "SOCKET_CONNECT_TIMEOUT": REDIS_TIMEOUT_SECONDS,
            "SOCKET_TIMEOUT": REDIS_TIMEOUT_SECONDS,
            "IGNORE_EXCEPTIONS": True,
            "CONNECTION_POOL_KWARGS": {"retry": Retry(NoBackoff(), 0), "max_connections": 256},
        },
    }
}
SESSION_ENGINE = "django.contrib.sessions.backends.db"

DYNAMODB_ENDPOINT_URL = env("DYNAMODB_ENDPOINT_URL")
AWS_REGION = env("AWS_REGION")

# --- People and keys ----------------------------------------------------------------------

PRINCIPAL_CACHE_SECONDS = min(env("PRINCIPAL_CACHE_SECONDS"), 30)
PEOPLE_MADE_ON_FIRST_USE = env("PEOPLE_MADE_ON_FIRST_USE")
TOKEN_TTL_HOURS = env("TOKEN_TTL_HOURS")
LOGIN_RATE = env("LOGIN_RATE")
KNOX_TOKEN_MODEL = "rbac.AuthToken"  # noqa: S105
# Its migrations make a table even where the model is swapped for ours.
MIGRATION_MODULES = {"knox": None}
REST_KNOX = {
    "TOKEN_TTL": timedelta(hours=TOKEN_TTL_HOURS),
    "TOKEN_MODEL": KNOX_TOKEN_MODEL,
    "AUTO_REFRESH": False,
}

# --- Conversation memory ------------------------------------------------------------------

MEMORY_TTL_HOURS = env("MEMORY_TTL_HOURS")
MEMORY_MAX_RECENT_MESSAGES = env("MEMORY_MAX_RECENT_MESSAGES")
MEMORY_COMPRESSION_THRESHOLD = env("MEMORY_COMPRESSION_THRESHOLD")
MEMORY_KEY_PREFIX = env("MEMORY_KEY_PREFIX")
MEMORY_WINDOW_TURNS = env("MEMORY_WINDOW_TURNS")
MEMORY_CHECK_SECONDS = env("MEMORY_CHECK_SECONDS")
MEMORY_LEASE_SECONDS = env("MEMORY_LEASE_SECONDS")
FOLD_INPUT_TOKENS = env("FOLD_INPUT_TOKENS")
FOLD_KEPT_ARTIFACT_TURNS = env("FOLD_KEPT_ARTIFACT_TURNS")
FOLD_CLAIM_SECONDS = env("FOLD_CLAIM_SECONDS")
FOLD_BACKOFF_SECONDS = env("FOLD_BACKOFF_SECONDS")
FOLD_BACKOFF_MAX_SECONDS = env("FOLD_BACKOFF_MAX_SECONDS")
FACTS_MAX_TOKENS = env("FACTS_MAX_TOKENS")
SQL_DIALECT = env("SQL_DIALECT")
CONTEXT_TOKEN_BUDGET = env("CONTEXT_TOKEN_BUDGET")
CONTEXT_MAX_TOKEN_BUDGET = env("CONTEXT_MAX_TOKEN_BUDGET")
CONTEXT_PART_MAX_CHARS = env("CONTEXT_PART_MAX_CHARS")
FENCE_KEY = env("FENCE_KEY") or SECRET_KEY

# --- Summaries ----------------------------------------------------------------------------

SUMMARY_MODEL = env("SUMMARY_MODEL")
SUMMARY_TEMPERATURE = env("SUMMARY_TEMPERATURE")
SUMMARY_TIMEOUT_SECONDS = env("SUMMARY_TIMEOUT_SECONDS")
SUMMARY_MAX_OUTPUT_TOKENS = env("SUMMARY_MAX_OUTPUT_TOKENS")
SUMMARY_OUTPUT_LIMIT_NAME = env("SUMMARY_OUTPUT_LIMIT_NAME")
SUMMARY_MAX_WORDS = env("SUMMARY_MAX_WORDS")
SUMMARY_PROMPT_NAME = env("SUMMARY_PROMPT_NAME")
SUMMARY_PROMPT_CACHE_SECONDS = env("SUMMARY_PROMPT_CACHE_SECONDS")
SUMMARY_PROMPT_RETRY_SECONDS = env("SUMMARY_PROMPT_RETRY_SECONDS")
OPENAI_API_KEY = env("OPENAI_API_KEY")
OPENAI_BASE_URL = env("OPENAI_BASE_URL")
LANGFUSE_PUBLIC_KEY = env("LANGFUSE_PUBLIC_KEY")
LANGFUSE_SECRET_KEY = env("LANGFUSE_SECRET_KEY")
LANGFUSE_HOST = env("LANGFUSE_HOST")

# --- Limits -------------------------------------------------------------------------------

MAX_BODY_BYTES = env("MAX_BODY_BYTES")
DATA_UPLOAD_MAX_MEMORY_SIZE = MAX_BODY_BYTES
MAX_QUERY_CHARS = env("MAX_QUERY_CHARS")
MAX_ANSWER_CHARS = env("MAX_ANSWER_CHARS")
MAX_PAYLOAD_BYTES = env("MAX_PAYLOAD_BYTES")
MAX_JSON_DEPTH = env("MAX_JSON_DEPTH")
MAX_JSON_CONTAINERS = env("MAX_JSON_CONTAINERS")
MAX_ARTIFACTS = env("MAX_ARTIFACTS")
MAX_ARTIFACT_BYTES = env("MAX_ARTIFACT_BYTES")
MAX_METADATA_KEYS = env("MAX_METADATA_KEYS")
MAX_PAGE_BYTES = env("MAX_PAGE_BYTES")

# --- Uploaded files -----------------------------------------------------------------------

MAX_UPLOAD_BYTES = env("MAX_UPLOAD_BYTES")
MAX_UPLOAD_UNPACKED_BYTES = env("MAX_UPLOAD_UNPACKED_BYTES")
MAX_UPLOAD_ROWS = env("MAX_UPLOAD_ROWS")
MAX_UPLOAD_COLUMNS = env("MAX_UPLOAD_COLUMNS")
MAX_UPLOAD_CELLS = env("MAX_UPLOAD_CELLS")
MAX_UPLOAD_CELL_CHARS = env("MAX_UPLOAD_CELL_CHARS")
MAX_SESSION_UPLOAD_BYTES = env("MAX_SESSION_UPLOAD_BYTES")
UPLOAD_REDIS_SHARE = env("UPLOAD_REDIS_SHARE")
UPLOAD_PARSE_SECONDS = env("UPLOAD_PARSE_SECONDS")
UPLOAD_PARSE_MEMORY_BYTES = env("UPLOAD_PARSE_MEMORY_BYTES")
UPLOADS_AT_ONCE = env("UPLOADS_AT_ONCE")
UPLOAD_PAGE_ROWS = env("UPLOAD_PAGE_ROWS")
FILE_DATA_TTL_MINUTES = env("FILE_DATA_TTL_MINUTES")
SESSION_KEY_PREFIX = env("SESSION_KEY_PREFIX")

# --- Long-term history --------------------------------------------------------------------

HISTORY_TABLE = env("HISTORY_TABLE")
DYNAMODB_TTL_DAYS = env("DYNAMODB_TTL_DAYS")
HISTORY_SESSIONS = env("HISTORY_SESSIONS")
HISTORY_CONTEXT_SESSIONS = env("HISTORY_CONTEXT_SESSIONS")
HISTORY_CONTEXT_BYTES = env("HISTORY_CONTEXT_BYTES")
SESSION_DIGEST_BYTES = env("SESSION_DIGEST_BYTES")
SESSION_TOPICS = env("SESSION_TOPICS")

# --- Live sessions ------------------------------------------------------------------------

SESSION_TTL_MINUTES = env("SESSION_TTL_MINUTES")
SESSION_MAX_MESSAGES = env("SESSION_MAX_MESSAGES")
MAX_HISTORY_MESSAGES = env("MAX_HISTORY_MESSAGES")
SESSION_RESULT_ROWS = env("SESSION_RESULT_ROWS")
SESSION_MAX_MESSAGE_BYTES = env("SESSION_MAX_MESSAGE_BYTES")
SESSION_MAX_TURN_MESSAGES = env("SESSION_MAX_TURN_MESSAGES")
SESSION_TOOL_WAIT_SECONDS = env("SESSION_TOOL_WAIT_SECONDS")
CHECKPOINT_TTL_MINUTES = env("CHECKPOINT_TTL_MINUTES")
MAX_CHECKPOINT_BYTES = env("MAX_CHECKPOINT_BYTES")

# --- Checkpoints --------------------------------------------------------------------------

CHECKPOINT_RETENTION_DAYS = env("CHECKPOINT_RETENTION_DAYS")
CHECKPOINT_POOL_SIZE = env("CHECKPOINT_POOL_SIZE")

# --- Jobs ---------------------------------------------------------------------------------

Q_CLUSTER = {
    "name": "rethread",
    "orm": "default",
    "workers": env("WORKERS"),
    # The ORM broker, without jobs fetched in advance, and with a pulse for `manage.py worker`.
    "broker_class": "config.broker.Broker",
    "queue_limit": env("WORKERS"),
    "bulk": 1,
    "timeout": env("JOB_TIMEOUT_SECONDS"),
    "retry": env("JOB_RETRY_SECONDS"),
    "max_attempts": 20,
    # Each result reads and locks the rows of all that succeeded.
    "save_limit": 20,
    "ack_failures": False,
    "catch_up": False,
    "poll": 0.5,
    "label": "Jobs",
}
WORKER_FROZEN_AFTER_SECONDS = env("WORKER_FROZEN_AFTER_SECONDS")
PERIODIC_JOBS: dict[str, dict[str, Any]] = {  # each becomes a schedule of django-q2
    "sweep_folds": {"func": "conversations.tasks.sweep_folds", "minutes": 1},
    "sweep_sessions": {"func": "conversations.tasks.sweep_sessions", "minutes": 1},
    "prune_checkpoints": {"func": "conversations.tasks.prune_checkpoints", "minutes": 1440},
}
# What `manage.py release` calls once the tables are those of this version.
RELEASE_STEPS = [
    "conversations.checkpoints.ensure_checkpoint_tables",
    "conversations.history_table.ensure_table_exists",
]

# --- HTTP API -----------------------------------------------------------------------------

REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": [
        "rbac.authentication.TokenAuthentication",
        "rbac.authentication.SessionAuthentication",
    ],
    "DEFAULT_PERMISSION_CLASSES": ["rest_framework.permissions.IsAuthenticated"],
    "DEFAULT_PARSER_CLASSES": ["config.parsers.JSONParser"],
    "DEFAULT_RENDERER_CLASSES": ["config.renderers.JSONRenderer"],
    "DEFAULT_CONTENT_NEGOTIATION_CLASS": "config.renderers.JSONNegotiation",
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "config.errors.problem_response",
    "UNAUTHENTICATED_USER": None,
    "NUM_PROXIES": NUM_PROXIES,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Rethread",
    "DESCRIPTION": "Conversation memory for LLM agents.",
    "VERSION": "1",
    "SERVE_INCLUDE_SCHEMA": False,
    "SCHEMA_PATH_PREFIX": r"/api/v1",
    "POSTPROCESSING_HOOKS": [
        "drf_spectacular.hooks.postprocess_schema_enums",
        "config.openapi.with_problems",
    ],
}

# --- Logs ---------------------------------------------------------------------------------

configure_structlog()
LOGGING = logging_settings(env("LOG_LEVEL"), env("LOG_FORMAT"))

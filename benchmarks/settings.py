"""The product's own settings, and addresses of views that do nothing."""

from config.settings import *  # noqa: F403

ROOT_URLCONF = "benchmarks.urls"

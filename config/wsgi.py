"""The WSGI application that gunicorn serves."""

import os

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

application = get_wsgi_application()

# gunicorn runs no system checks: without a key nothing here would be safe, so don't even start.
if not settings.SECRET_KEY:
    raise ImproperlyConfigured("SECRET_KEY is not set; see .env.example.")

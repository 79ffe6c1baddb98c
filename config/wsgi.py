"""The WSGI application that gunicorn serves."""

import os
import sys

from django.core import checks
from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")

# gunicorn starts a worker anew that ends with another status, again and again.
_GUNICORN_GIVES_UP = 3


def refuse_bad_settings() -> None:
    """End with the sentences of our own checks, which gunicorn does not run, if one is an error."""
    from config.checks import OURS

    found = checks.run_checks(tags=[OURS])
    errors = [str(each) for each in found if each.is_serious() and not each.is_silenced()]
    if errors:
        raise SystemExit("\n".join(errors))


try:
    application = get_wsgi_application()
    refuse_bad_settings()
except SystemExit as end:
    print(end.code, file=sys.stderr, flush=True)
    raise SystemExit(_GUNICORN_GIVES_UP) from end

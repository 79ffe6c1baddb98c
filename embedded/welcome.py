"""What ``make up`` prints once the product answers."""

from pathlib import Path

TENANT, PERSON = "demo", "ana"

_TEXT = """
Rethread answers at {address}/

  Pages           {address}/
  API reference   {address}/api/docs/
  Health          {address}/health/

Get a token for the API as tenant {tenant}, user {person}, password {password}:

  curl -s {address}/api/v1/auth/token -H 'Content-Type: application/json' \\
    -d '{{"tenant":"{tenant}","user_id":"{person}","password":"{password}"}}'

Make a token for an agent, fill in a demo, or run any other command beside this one:

  .venv/bin/python manage.py create_agent --tenant {tenant} --name bi
  .venv/bin/python manage.py demo

Logs are in {logs}. Ctrl-C stops everything; the data stays.
"""


def welcome(address: str, password: str, logs: Path) -> str:
    """Return the text: where the product is, how to get a token, what to run beside it."""
    return _TEXT.format(address=address, password=password, person=PERSON, tenant=TENANT, logs=logs)

"""The demo: an analyst's conversation over a small sales schema, played through the HTTP API.

`script.py` is the conversation, `sales.sql` the schema, `sales.py` runs its queries, `play.py`
is the agent, `client.py` its HTTP, `show.py` what people see. `manage.py demo` starts it.
"""

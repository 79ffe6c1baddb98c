"""Real PostgreSQL, Valkey and DynamoDB-compatible servers from packages, for one machine.

``python -m embedded.up`` serves the product, ``python -m embedded.run -- COMMAND`` runs a
command on throw-away servers, and ``embedded.pytest_plugin`` does the same for the tests.
Nothing here imports Django: the servers have to be up before settings are read.
"""

"""The HTTP API of threads, turns and context views: thin views over the model's verbs."""

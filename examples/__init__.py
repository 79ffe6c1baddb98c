"""Agents that use Rethread, to read and to run."""

"""An agent that asks back before it answers: see its README.md."""

"""What the embedded services raise."""


class CannotStart(Exception):  # noqa: N818 - it names what happened
    """Something could not be started; the text says why, and what to do next."""

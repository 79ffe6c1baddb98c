"""What the embedded services raise."""


class CannotStart(Exception):
    """Something could not be started; the text says why, and what to do next."""

"""What ends the tool with a message and exit status 2."""


class Failure(Exception):
    """Says what is wrong, and what to do about it."""

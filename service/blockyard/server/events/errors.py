"""What keeps a server from publishing events."""


class EventsUnavailable(Exception):
    """The sockets that were asked for cannot be had; the text says what to do."""

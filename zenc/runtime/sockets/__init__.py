"""Messages over TCP connections of zenc's own: how ranks connect, and the transport."""

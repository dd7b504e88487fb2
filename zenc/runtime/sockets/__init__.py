"""Messages over TCP connections of zenc's own: the connections of ranks, and the transport."""

"""Messages between ranks: the contract of all transports; gloo, TCP connections and shared memory."""

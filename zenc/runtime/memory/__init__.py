"""Memory that goes from call to call: blocks whose pages stay, and messages between ranks of one host."""

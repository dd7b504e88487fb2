"""Collectives on another group, in the same processes: the ranks' state goes on."""

"""Groups of ranks: the communicator of each process group, what its ranks agree on, and what their hosts exchange.

process_groups ─▶ Communicator ◀─ GroupAgreement          that they hold the same, or why not
                               ◀─ host_collectives   what is no gradient: counts, states, times
"""

"""Groups of ranks: the communicator of each process group, the agreements of its ranks, and their hosts' exchanges.

process_groups ─▶ Communicator ◀─ GroupAgreement          that they hold the same, or the reason why not
                               ◀─ host_collectives   data other than gradients: counts, states, times
"""

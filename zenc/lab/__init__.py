"""Hosts on this machine with links of a set rate, made without root, and the ranks of a training script on them."""

"""Adapters to the communication of FSDP2 and torchrec: functions of the form that these call."""

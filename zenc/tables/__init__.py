"""Tables of a model: optimizers with states at the owners of rows, adapters to FSDP2 and torchrec, and publishing."""

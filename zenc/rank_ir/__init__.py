"""The rank program: the contract between a plan and everything that plays or counts it."""

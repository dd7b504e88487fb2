"""Records of the calls of a model: what they counted, for those who train, for loggers, and as a timeline."""

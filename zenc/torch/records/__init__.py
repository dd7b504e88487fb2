"""Records of the calls of a model: their statistics, for people, for loggers, and as a timeline."""

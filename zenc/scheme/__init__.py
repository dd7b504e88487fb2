"""What a scheme is, and how a syntax tree becomes one."""

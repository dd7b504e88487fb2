"""The choice of a scheme: while a job trains, and by search before it starts."""

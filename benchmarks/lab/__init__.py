"""The benchmark lab: all-reduces compared on a slow network that this machine plays."""

"""A report in one HTML file: schemes, gradients and links, and predictions beside measurements."""

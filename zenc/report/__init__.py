"""A report in one HTML file: schemes, gradients and links, and what was predicted beside what was measured."""

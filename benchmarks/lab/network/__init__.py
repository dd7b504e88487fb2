"""The slow network of the lab: hosts in network namespaces, made without root."""

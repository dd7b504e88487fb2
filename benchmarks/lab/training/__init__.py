"""Training on the lab's network: the same steps of one model, its gradients summed in several ways that take turns."""

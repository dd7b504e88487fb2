"""Any cluster at its bound: the least time of an all-reduce on it, and a scheme of trees that comes near."""

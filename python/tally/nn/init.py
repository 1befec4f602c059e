"""Initial values, in place."""

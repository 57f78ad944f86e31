"""Published settings as functions."""

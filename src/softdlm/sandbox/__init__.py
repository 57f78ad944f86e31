"""Where generated programs run: a sandbox, self-tested before use."""

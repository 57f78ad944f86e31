"""How passes are run: one pass of a given shape, slots, a queue of requests, captured graphs."""

"""`softdlm serve`: an OpenAI-compatible server with a Decoding per request.

Read in this order: settings, refusals, wire (what a request may say), asked (from a request to Decodings), tickets and
worker (the engine's thread), bodies and events (what is answered), app (the routes), run (the process).
"""

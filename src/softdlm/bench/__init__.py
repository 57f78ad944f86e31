"""`softdlm bench`: how fast a decode is on the device at hand, beside the plain loop and the device's own ceilings."""

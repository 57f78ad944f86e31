"""`softdlm bench`: decoding speed on this device, compared with the plain loop and with the device's own limits."""

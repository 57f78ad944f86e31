"""Measurements behind the paper's claims: one file per claim, for any Denoiser. Nothing is drawn here."""

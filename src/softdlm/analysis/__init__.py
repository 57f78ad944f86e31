"""The paper's claims as data: one file per claim, any Denoiser, nothing drawn."""

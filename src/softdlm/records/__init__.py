"""Everything that is kept on disk: canonical JSON, digests, atomic files, journals."""

"""One file per family; nothing outside this folder knows how a family differs from another."""

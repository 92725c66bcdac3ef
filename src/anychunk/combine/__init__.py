"""Many files as one index: parsed in parallel, then stacked, concatenated, mosaicked or grouped."""

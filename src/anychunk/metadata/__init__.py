"""Format-independent metadata: what samples mean, where they lie, how they are drawn."""

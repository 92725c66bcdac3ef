"""Plain data: what a parser returns, which version of a source it describes, and chunk grids."""

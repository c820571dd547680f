"""Worker processes for everything that a hostile document or update could stall or end: a pool, its children, and their frames."""

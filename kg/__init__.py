"""The graph: names, rules, store, queries, telemetry and the client. Knows nothing of HTTP routes and sources."""

"""The W3C's suites, sent to a running service and to its engine in this process: ``python -m tests.w3c FOLDER…``."""

DEFAULT_EXPORTERS = ("cadvisor", "node-exporter", "kepler")
"""What Prometheus is taken to scrape, unless the configuration says otherwise."""

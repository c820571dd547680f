"""The service's face: HTTP routes and the command line. Composition happens here and nowhere else."""

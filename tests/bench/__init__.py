"""Benches: measured against peers in one run, told as ratios. ``make bench`` runs them; they are not part of the suite."""

"""Whole runs: a configuration in, a trained, evaluated and exported translator out."""

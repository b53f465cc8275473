"""The default search of exports and runs: these defaults are defined here alone."""

NUM_BEAMS = 4
LENGTH_PENALTY = 0.6

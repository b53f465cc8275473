"""The search that exports and runs use unless told otherwise: the one place of these defaults.

They are those of Vaswani et al., "Attention Is All You Need", 2017, section 6.1. A `Beam` of one's
own has the same number of hypotheses and no length penalty: a score is then the log-probability.
"""

NUM_BEAMS = 4
LENGTH_PENALTY = 0.6

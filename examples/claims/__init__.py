"""The parts of `why_add_and_norm.py`: one module a claim, and the laboratory they share."""

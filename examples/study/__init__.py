"""Parts of `study_schemes.py`."""

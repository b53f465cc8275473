"""Distillation: a teacher translates a corpus, and a small student is trained on what it says.

Its results stand in the student's run directory, under `distillation/`, a folder for each stage.
"""

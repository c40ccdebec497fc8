"""How cases are made: Hypothesis strategies over the plain data of ``harness.case``.

Nothing in this package imports torch or Transformer Engine, so that cases are made fast and anywhere.
"""

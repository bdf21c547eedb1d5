"""A tape read aloud: what `derive` is made of. derivation.py is what it returns; the others are read bottom up.

Read expressions.py first.
"""

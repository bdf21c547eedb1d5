"""A student's own pass: what `check_cell` is made of, from the passes by hand to the verdict. Read by_hand.py first."""

"""The commands of `minibptt`, a file each: `add(subparsers)` says its arguments, `run(options)` does the work.

Read output.py first.
"""

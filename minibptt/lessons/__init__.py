"""The course: exercises that answer (`check`), notebooks to copy, and grading. The lessons are in the folder lessons/.

In a notebook: `from minibptt.lessons import check`. From the shell: `minibptt lessons`. For those who write lessons:
source.py says what a lesson's source looks like, registry.py how an exercise is checked: read registry.py first.
"""

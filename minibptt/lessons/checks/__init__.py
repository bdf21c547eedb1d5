"""The checks of each lesson's exercises, a file a lesson: lesson02.py for exercises 2.1, 2.2, …

Read ../answers.py first.
"""

"""Why a clock must wait for the device: a queue of work with a time of its own. It needs no other file."""

from __future__ import annotations


class Queue:
    """A device that works behind the back of the program, and a clock of its own: to see what a wait is for.

    launch(seconds) returns at once; synchronize() waits until all that was launched is done; clock() is the time now.
    """

    def __init__(self, launch=0.0):
        self.now, self.done, self.cost, self.events = 0.0, 0.0, launch, []

    def launch(self, seconds):
        self.events.append("launch")
        self.now += self.cost  # what the program itself spends on asking
        self.done = max(self.done, self.now) + seconds

    def synchronize(self):
        self.events.append("wait")
        self.now = max(self.now, self.done)

    def clock(self):
        self.events.append("clock")
        return self.now

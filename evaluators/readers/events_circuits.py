"""Programs of messages that lock their ways, played in the order of time: who asks first has its channels first.

Cores that are ahead ask for channels of their next round while others wait with those of this one, and have them where all of
theirs are free, though one that asked before waits for one of them: so nobody holds what another waits for, and neighbours get
out of step. Round by round, as other programs are played, none of this would be seen. No repetition is jumped.
"""

import numpy as np

from dse.evaluators.machine.tasks import perform_messages
from dse.evaluators.program.counts import activity, every_step
from dse.evaluators.program.rounds import Multiply, Program, Send, Vector
from dse.evaluators.readers.task_floor import floor_of
from dse.evaluators.readers.task_graph import tasks_of
from dse.evaluators.readers.timing import Machine, Timing, worked


def takes_circuits(program: Program, on: Machine) -> bool:
    """Whether everything that moves in a program is messages between cores that lock their ways on a mesh."""
    if not on.fabric.locked or program.topology != "mesh":
        return False
    return all(isinstance(step, Multiply | Vector | Send) for step, _ in every_step(program))


def play(program: Program, on: Machine) -> Timing:
    """The time of such a program: a request crosses the way, a grant comes back, and words have it until the last is there."""
    cycle = on.fabric.cycle or on.fabric.word or 1.0
    graph, ends = tasks_of(program, on, cycle)
    tasks, packets, floor = floor_of(graph)
    if not perform_messages(floor, tasks, packets):
        raise ValueError("the program waits for what never comes: its strands wait for one another")
    done = np.append(tasks.done, 0.0)  # of what nobody writes
    ready = {name: done[made].reshape(program.rows, program.cols) * cycle for name, made in ends.items()}
    busy = float(max(done.max(), floor.free.max(initial=0.0))) * cycle
    return Timing(busy, activity(program), *worked(program, on), len(tasks.kind), ready)

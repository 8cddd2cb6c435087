"""Pool of workers: one dispatch loop for work in parallel, over workers of several kinds.

`dispatch.py` has the loop and its contract, `worker_calls.py` what a worker does with a call, and `affinity.py` which item a
worker takes. The kinds are this process (`this_process.py`), threads (`threads.py`), processes of this machine
(`local_processes.py`) and actors of Ray (`ray_actors.py`); `choice.py` chooses one by the settings of a study.
"""

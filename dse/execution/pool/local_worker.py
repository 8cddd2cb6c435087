"""Main function of a worker process of this machine: calls come on a socket, replies go back.

A message is its length and a pickle. A thread reads ahead, so that this process ends with the one that started it.
"""

import copyreg
import io
import os
import pickle
import socket
import threading
from queue import SimpleQueue
from types import MappingProxyType
from typing import Any

HEADER = 8
"""Length of a message's length. [B]"""


def run_worker(descriptor: int) -> None:
    """Answer calls until the process that started this one has ended.

    Args:
        descriptor: of the socket.
    """
    connection, calls = socket.socket(fileno=descriptor), SimpleQueue[bytes]()
    threading.Thread(target=_read_calls, args=(connection, calls), daemon=True).start()
    from dse.execution.pool.worker_calls import ProcessWorker

    worker = ProcessWorker()
    while True:
        try:
            name, arguments = pickle.loads(calls.get())
            reply = pickle_value(getattr(worker, name)(*arguments))
        except Exception as error:  # what it was sent cannot be read here, or its result not be sent
            reply = pickle.dumps(f"its worker: {type(error).__name__}: {error}")
        connection.sendall(len(reply).to_bytes(HEADER) + reply)


def _read_calls(connection: socket.socket, calls: "SimpleQueue[bytes]") -> None:
    while True:
        length = int.from_bytes(_read(connection, HEADER))
        calls.put(bytes(_read(connection, length)))


def _read(connection: socket.socket, length: int) -> bytearray:
    read = bytearray()
    while len(read) < length:
        try:
            part = connection.recv(min(length - len(read), 1 << 20))
        except OSError:
            part = b""
        if not part:
            os._exit(0)
        read += part
    return read


def encode_message(content: Any) -> bytes:
    """A message of some content."""
    pickled = pickle_value(content)
    return len(pickled).to_bytes(HEADER) + pickled


def pickle_value(value: Any) -> bytes:
    """A pickle of a value, in which mappings may be read-only views.

    >>> pickle.loads(pickle_value(MappingProxyType({"a": 1})))
    mappingproxy({'a': 1})
    """
    pickled = io.BytesIO()
    pickler = pickle.Pickler(pickled, pickle.HIGHEST_PROTOCOL)
    pickler.dispatch_table = {**copyreg.dispatch_table, MappingProxyType: _reduce_view}
    pickler.dump(value)
    return pickled.getvalue()


def _reduce_view(view: Any) -> Any:
    return _view, (dict(view),)


def _view(mapping: Any) -> Any:
    return MappingProxyType(mapping)

"""The process that has loaded the program, and becomes it in a fork for each request. Its parent is `loaded`."""

import gc
import json
import os
import signal
import socket
import sys
import time
from importlib import import_module
from pathlib import Path

MODULES = (
    *("cli.command_line", "cli.serve", "cli.serving", "cli.local_connection", "cli.server_call"),
    *("cli.index_files", "cli.summary", "cli.operation_options", "server.app", "server.hook_socket"),
    *("server.mcp.streamable_http", "wiring.opening", "wiring.model_adapters", "wiring.collection_providers"),
    *("stores.sqlite.embedded", "embedders.onnx", "transfer.exporter", "transfer.importer"),
    *("ingest.preparing", "ingest.split_stores"),
)
"""Together they import what a server does. Clients of other stores are not among it: gRPC survives no fork."""


def wait(door: socket.socket) -> bool:
    """Fork for each request: true in what was forked, false once nothing more will be requested."""
    while True:
        message, streams, _, _ = socket.recv_fds(door, 1 << 20, 3)
        if not message:
            return False
        reading, writing = os.pipe()
        if not (between := os.fork()):
            if child := os.fork():
                os.write(writing, str(child).encode())
                os._exit(0)  # its child is adopted
            os.close(reading)
            os.close(writing)
            become(streams, *json.loads(message))
            return True
        os.waitpid(between, 0)
        door.send(os.read(reading, 64))
        for fd in (*streams, reading, writing):
            os.close(fd)


def become(streams: list[int], words: list[str], folder: str, variables: dict[str, str], ignores: bool) -> None:
    """Take the arguments, folder, environment, streams and heed of Ctrl-C of a process that was started."""
    for standard, (name, fd) in enumerate(zip(("stdin", "stdout", "stderr"), streams, strict=True)):
        os.dup2(fd, standard)
        os.close(fd)
        was = getattr(sys, name)
        lines = name == "stderr" or os.isatty(standard)
        now = open(standard, was.mode, -1, was.encoding, was.errors, None, False)  # noqa: SIM115
        now.reconfigure(line_buffering=lines)
        setattr(sys, name, now)
        setattr(sys, f"__{name}__", now)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    time.tzset()
    signal.signal(signal.SIGINT, signal.SIG_IGN if ignores else signal.default_int_handler)
    sys.argv[:] = words


if __name__ == "__main__":
    sys.path[0] = str(Path(sys.executable).parent)  # as the console script has it
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"
    gc.disable()
    for module in MODULES:
        import_module(f"rag_context.{module}")
    gc.freeze()  # else a collection in what is forked would write to, and so copy, every page
    from rag_context.cli import main

    with socket.socket(fileno=int(sys.argv[1])) as requests:
        forked = wait(requests)
    if forked:
        gc.enable()
        main()

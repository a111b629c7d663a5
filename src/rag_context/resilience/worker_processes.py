"""Bounded processes for whatever reads untrusted input: started when first needed, used again, ended by their limits.

What happens inside one is in `confinement` and in the module that it runs.
"""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import asdict
from threading import BoundedSemaphore, Lock, Timer

from rag_context.resilience.confinement import CutOffError, ProcessLimits, receive, send

_END_S = 5.0

_BOOT = (
    "import importlib, json, sys; args = json.loads(sys.argv[1]); sys.path[:] = args['path']; "
    "from rag_context.resilience.confinement import ProcessLimits; "
    "importlib.import_module(args['module']).run(ProcessLimits(**args['limits']))"
)
"""Isolated (-I), so that no module of the folder that is read can take a library's place."""


class WorkerFailedError(Exception):
    """A worker process ended before it answered; the message says why."""


class WorkersClosedError(Exception):
    """The processes were ended before a request was answered; nothing is known of its input."""


class WorkerProcesses(AbstractContextManager["WorkerProcesses"]):
    """At most `workers` processes, each of which serves many requests. Use as a context manager."""

    def __init__(
        self, module: str, limits: ProcessLimits, *, workers: int = 2, environment: Mapping[str, str] | None = None
    ) -> None:
        self._module = module
        self._environment = dict(environment or {})
        self._limits = limits
        self._places = BoundedSemaphore(workers)
        self._lock = Lock()
        self._idle: list[Worker] = []
        self._busy: set[Worker] = set()
        self._is_closed = False

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def end_idle(self) -> None:
        """End the processes that have nothing to do; the next request starts one again."""
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.end()

    def close(self) -> None:
        """End the processes, also those at work: a command that is ended does not wait for what they read."""
        with self._lock:
            self._is_closed = True
            for worker in self._busy:
                worker.kill()
        self.end_idle()

    @contextmanager
    def worker(self) -> Iterator["Worker"]:
        """One process for one request, from any thread; it is used again only if its `is_ready` is set at the end.

        Raises: WorkerFailedError (it cannot be started, or from a call of the worker), WorkersClosedError.
        """
        with self._places:
            worker = self._taken()
            try:
                yield worker
            except WorkerFailedError:
                if self._is_closed:  # what its end says of the input is not true
                    raise WorkersClosedError from None
                raise
            finally:
                # A caller that stops in the middle leaves the rest of the answer in the pipe: `is_ready` is false
                # then, and the process is ended instead of reused.
                self._put_back(worker)

    def _taken(self) -> "Worker":
        with self._lock:
            worker = self._idle.pop() if self._idle else None
        worker = worker or Worker(self._module, self._limits, self._environment)
        with self._lock:
            if not self._is_closed:
                self._busy.add(worker)
                return worker
        worker.end()
        raise WorkersClosedError

    def _put_back(self, worker: "Worker") -> None:
        with self._lock:
            self._busy.discard(worker)
            if worker.is_ready and not self._is_closed:
                self._idle.append(worker)
                return
        worker.end()


class Worker:
    """One process; `is_ready` for the next request, which its user says after an answer that is complete."""

    def __init__(self, module: str, limits: ProcessLimits, environment: dict[str, str]) -> None:
        self.is_ready = True
        self._limits = limits
        path = [place for place in sys.path if place]
        arguments = json.dumps({"path": path, "module": module, "limits": asdict(limits)})
        is_windows = sys.platform == "win32"
        try:
            self._process = subprocess.Popen(  # noqa: S603  # this interpreter, our own module
                [sys.executable, "-I", "-c", _BOOT, arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                # Nothing of this process's environment: a worker that a file takes over finds no keys in it. A process
                # group of its own: Ctrl-C reaches the command only, which ends its workers.
                env=None if is_windows else environment,
                process_group=None if is_windows else 0,
            )
        except OSError as error:
            raise WorkerFailedError(f"needs a process of its own, which cannot be started: {error}") from error

    def request(self, *frames: bytes) -> bytes:
        """Send a request. Returns: the first frame of the answer. Raises: WorkerFailedError."""
        self.is_ready = False
        try:
            # Sending too: a process that does not read blocks this thread once the pipe is full.
            with _killed_after(self._process, self._limits.wall_s):
                send(self._process.stdin, *frames)  # type: ignore[arg-type]  # a pipe (see Popen)
        except OSError:
            raise WorkerFailedError(self._fate()) from None
        return self.next_frame()

    def next_frame(self) -> bytes:
        """A further frame of the answer. Raises: WorkerFailedError."""
        try:
            with _killed_after(self._process, self._limits.wall_s):
                return receive(self._process.stdout)  # type: ignore[arg-type]  # a pipe (see Popen)
        except CutOffError:
            raise WorkerFailedError(self._fate()) from None

    def kill(self) -> None:
        """End the process at once; to be called from any thread. The thread that waits for it cleans up."""
        self._process.kill()

    def end(self) -> None:
        process = self._process
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                try:
                    stream.close()
                except OSError:  # unwritten data
                    continue
        # One that is ready ends by itself at the end of its input; one at work may hang.
        if not self.is_ready:
            process.kill()
        try:
            process.wait(_END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _fate(self) -> str:
        try:
            status = self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        if status == -_signal("SIGPROF"):
            return f"takes more than {self._limits.cpu_s} s of computing"
        # By the timer here, or by the system when memory ran out: the status does not tell which.
        if status == -_signal("SIGKILL"):
            return f"takes more than {self._limits.wall_s:g} s, or more memory than there is"
        return "the process that reads such input crashes on it"


@contextmanager
def _killed_after(process: "subprocess.Popen[bytes]", seconds: float) -> Iterator[None]:
    """End a process that has not answered in time."""
    timer = Timer(seconds, process.kill)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _signal(name: str) -> int:
    return int(getattr(signal, name, 0))

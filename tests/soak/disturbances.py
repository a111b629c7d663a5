"""What goes wrong. One more is one more function in `DISTURBANCES`: it disturbs a site for the time given, in seconds,
and leaves it as it was; it returns False where this site, or this machine, has no such thing."""

import random
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress

from tests.end_to_end.test_disk import file_size_limit
from tests.servers.postgres import query
from tests.servers.process import ServerProcess
from tests.soak.sites import Site

Disturbance = Callable[[Site, random.Random, float], bool]

JUMPS_S = (-86_400, -3_600, 3_600, 86_400)
DOWN_S = 2.0


def a_server_is_killed(site: Site, rng: random.Random, _lasts_s: float) -> bool:
    """SIGKILL, and a new process at once."""
    member = rng.choice(site.members)
    member.end(kill=True)
    site.start(member)
    return True


def both_servers_are_killed(site: Site, _rng: random.Random, _lasts_s: float) -> bool:
    """Nothing answers for a moment."""
    for member in site.members:
        member.end(kill=True)
    time.sleep(DOWN_S)
    for member in site.members:
        site.start(member)
    return True


def a_server_is_restarted(site: Site, rng: random.Random, _lasts_s: float) -> bool:
    """SIGTERM: it ends what is under way."""
    member = rng.choice(site.members)
    member.end(kill=False)
    site.start(member)
    return True


def a_server_is_paused(site: Site, rng: random.Random, lasts_s: float) -> bool:
    """SIGSTOP: its connections and locks stay, and it answers nothing; then it goes on."""
    member = rng.choice(site.members)
    member.send(signal.SIGSTOP)
    try:
        time.sleep(lasts_s)
    finally:
        member.send(signal.SIGCONT)
    return True


def the_disk_is_full(site: Site, _rng: random.Random, lasts_s: float) -> bool:
    """A file takes all the room that is left; where no disk can be mounted, files of the servers cannot grow."""
    with ExitStack() as stack:
        if site.disk is not None:
            filler = site.disk / "filler"
            stack.callback(filler.unlink)
            with filler.open("wb", buffering=0) as file, suppress(OSError):
                while file.write(bytes(1 << 16)):
                    pass
        elif site.postgres is None:
            for member in site.members:
                if member.running is not None:
                    stack.enter_context(file_size_limit(member.running, 1 << 20))
        else:
            return False
        time.sleep(lasts_s)
    if site.postgres is not None and not _is_there(site):  # PostgreSQL ends where its log finds no room
        site.postgres[0].restart()
    return True


def the_clock_jumps(site: Site, rng: random.Random, lasts_s: float) -> bool:
    """The wall clock of the memory's own processes, by an hour or a day, and back; PostgreSQL's stays."""
    if not site.clock.environment or site.older is not None:  # versions before 0.1.0 answered 500 to a correction then
        return False
    site.clock.set(rng.choice(JUMPS_S))
    try:
        time.sleep(lasts_s)
    finally:
        site.clock.set(0)
    return True


def the_standby_is_lost(site: Site, _rng: random.Random, lasts_s: float) -> bool:
    """Every commit waits for it: nothing may be acknowledged that it does not have."""
    if site.postgres is None:
        return False
    standby = site.postgres[1]
    standby.kill()
    time.sleep(lasts_s)
    standby.start()
    return True


def the_standby_is_paused(site: Site, _rng: random.Random, lasts_s: float) -> bool:
    """As lost, with its connection open."""
    return site.postgres is not None and _pause(site.postgres[1], lasts_s)


def the_primary_is_killed(site: Site, _rng: random.Random, _lasts_s: float) -> bool:
    """PostgreSQL dies and is started again."""
    if site.postgres is None:
        return False
    site.postgres[0].kill()
    time.sleep(DOWN_S)
    site.postgres[0].start()
    return True


def the_primary_is_paused(site: Site, _rng: random.Random, lasts_s: float) -> bool:
    """PostgreSQL answers nothing, with all connections open."""
    return site.postgres is not None and _pause(site.postgres[0], lasts_s)


DISTURBANCES: Sequence[Disturbance] = (
    a_server_is_killed,
    a_server_is_paused,
    the_standby_is_lost,
    the_disk_is_full,
    the_clock_jumps,
    the_primary_is_killed,
    a_server_is_restarted,
    both_servers_are_killed,
    the_standby_is_paused,
    the_primary_is_paused,
)


def upgraded(site: Site) -> None:
    """The version before ends: one server after the other is replaced, and the old one works on beside the new."""
    with site.commanding(first=True):
        site.older = None
        for member in site.members:
            member.end(kill=False)
            site.start(member)


def _pause(process: ServerProcess, lasts_s: float) -> bool:
    process.freeze()
    try:
        time.sleep(lasts_s)
    finally:
        process.thaw()
    return True


def _is_there(site: Site) -> bool:
    ends = time.monotonic() + 10.0
    while time.monotonic() < ends:
        with suppress(Exception):
            query(site.settings["DATABASE_URL"], "SELECT 1")
            return True
        time.sleep(0.5)
    return False

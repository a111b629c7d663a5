"""One run: actors act, disturbances disturb, the version changes in the middle, and at the end all is checked."""

import random
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path

from tests.soak.actors import ACTORS, Acting
from tests.soak.checks import CHECKS, printed
from tests.soak.disturbances import DISTURBANCES, upgraded
from tests.soak.sites import Site, directory_site, postgres_site
from tests.soak.versions import older_source

SITES: Mapping[str, Callable[[Path, Path | None], AbstractContextManager[Site]]] = {
    "directory": directory_site,
    "postgres": postgres_site,
}
SAMPLE_S = 5.0


@dataclass(frozen=True)
class Plan:
    """How long, and how hard.

    Attributes:
        minutes: how long the sites are used and disturbed; starting and checking come on top.
        lasts_s: how long a disturbance lasts, at least and at most.
        calm_s: what is between two of them, at least and at most.
        older: finds the version to begin with; None: this one.
    """

    minutes: float
    seed: int
    lasts_s: tuple[float, float] = (3.0, 12.0)
    calm_s: tuple[float, float] = (8.0, 30.0)
    older: Callable[[], tuple[str, Path] | None] = older_source


def soak(plan: Plan, names: Sequence[str], *, is_json: bool = False, logs: Path | None = None) -> int:
    """Run it; returns how many things were not as they should be, after having printed the rest."""
    with tempfile.TemporaryDirectory(prefix="rag-context-soak-") as name, ExitStack() as stack:
        root = Path(name)
        root.chmod(0o755)
        older = plan.older()
        print(f"begins with {f'commit {older[0]}' if older else 'this version: there is no history'}", flush=True)
        sites = []
        for site in names:
            (root / site).mkdir()
            sites.append(stack.enter_context(SITES[site](root / site, older[1] if older else None)))
        runs = [threading.Thread(target=run, args=(site, plan, root / site.name), daemon=True) for site in sites]
        for thread in runs:
            thread.start()
        for thread in runs:
            thread.join()
        if logs is not None:
            for file in (file for site in sites for file in site.root.rglob("*.log")):
                shutil.copy(file, logs / f"{file.parent.name}-{file.name}")
        print(printed(sites, is_json=is_json), flush=True)
        return sum(len(site.record.complaints) for site in sites)


def run(site: Site, plan: Plan, folder: Path) -> None:
    """The life of one site. What breaks the run itself is a complaint, too."""
    try:
        _lived(site, plan, folder)
    except Exception as error:  # noqa: BLE001 — whatever it is, it is reported
        site.record.complain(f"the run ended early: {error!r}")


def _lived(site: Site, plan: Plan, folder: Path) -> None:
    rng = random.Random(f"{plan.seed} {site.name}")
    acting = [Acting(kind(site, random.Random(rng.random()), folder)) for kind in ACTORS]
    over = threading.Event()
    sampling = threading.Thread(target=_sample, args=(site, over), daemon=True)
    for thread in (*acting, sampling):
        thread.start()
    try:
        _disturb(site, plan, rng)
    finally:
        for actor in acting:
            actor.end()
            actor.actor.close()
        over.set()
        sampling.join()
    site.wait_healthy()
    for actor in acting:
        actor.actor.finish()
    site.wait_healthy()
    for check in CHECKS:
        began = time.monotonic()
        for complaint in check(site):
            site.record.complain(complaint)
        print(f"{site.name}: {check.__name__.replace('_', ' ')} ({time.monotonic() - began:.0f} s)", flush=True)


def _disturb(site: Site, plan: Plan, rng: random.Random) -> None:
    began = time.monotonic()
    ends, middle = (began + 60.0 * plan.minutes * part for part in (1.0, 0.5))
    order: list[int] = []
    while time.monotonic() < ends:
        time.sleep(min(rng.uniform(*plan.calm_s), max(ends - time.monotonic(), 0.0)))
        if time.monotonic() >= ends:
            break
        if site.older is not None and time.monotonic() > middle:
            with site.record.disturbance("the version is upgraded"):
                upgraded(site)
            continue
        order = order or rng.sample(range(len(DISTURBANCES)), len(DISTURBANCES))
        disturbance = DISTURBANCES[order.pop()]
        if site.postgres is None and ("standby" in disturbance.__name__ or "primary" in disturbance.__name__):
            continue
        with site.record.disturbance(disturbance.__name__.replace("_", " ")):
            try:
                if not disturbance(site, rng, rng.uniform(*plan.lasts_s)):
                    site.record.interrupted[f"not here: {disturbance.__name__}"] += 1
            except Exception as error:  # noqa: BLE001 — whatever it is, it is reported
                site.record.complain(f"{disturbance.__name__}: {error!r}")
            site.revive()
        done = sum(site.record.done.values())
        print(f"{site.name}: {time.monotonic() - began:.0f} s, {done} done", flush=True)


def _sample(site: Site, over: threading.Event) -> None:
    while not over.wait(SAMPLE_S):
        for member in site.members:
            running = member.running
            if running is not None and running.process.poll() is None:
                site.record.sample(running.process.pid)

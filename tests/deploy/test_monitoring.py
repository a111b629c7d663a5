"""What Prometheus and Grafana read: promtool accepts it, alerts fire for their faults, queries name real metrics."""

import asyncio
import json
import logging
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from rag_context.errors import BackendRejectedError, BackendUnavailableError
from rag_context.memory import changing
from rag_context.memory.meters import METRICS
from rag_context.server.peers import labelled
from rag_context.testing import Fault
from tests.deploy.files import ROOT
from tests.memory.harness import ServiceHarness

PROMETHEUS = ROOT / "deploy" / "prometheus"
ALERTS = PROMETHEUS / "alerts.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "rag-context.json"
NAME = re.compile(r"\b(?:rag|process)_\w+|\bup\b")
OF_HISTOGRAMS = ("_bucket", "_sum", "_count")


def promtool(*arguments: str | Path, stdin: bytes = b"") -> tuple[int, str]:
    """Status and output. A machine without promtool fails these tests: what was not checked must not look checked."""
    own = Path(sys.executable).with_name("promtool")
    program = str(own) if own.exists() else shutil.which("promtool")
    assert program is not None, "promtool is missing: run `make promtool`"
    ran = subprocess.run([program, *arguments], input=stdin, capture_output=True, check=False, timeout=60)
    return ran.returncode, (ran.stdout + ran.stderr).decode()


@pytest.fixture
async def metrics() -> bytes:
    """The metrics of a service in which something of each kind has happened."""
    harness = ServiceHarness()
    await harness.bound.bind()
    body = "Foxes hunt mice."
    await harness.index(body)
    await harness.search("foxes", agent="oracle")
    harness.writer.fault = Fault(BackendRejectedError("documents", "disk full"))
    with pytest.raises(BackendRejectedError):
        await harness.index("Owls hunt mice.", source="other")
    harness.documents.fault = Fault(BackendUnavailableError("documents", "locked"))
    await harness.search("mice")
    with harness.service.counting_log_records():
        logging.getLogger("rag_context.server.tokens").warning("the keys cannot be read")
    return await harness.service.prometheus()


def families(text: bytes) -> dict[str, Metric]:
    """The metrics of a text by the names that Prometheus stores."""
    found = text_string_to_metric_families(text.decode())
    return {f"{each.name}_total" if each.type == "counter" else each.name: each for each in found}


def names_in(expression: str) -> set[str]:
    """The metrics that a query reads."""
    selected = re.sub(r'"[^"]*"|\b(?:by|without) \([^)]*\)', "", expression)
    return {name for name in NAME.findall(selected) if name != "up"}


def is_exposed(name: str) -> bool:
    """Whether /metrics has a metric of this name."""
    if name in METRICS:
        return METRICS[name].kind != "histogram"
    base = next((name.removesuffix(end) for end in OF_HISTOGRAMS if name.endswith(end)), name)
    return base in METRICS and METRICS[base].kind == "histogram"


def queries(node: Any) -> list[str]:
    """Every query of a dashboard."""
    if isinstance(node, dict):
        own = [node["expr"]] if "expr" in node else []
        return own + [query for value in node.values() for query in queries(value)]
    return [query for value in node for query in queries(value)] if isinstance(node, list) else []


def test_metrics_are_those_that_are_declared(metrics: bytes) -> None:
    """W-2: names, types and labels; the documentation is generated from the declarations."""
    exposed = families(labelled({1: metrics}))
    kinds = {"unknown": "untyped"}

    assert {name: kinds.get(each.type, each.type) for name, each in exposed.items()} == {
        name: each.kind for name, each in METRICS.items()
    }
    for name, each in exposed.items():
        labels = {label for sample in each.samples for label in sample.labels} - {"le"}
        assert labels == {*METRICS[name].labels, "worker"}, name
        assert each.documentation == METRICS[name].description


def test_promtool_finds_nothing_wrong_with_the_metrics(metrics: bytes) -> None:
    assert promtool("check", "metrics", stdin=metrics) == (0, "")
    assert promtool("check", "metrics", stdin=labelled({1: metrics, 2: None})) == (0, "")


def test_promtool_would_notice_a_gauge_that_is_called_a_total(metrics: bytes) -> None:
    status, output = promtool(
        "check", "metrics", stdin=metrics.replace(b"rag_vectors_total untyped", b"rag_vectors_total gauge")
    )

    assert (status, "rag_vectors_total" in output) == (3, True)


def test_a_failed_write_is_counted_by_component(metrics: bytes) -> None:
    assert b'rag_errors_total{component="documents",operation="index"} 1.0' in metrics


class _NoJournal:
    async def due(self, *_given: object) -> list[Any]:
        raise BackendUnavailableError("documents", "gone")


async def test_sweeps_that_fail_and_warnings_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    service, logger = ServiceHarness().service, logging.getLogger("rag_context.server.tokens")
    monkeypatch.setattr(changing, "SWEEP_EVERY_S", 0.01)
    monkeypatch.setattr(service.changes, "_journal", _NoJournal())
    with service.counting_log_records():
        logger.warning("the keys cannot be read")
        logger.info("nothing to worry about")
        sweeping = asyncio.create_task(service.changes.run())
        async with asyncio.timeout(30):
            while b'rag_errors_total{component="documents",operation="expire"}' not in await service.prometheus():
                await asyncio.sleep(0.02)
        sweeping.cancel()
    logger.warning("after that no server counts")
    counted = b'rag_log_records_total{level="warning",logger="rag_context.server.tokens"} 1.0'
    assert counted in await service.prometheus()


def test_every_alert_fires_for_its_fault_and_is_silent_otherwise() -> None:
    status, output = promtool("test", "rules", PROMETHEUS / "alerts_test.yml")

    assert status == 0, output


def test_each_alert_has_a_test_in_which_it_fires() -> None:
    rules = [rule["alert"] for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"] for rule in group["rules"]]
    tested = (PROMETHEUS / "alerts_test.yml").read_text("utf-8")
    firing = set(re.findall(r'alertname="(\w+)",alertstate="firing"', tested)) | set(
        re.findall(r"alertname: (\w+)\n +eval_time: \w+\n +exp_alerts: \[\{", tested)
    )

    assert firing == set(rules)


def test_the_configuration_of_prometheus_is_valid_and_finds_the_rules() -> None:
    status, output = promtool("check", "config", PROMETHEUS / "prometheus.yml")

    assert (status, "rules found" in output) == (0, True), output


def test_alerts_and_dashboard_read_only_metrics_that_exist() -> None:
    rules = [rule["expr"] for group in yaml.safe_load(ALERTS.read_text("utf-8"))["groups"] for rule in group["rules"]]
    shown = queries(json.loads(DASHBOARD.read_text("utf-8")))
    used = {name for query in (*rules, *shown) for name in names_in(query)}

    assert len(shown) > 30
    assert {name for name in used if not is_exposed(name)} == set()
    assert not is_exposed("rag_latency_seconds")
    assert not is_exposed("rag_vectors")


def test_every_query_of_the_dashboard_is_valid(tmp_path: Path) -> None:
    """Grafana fills in its variables; Prometheus reads the rest as it reads a rule."""
    shown = queries(json.loads(DASHBOARD.read_text("utf-8")))
    filled = [query.replace("$__rate_interval", "5m").replace("$instance", ".*") for query in shown]
    rules = [{"record": f"panel:{number}", "expr": query} for number, query in enumerate(filled)]
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))
    status, output = promtool("check", "rules", file)

    assert (status, f"{len(shown)} rules found" in output) == (0, True), output
    assert not [query for query in filled if "$" in query]


def test_panels_do_not_overlap_and_have_ids_of_their_own() -> None:
    panels = json.loads(DASHBOARD.read_text("utf-8"))["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)

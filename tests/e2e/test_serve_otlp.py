# SPDX-License-Identifier: Apache-2.0
"""The numbers of the service at an OpenTelemetry collector, read by the protocol's own definitions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from google.protobuf.json_format import Parse
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

from tests.e2e import needs
from tests.e2e.collectors import web
from tests.e2e.serving import Lab, until
from tests.e2e.test_cpus import above
from tests.ports import free_port
from wirewise.compiler import compile
from wirewise.feature_sets import FeatureSet

pytestmark = needs.marks()


def numbers(body: bytes) -> dict[str, float]:
    """Named as the lines of `/metrics` are."""
    request = Parse(body, ExportMetricsServiceRequest())
    (resource,) = request.resource_metrics
    attributes = {it.key: it.value.string_value for it in resource.resource.attributes}
    assert attributes["service.name"] == "wirewised"
    assert attributes["host.name"] == Path("/proc/sys/kernel/hostname").read_text().strip()
    (scope,) = resource.scope_metrics
    found: dict[str, float] = {}
    for metric in scope.metrics:
        kind = metric.WhichOneof("data")
        name = metric.name + ("_total" if kind == "sum" else "")
        assert kind != "sum" or (metric.sum.is_monotonic and metric.sum.aggregation_temporality == 2)
        for point in getattr(metric, kind).data_points:
            labels = ",".join(f'{it.key}="{it.value.string_value}"' for it in point.attributes)
            found[f"{name}{{{labels}}}" if labels else name] = point.as_int + point.as_double
    return found


def health(lab: Lab) -> dict[str, Any]:
    return dict(lab.state()["otlp"])


def own(lab: Lab, numbers: dict[str, float]) -> dict[str, float]:
    """The counts of this interface's packets and flows, which rest."""
    return {name: it for name, it in numbers.items() if f'"{lab.made.receiver}"' in name and "_total" in name}


def test_a_collector_gets_the_numbers_that_metrics_has(lab: Lab) -> None:
    port = free_port()
    (lab.folder / "token").write_text("a-secret\n")
    url = f"http://127.0.0.1:{port}/v1/metrics?key=1"
    lab.write(lab.entry(), otlp={"url": url, "every": "1s", "token_file": "token"})
    lab.start()
    until("it is kept", lab.kept)
    lab.send(15)
    until("it is said that nobody is there", lambda: health(lab)["error"])
    assert "key" not in health(lab)["to"]
    with web(port, 503) as requests:
        wanted = own(lab, lab.metrics())
        assert len(wanted) > 10
        until("it has the numbers", lambda: requests[1:] and own(lab, numbers(requests[-1].body)) == wanted)
        assert requests[0].status == 503
        assert requests[0].path == "/v1/metrics?key=1"
        assert requests[0].headers["Authorization"] == "Bearer a-secret"
        until("nothing is wrong", lambda: health(lab)["error"] is None)
    counted = {
        it: lab.metrics()[f'wirewise_serve_otlp_exports_total{{result="{it}"}}'] for it in ("taken", "failed")
    }
    assert counted["taken"] >= 1
    assert counted["failed"] >= 2


def test_names_that_hold_quotation_marks_break_no_line(lab: Lab) -> None:
    port, name = free_port(), 'at"tack\\'
    feature_set = FeatureSet("counted", ["count"], sharing="shared")
    made = compile(above(10), feature_set, name="quoted", classes=["benign", name], verify="never")
    made.bundle.write(lab.folder / "quoted.wirewise")
    lab.write(
        lab.entry(bundle="quoted.wirewise"),
        otlp={"url": f"http://127.0.0.1:{port}/v1/metrics", "every": "1s"},
    )
    with web(port) as requests:
        lab.start()
        until("it is kept", lab.kept)
        lab.send(15)
        until("they are there", lambda: any(name in it for body in requests for it in numbers(body.body)))
    # As OpenMetrics escapes them, and as JSON does.
    assert any(f"class={json.dumps(name)}" in it for it in lab.metrics())

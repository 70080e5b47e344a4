# SPDX-License-Identifier: Apache-2.0
"""The files in contrib/ for collectors can be parsed, and name what the service has; no registry has any."""

from __future__ import annotations

import configparser
import re
from pathlib import Path
from xml.etree import ElementTree

import yaml

FOLDER = Path(__file__).parents[2] / "contrib/collectors"
EVE = "/var/log/wirewise/eve.json"


def test_each_file_is_in_the_readme() -> None:
    files = {str(file.relative_to(FOLDER)) for file in FOLDER.rglob("*") if file.is_file()} - {"README.md"}
    named = set(re.findall(r"`(\w[\w/-]+\.\w+)`", (FOLDER / "README.md").read_text()))
    assert named - {"ossec.conf"} == files


def test_yaml_leads_from_the_service_to_an_output() -> None:
    vector = yaml.safe_load((FOLDER / "vector.yaml").read_text())
    (source,) = vector["sources"].values()
    assert f"unix_stream: {source['path']}" in (FOLDER / "vector.yaml").read_text()
    known = {*vector["sources"], *vector["transforms"]}
    for stage in (*vector["transforms"].values(), *vector["sinks"].values()):
        assert set(stage["inputs"]) <= known
    bit = yaml.safe_load((FOLDER / "fluent-bit.yaml").read_text())
    (tail,) = bit["pipeline"]["inputs"]
    assert (tail["path"], tail["parser"]) == (EVE, bit["parsers"][0]["name"])
    assert all(output["match"] == tail["tag"] for output in bit["pipeline"]["outputs"])


def test_other_formats_can_be_parsed() -> None:
    wazuh = ElementTree.parse(FOLDER / "wazuh.xml").getroot()
    assert [wazuh.findtext(f"localfile/{name}") for name in ("log_format", "location")] == ["json", EVE]
    inputs, props = configparser.RawConfigParser(), configparser.RawConfigParser()
    inputs.read(FOLDER / "splunk/inputs.conf")
    props.read(FOLDER / "splunk/props.conf")
    assert inputs.get(f"monitor://{EVE}", "sourcetype") in props
    logstash = (FOLDER / "logstash.conf").read_text()
    assert f'path => "{EVE}"' in logstash
    assert logstash.count("{") - logstash.count("[{") == logstash.count("}") - logstash.count("}]")
    assert re.findall(r"^(\w+) \{$", logstash, re.MULTILINE) == ["input", "filter", "output"]

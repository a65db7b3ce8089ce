"""Containers, Compose and Kubernetes start commands that reput has, on ports and paths that fit each other."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from support.paths import ROOT
from typer.main import get_command

from reput.streaming.cli.app import application
from reput.streaming.config.pipeline import PIPELINE_OPTIONS

DEPLOY = ROOT / "conf" / "deploy"
CONTAINER, KUBERNETES = DEPLOY / "container", DEPLOY / "kubernetes"
CONTAINERFILE = (CONTAINER / "Containerfile").read_text()
COMPOSE = yaml.safe_load((CONTAINER / "compose.yaml").read_text())
STATEFUL = {each["kind"]: each for each in yaml.safe_load_all((KUBERNETES / "statefulset.yaml").read_text())}
POD = STATEFUL["StatefulSet"]["spec"]["template"]["spec"]
SPARK_OPERATOR = yaml.safe_load((KUBERNETES / "spark-operator.yaml").read_text())["spec"]
KUBERNETES_OPERATOR = yaml.safe_load((KUBERNETES / "spark-kubernetes-operator.yaml").read_text())["spec"]
OPERATOR_POD = KUBERNETES_OPERATOR["driverSpec"]["podTemplateSpec"]["spec"]


def instruction(name: str) -> Any:
    """The last instruction of that name in the Containerfile, which is JSON."""
    return json.loads(re.findall(rf"^\s*{name} (\[.*\])$", CONTAINERFILE, re.MULTILINE)[-1])


ARGUMENTS = {
    "Containerfile": instruction("CMD"),
    "compose.yaml": COMPOSE["services"]["reput"]["command"],
    "statefulset.yaml": POD["containers"][0]["args"],
    "spark-operator.yaml": SPARK_OPERATOR["arguments"],
    "spark-kubernetes-operator.yaml": KUBERNETES_OPERATOR["driverArgs"],
}


@pytest.mark.parametrize("file", ARGUMENTS)
def test_the_command_is_one_of_reput(file: str) -> None:
    """With the options that it needs, and settings that there are."""
    name, *words = ARGUMENTS[file]
    command: Any = get_command(application()).commands[name]  # type: ignore[attr-defined]
    parsed, rest, _ = command.make_parser(command.context_class(command)).parse_args(list(words))
    assert rest == []
    assert {each.name for each in command.params if each.required} <= set(parsed)
    names = {option.name for option in PIPELINE_OPTIONS}
    assert {text.partition("=")[0] for text in parsed.get("option", ())} <= names
    paths = [parsed["store"], parsed["output"], *filter(None, [parsed.get("table"), parsed.get("broker_conf")])]
    mounts = {
        "Containerfile": ["/store", "/data"],
        "compose.yaml": [each.split(":")[1] for each in COMPOSE["services"]["reput"]["volumes"]],
        "statefulset.yaml": [each["mountPath"] for each in POD["containers"][0]["volumeMounts"]],
        "spark-operator.yaml": [each["mountPath"] for each in SPARK_OPERATOR["driver"]["volumeMounts"]],
        "spark-kubernetes-operator.yaml": [each["mountPath"] for each in OPERATOR_POD["containers"][0]["volumeMounts"]],
    }[file]
    assert [path for path in paths if not any(f"{path}/".startswith(f"{mount}/") for mount in mounts)] == []


def test_the_image_has_what_the_package_is_made_of() -> None:
    """Every file that is copied exists, and .containerignore does not exclude it."""
    ignored = (ROOT / ".containerignore").read_text().splitlines()
    for text in (CONTAINERFILE, (CONTAINER / "Containerfile.spark").read_text()):
        copied = [
            name for line in re.findall(r"^COPY (?!--from)(.*) /src/\S*$", text, re.MULTILINE) for name in line.split()
        ]
        assert {"reput", "source", "sinks", "streaming", "pyproject.toml"} <= set(copied)
        assert {f"!{name}" for name in copied} == {line for line in ignored if line.startswith("!")}
        assert all((ROOT / name).exists() for name in copied)
    assert "*" in ignored
    assert re.findall(r"^USER (.*)$", CONTAINERFILE, re.MULTILINE) == ["10001:10001"]
    assert instruction("ENTRYPOINT")[-1] == "reput"
    assert "metricsPort=9464" in instruction("CMD")
    assert re.search(r"^HEALTHCHECK .*\n\s+CMD .*localhost:9464/healthz", CONTAINERFILE, re.MULTILINE)


def test_nobody_writes_into_the_store_but_the_broker() -> None:
    """Reput's mount of it is read-only everywhere."""
    writers = {
        name
        for name, service in COMPOSE["services"].items()
        if any(volume.startswith("store:") and not volume.endswith(":ro") for volume in service.get("volumes", ()))
    }
    assert writers == {"store", "broker"}
    for mounts in (
        POD["containers"][0]["volumeMounts"],
        SPARK_OPERATOR["driver"]["volumeMounts"],
        OPERATOR_POD["containers"][0]["volumeMounts"],
    ):
        assert {mount["name"]: mount.get("readOnly", False) for mount in mounts}["store"]


def test_the_files_that_compose_mounts_are_there() -> None:
    """Beside it, and Prometheus asks for the port that reput serves."""
    for service in COMPOSE["services"].values():
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert (CONTAINER / source).exists() if source.startswith(".") else source in COMPOSE["volumes"]
    configuration = yaml.safe_load((CONTAINER / "prometheus.yml").read_text())
    (job,) = configuration["scrape_configs"]
    assert (job["job_name"], job["static_configs"]) == ("reput", [{"targets": ["reput:9464"]}])


def test_probes_ask_for_what_they_mean() -> None:
    """A pod is killed for a main loop that stands still, and never for a query that waits."""
    for container in (POD["containers"][0], OPERATOR_POD["containers"][0]):
        assert container["livenessProbe"]["httpGet"]["path"] == "/healthz"
        assert container["readinessProbe"]["httpGet"]["path"] == "/readyz"
        assert 9464 in {port["containerPort"] for port in container["ports"]}
    options = STATEFUL["ConfigMap"]["data"]["reput.toml"]
    assert set(re.findall(r"^(\w+) = ", options, re.MULTILINE)) <= {option.name for option in PIPELINE_OPTIONS}
    assert POD["securityContext"]["runAsUser"] == 10001
    assert POD["terminationGracePeriodSeconds"] >= 60

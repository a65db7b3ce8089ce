"""Compose and Kubernetes read the files: docker-compose of Debian, Kubernetes' own schemas from PyPI, and CRDs.

The operators' CRDs are in no package: `make deploy-check CRDS=DIRECTORY` gives a directory with their files
(`config/crd/bases` of kubeflow/spark-operator, `build-tools/helm/spark-kubernetes-operator/crds` of the other).
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from support.paths import ROOT

pytestmark = pytest.mark.deploy

DEPLOY = ROOT / "conf" / "deploy"
KUBERNETES = DEPLOY / "kubernetes"
KUBERNETES_VERSION = "1.28"
CRDS = os.environ.get("REPUT_CRDS")


def test_compose_takes_the_file() -> None:
    """Names, values, and what services depend on."""
    done = subprocess.run(
        ["docker-compose", "--file", DEPLOY / "container" / "compose.yaml", "config", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["ConfigMap", "Service", "StatefulSet"])
def test_kubernetes_knows_each_field(kind: str) -> None:
    """Its own schema, in which a field that it does not know is an error."""
    (found,) = [
        each for each in yaml.safe_load_all((KUBERNETES / "statefulset.yaml").read_text()) if each["kind"] == kind
    ]
    kubernetes_validate.validate(found, KUBERNETES_VERSION, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate({**found, "unknown": 1}, KUBERNETES_VERSION, strict=True)


def strict(schema: Any) -> Any:
    """A CRD's schema in which a field that it does not name is an error, as for `kubectl --validate=strict`."""
    if isinstance(schema, list):
        return [strict(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: strict(each) for name, each in schema.items()}
    if isinstance(made.get("properties"), dict) and "additionalProperties" not in made:
        made["additionalProperties"] = bool(made.get("x-kubernetes-preserve-unknown-fields"))
    if made.pop("x-kubernetes-int-or-string", False):
        made.pop("type", None)
    return made


@pytest.mark.skipif(CRDS is None, reason="no CRDs: make deploy-check CRDS=DIRECTORY")
@pytest.mark.parametrize("file", ["spark-operator.yaml", "spark-kubernetes-operator.yaml"])
def test_an_operator_knows_each_field(file: str) -> None:
    """By the schema of its custom resource."""
    manifest = yaml.safe_load((KUBERNETES / file).read_text())
    group, _, version = manifest["apiVersion"].partition("/")
    found = [crd for path in Path(str(CRDS)).rglob("*.yaml") for crd in yaml.safe_load_all(path.read_text()) if crd]
    (schema,) = [
        served["schema"]["openAPIV3Schema"]
        for crd in found
        if crd.get("kind") == "CustomResourceDefinition"
        and (crd["spec"]["group"], crd["spec"]["names"]["kind"]) == (group, manifest["kind"])
        for served in crd["spec"]["versions"]
        if served["name"] == version
    ]
    wanted = strict(schema)
    wanted["properties"] |= {"metadata": {"type": "object"}, "apiVersion": {}, "kind": {}}
    jsonschema.validate(manifest, wanted)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**manifest, "spec": {**manifest["spec"], "unknown": 1}}, wanted)

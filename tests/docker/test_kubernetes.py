"""The Kubernetes manifests: the API's own schemas take them, and they fit each other and the commands they start."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from flows.machines.placement import place_run
from flows.services.container import ROLES, read_settings
from tests.docker.conftest import DOCKER, load_compose
from tests.needs import import_package, needs

FOLDER = DOCKER / "kubernetes"
VERSIONS = ("1.31", "1.37")
TEMPLATE = FOLDER / "base-job-template.json"
TOLERANT = {"tolerations": [{"key": "gpu", "operator": "Exists"}]}


def _documents() -> Iterator[tuple[str, dict[str, Any]]]:
    for path in sorted(FOLDER.glob("*.yaml")):
        if path.name != "kustomization.yaml":
            for document in yaml.safe_load_all(path.read_text()):
                yield f"{path.stem}-{document['kind']}-{document['metadata']['name']}", document


DOCUMENTS = dict(_documents())


def _named(*kinds: str) -> dict[str, dict[str, Any]]:
    return {document["metadata"]["name"]: document for document in DOCUMENTS.values() if document["kind"] in kinds}


def _pods(documents: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    found = {name: document.get("spec", {}).get("template", {}).get("spec") for name, document in documents.items()}
    return {name: pod for name, pod in found.items() if pod}


def _job(**values: Any) -> dict[str, Any]:
    """Fill in the base job template as Prefect does: defaults, and what a deployment says."""
    from prefect.utilities.templating import apply_values

    template = json.loads(TEMPLATE.read_text())
    defaults = {name: item["default"] for name, item in template["variables"]["properties"].items()}
    filled: dict[str, Any] = apply_values(template["job_configuration"], {**defaults, "name": "run", **values})
    job: dict[str, Any] = filled["job_manifest"]
    container = job["spec"]["template"]["spec"]["containers"][0]
    container["env"] = [{"name": name, "value": value} for name, value in container["env"].items()]
    container["args"] = ["prefect", "flow-run", "execute"]
    return job


def _without_prefects_own(job: dict[str, Any]) -> dict[str, Any]:
    """Take out two fields that prefect-kubernetes insists on and the API knows elsewhere (it drops them)."""
    template = job["spec"]["template"]
    pod = {name: value for name, value in template["spec"].items() if name not in ("parallelism", "completions")}
    return {**job, "spec": {**job["spec"], "template": {**template, "spec": pod}}}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", DOCUMENTS)
def test_the_schemas_take_every_manifest(name: str, version: str) -> None:
    kubernetes_validate.validate(DOCUMENTS[name], version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("values", [{}, {"gpus": 2, "image": "graphmill:cuda", "env": {"A": "1"}, **TOLERANT}])
def test_the_schemas_take_the_job_of_a_run(values: dict[str, Any], version: str) -> None:
    from prefect.utilities.templating import find_placeholders

    job = _job(**values)
    assert not find_placeholders(job)
    kubernetes_validate.validate(_without_prefects_own(job), version, strict=True)


def test_a_misspelt_field_would_be_seen() -> None:
    job = _without_prefects_own(_job())
    job["spec"]["template"]["spec"]["containers"][0]["volumeMount"] = []
    with pytest.raises(kubernetes_validate.ValidationError, match="volumeMount"):
        kubernetes_validate.validate(job, VERSIONS[-1], strict=True)


def test_prefects_own_class_takes_the_template(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = import_package(monkeypatch, "prefect-kubernetes", "prefect_kubernetes.worker")
    import asyncio

    make = worker.KubernetesWorkerJobConfiguration.from_template_and_values
    # No block or variable is named, so that no server is asked: any client will do.
    configuration = asyncio.run(make(json.loads(TEMPLATE.read_text()), {"gpus": 1}, client=object()))
    container = configuration.job_manifest["spec"]["template"]["spec"]["containers"][0]
    assert container["resources"]["limits"] == {"memory": "16Gi", "nvidia.com/gpu": 1}


PODS = _pods(DOCUMENTS)
NAMES = [*PODS, "run"]


def _pod(name: str) -> dict[str, Any]:
    """Return the pod of a document, or that of a run (Prefect is not imported where tests are only listed)."""
    return _job()["spec"]["template"]["spec"] if name == "run" else PODS[name]


@pytest.mark.parametrize("name", NAMES)
def test_pods_are_confined(name: str) -> None:
    pod = _pod(name)
    assert pod["enableServiceLinks"] is False, "a Service named mlflow would set MLFLOW_PORT=tcp://..."
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod.get("automountServiceAccountToken") is False or pod.get("serviceAccountName") == "graphmill-worker"
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        assert container["securityContext"]["allowPrivilegeEscalation"] is False
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        assert container["resources"]["limits"]["memory"]
        if container["image"].startswith("graphmill"):
            assert container["securityContext"]["readOnlyRootFilesystem"] is True


@pytest.mark.parametrize("name", NAMES)
def test_what_pods_mount_and_read_exists(name: str) -> None:
    pod = _pod(name)
    claims, maps = _named("PersistentVolumeClaim"), _named("ConfigMap")
    volumes = {volume["name"]: volume for volume in pod.get("volumes", ())}
    for volume in volumes.values():
        if "persistentVolumeClaim" in volume:
            assert volume["persistentVolumeClaim"]["claimName"] in claims
        if "configMap" in volume:
            assert volume["configMap"]["name"] in {*maps, "graphmill-template"}
        if "secret" in volume:
            keys = {item["key"] for item in volume["secret"].get("items", ())}
            assert keys <= {path.removeprefix("./secrets/") for path in _secret_files()}
    templates = {"database"} if "postgres" in name else set()
    for container in (*pod.get("initContainers", ()), *pod["containers"]):
        assert {mount["name"] for mount in container["volumeMounts"]} <= set(volumes) | templates
        for source in container.get("envFrom", ()):
            assert source["configMapRef"]["name"] in maps


def _secret_files() -> list[str]:
    return [str(secret["file"]) for secret in load_compose()["secrets"].values()]


def test_images_and_commands_are_the_composes() -> None:
    compose = load_compose()["services"]
    by_name = _named("Deployment", "StatefulSet")
    for name in ("postgres", "prefect", "mlflow"):
        container = by_name[name]["spec"]["template"]["spec"]["containers"][0]
        assert container["image"] == compose[name]["image"]
        assert container["args"] == compose[name]["command"]
    for pod in map(_pod, NAMES):
        for container in (*pod.get("initContainers", ()), *pod["containers"]):
            assert container["args"][0] in (*ROLES, "graphmill", "prefect", "postgres", "sh", "python")


def test_settings_are_read(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("a-long-password")
    given = DOCUMENTS["configuration-ConfigMap-graphmill"]["data"]
    settings = read_settings({**given, "GRAPHMILL_PASSWORD_FILE": str(tmp_path / "password")})
    assert (settings.prefect_port, settings.mlflow_port) == (4200, 5000)
    ports = {name: document["spec"]["ports"][0]["port"] for name, document in _named("Service").items()}
    assert (ports["prefect"], ports["mlflow"]) == (4200, 5000)


def test_the_machines_of_a_training_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each pod's command and environment are a recipe that loads, and name the pod that a Service gives a name to."""
    job, service = DOCUMENTS["training-Job-graphmill-train"], DOCUMENTS["training-Service-graphmill-train"]
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    container = pod["containers"][0]
    values = {item["name"]: item.get("value") for item in container["env"]}
    machines = int(values["GRAPHMILL_MACHINES"])
    assert spec["completionMode"] == "Indexed"
    assert spec["parallelism"] == spec["completions"] == machines
    for name in ("GRAPHMILL_MACHINES", "GRAPHMILL_RENDEZVOUS"):
        monkeypatch.setenv(name, values[name])
    for index in range(machines):
        monkeypatch.setenv("JOB_COMPLETION_INDEX", str(index))  # Kubernetes sets it
        filled = [re.sub(r"\$\((\w+)\)", lambda match: str(values[match[1]]), word) for word in container["args"]]
        assert filled[:2] == ["graphmill", "run"]
        train = place_run(filled[2], filled[3:], None, ssh=False).recipe.train
        assert (train.num_machines, train.machine_rank) == (machines, index)
        assert train.shared_home, "all pods mount one claim"
        host, port = train.rendezvous.split(":")
        assert host == f"{job['metadata']['name']}-0.{service['metadata']['name']}"
        assert int(port) == service["spec"]["ports"][0]["port"]
    assert pod["subdomain"] == service["metadata"]["name"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["publishNotReadyAddresses"] is True, "machines look for machine 0 before it is ready"
    assert service["spec"]["selector"] == spec["template"]["metadata"]["labels"]


def test_what_a_mended_run_cannot_help_ends_the_training() -> None:
    rules = DOCUMENTS["training-Job-graphmill-train"]["spec"]["podFailurePolicy"]["rules"]
    failing = next(rule for rule in rules if rule["action"] == "FailJob")
    assert failing["onExitCodes"]["values"] == [2], "the exit code for mistakes in recipe and data"


@needs("kubectl", shutil.which("kubectl"))
def test_kustomize_puts_it_together() -> None:
    done = subprocess.run(["kubectl", "kustomize", str(FOLDER)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for document in yaml.safe_load_all(done.stdout):
        kubernetes_validate.validate(document, VERSIONS[-1], strict=True)
        assert document["kind"] == "Namespace" or document["metadata"]["namespace"] == "graphmill"

"""The Kubernetes manifests: the API's own schemas take them, and they fit each other and the commands they start."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from configs.load import load_recipe
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
                about = document["metadata"]
                yield f"{path.stem}-{document['kind']}-{about.get('name', about.get('generateName'))}", document


DOCUMENTS = dict(_documents())
RAYS = {name: document for name, document in DOCUMENTS.items() if document["apiVersion"] == "ray.io/v1"}
"""KubeRay's, whose schemas are not among the API's: those of their pods are."""


def _named(*kinds: str) -> dict[str, dict[str, Any]]:
    return {document["metadata"]["name"]: document for document in DOCUMENTS.values() if document["kind"] in kinds}


def _ray_groups(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the groups of machines of a RayCluster, or of a RayJob's."""
    spec = document["spec"].get("rayClusterSpec", document["spec"])
    return {"head": spec["headGroupSpec"], **{group["groupName"]: group for group in spec["workerGroupSpecs"]}}


def _pod_templates() -> Iterator[tuple[str, dict[str, Any]]]:
    for name, document in DOCUMENTS.items():
        if name in RAYS:
            yield from ((f"{name}-{group}", found["template"]) for group, found in _ray_groups(document).items())
        elif "template" in document.get("spec", {}):
            yield name, document["spec"]["template"]


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
@pytest.mark.parametrize("name", [name for name in DOCUMENTS if name not in RAYS])
def test_the_schemas_take_every_manifest(name: str, version: str) -> None:
    kubernetes_validate.validate(DOCUMENTS[name], version, strict=True)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", RAYS)
def test_the_schemas_take_the_pods_of_a_ray_cluster(name: str, version: str) -> None:
    for group in _ray_groups(RAYS[name]).values():
        pod = {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "x"}, "template": group["template"]}
        kubernetes_validate.validate(pod, version, strict=True)


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


PODS = {name: template["spec"] for name, template in _pod_templates()}
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
            assert volume["secret"]["secretName"] == "graphmill"
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
            first = container.get("args", ["ray"])[0]  # KubeRay has the commands of Ray's containers
            assert first in ("ray", *ROLES, "graphmill", "prefect", "postgres", "sh", "python")


def test_settings_are_read(tmp_path: Path) -> None:
    (tmp_path / "password").write_text("a-long-password")
    given = DOCUMENTS["configuration-ConfigMap-graphmill"]["data"]
    settings = read_settings({**given, "GRAPHMILL_PASSWORD_FILE": str(tmp_path / "password")})
    assert (settings.prefect_port, settings.mlflow_port) == (4200, 5000)
    ports = {name: document["spec"]["ports"][0]["port"] for name, document in _named("Service").items()}
    assert (ports["prefect"], ports["mlflow"]) == (4200, 5000)


@pytest.mark.parametrize("name", RAYS)
def test_machines_of_a_ray_cluster_keep_strangers_out(name: str) -> None:
    """They ask for a token that a Secret has, and the network policy finds them."""
    (policy,) = (document for document in DOCUMENTS.values() if document["metadata"].get("name") == "graphmill-ray")
    named = RAYS[name]["spec"].get("rayClusterSpec", {}).get("authOptions")
    for group in _ray_groups(RAYS[name]).values():
        labels, pod = group["template"]["metadata"]["labels"], group["template"]["spec"]
        assert policy["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
        for container in pod["containers"]:
            values = {item["name"]: item for item in container["env"]}
            if named is None:
                assert values["RAY_AUTH_MODE"]["value"] == "token"
                assert values["RAY_AUTH_TOKEN"]["valueFrom"]["secretKeyRef"] == {
                    "name": "graphmill-ray",
                    "key": "auth_token",
                }
    assert named in (None, {"mode": "token", "secretName": "graphmill-ray"})


@pytest.mark.parametrize("name", RAYS)
def test_machines_of_a_ray_cluster_fetch_what_they_read(name: str) -> None:
    """The head alone has the home; the others have room for what recipes let them keep."""
    for group, found in _ray_groups(RAYS[name]).items():
        pod = found["template"]["spec"]
        assert any("persistentVolumeClaim" in volume for volume in pod["volumes"]) == (group == "head")
        ray = pod["containers"][0]
        mounts = {mount["mountPath"]: mount["name"] for mount in ray["volumeMounts"]}
        written = {
            item["name"]: item.get("value", "") for item in ray["env"] if item["name"].endswith(("_HOME", "_DIR"))
        }
        assert all(f"/{path.split('/')[1]}" in mounts for path in written.values()), "the root is read-only"
        sizes = {volume["name"]: volume["emptyDir"]["sizeLimit"] for volume in pod["volumes"] if "emptyDir" in volume}
        if group != "head":
            assert int(sizes[mounts["/cache"]].removesuffix("Gi")) > load_recipe("quickstart").cluster.cache_gb


def test_a_ray_job_runs_a_recipe_that_has_room() -> None:
    job = DOCUMENTS["rayjob-RayJob-graphmill-"]
    words = shlex.split(job["spec"]["entrypoint"])
    assert words[:5] == ["python", "-m", "flows.services.container", "graphmill", "run"]
    assert words[6:8] == ["--cluster", "auto"]
    train = load_recipe(words[5], words[8:]).train
    room = [
        int(group["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"]) // train.threads
        for group in _ray_groups(job).values()
        for _ in range(group.get("replicas", 1))
    ]
    assert sum(room) >= train.num_ranks


def test_pods_of_a_lasting_cluster_take_the_runs_of_its_pool() -> None:
    """Its worker is in the head's pod, sees Ray's processes and files, and names the cluster to runs."""
    pod = _ray_groups(DOCUMENTS["raycluster-RayCluster-graphmill"])["head"]["template"]["spec"]
    ray, worker = pod["containers"]
    assert pod["shareProcessNamespace"] is True
    shared = [{mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]} for container in (ray, worker)]
    assert all(shared[0][path] == shared[1][path] for path in ("/data", "/tmp", "/dev/shm"))
    assert {"name": "RAY_ADDRESS", "value": "127.0.0.1:6379"} in worker["env"]


@needs("kubectl", shutil.which("kubectl"))
def test_kustomize_puts_it_together() -> None:
    done = subprocess.run(["kubectl", "kustomize", str(FOLDER)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for document in yaml.safe_load_all(done.stdout):
        kubernetes_validate.validate(document, VERSIONS[-1], strict=True)
        assert document["kind"] == "Namespace" or document["metadata"]["namespace"] == "graphmill"

"""Recipes to run the same module elsewhere: each is valid, and says what it starts."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from typing import Any

import pytest
import yaml

from gpu_lab import facts
from gpu_lab.bench.ddp import EXPERIMENTS

MODULE = "gpu_lab.bench.ddp"
SCRIPTS = ("hosts.sh", "slurm.sbatch")
GIVEN = {"HEAD": "host-one", "NODES": "2", "DRY_RUN": "1"}
FOLDER = facts.folder("data") / "recipes"
posix = pytest.mark.skipif(sys.platform == "win32", reason="needs bash")


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / name).read_text(encoding="utf-8")))


def asked(words: list[str]) -> list[str]:
    """Names of experiments that follow the module; their settings are JSON."""
    names = []
    for word in words[words.index(MODULE) + 1 :]:
        name, _, settings = word.partition("=")
        given = json.loads(settings or "{}")
        names.append(given.get("run", name))
    return names


def test_every_recipe_is_tested() -> None:
    there = {item.name for item in FOLDER.iterdir()}
    assert there == {*SCRIPTS, "trainjob.yaml", "job.yaml", "gpu-operator.yaml"}


@posix
@pytest.mark.parametrize("name", SCRIPTS)
def test_a_dry_run_prints_the_command(name: str) -> None:
    run = subprocess.run(
        ["bash", str(FOLDER / name)],
        env=os.environ | GIVEN,
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    line = subprocess.run(
        ["bash", "-c", f"printf '%s\\n' {run.stdout}"],
        capture_output=True,
        text=True,
        timeout=20,
        check=True,
    )
    words = line.stdout.splitlines()
    assert "--nnodes=2" in words
    assert {*asked(words)} <= {*EXPERIMENTS}
    assert "all_reduce" in asked(words)


@posix
def test_a_missing_host_is_asked_for() -> None:
    env = {k: v for k, v in os.environ.items() if k != "HEAD"}
    run = subprocess.run(
        ["bash", str(FOLDER / "hosts.sh")],
        env=env,
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert run.returncode != 0
    assert "wanted HEAD" in run.stderr


@posix
@pytest.mark.parametrize("name", SCRIPTS)
def test_shellcheck_has_nothing_to_say(name: str) -> None:
    if not shutil.which("shellcheck"):
        pytest.skip("no shellcheck here")
    words = ["shellcheck", "--shell=bash", str(FOLDER / name)]
    run = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("number", [0, 1])
def test_the_plain_job_is_valid_kubernetes(number: int) -> None:
    validate = pytest.importorskip("kubernetes_validate")
    validate.validate(documents("job.yaml")[number], "1.31", strict=True)


def test_a_misspelt_field_is_found() -> None:
    validate = pytest.importorskip("kubernetes_validate")
    job = documents("job.yaml")[1]
    job["spec"]["completion_mode"] = job["spec"].pop("completionMode")
    with pytest.raises(validate.ValidationError):
        validate.validate(job, "1.31", strict=True)


def test_the_plain_job_starts_the_module() -> None:
    (container,) = documents("job.yaml")[1]["spec"]["template"]["spec"]["containers"]
    assert {*asked(container["command"] + container["args"])} <= {*EXPERIMENTS}
    service = documents("job.yaml")[0]["metadata"]["name"]
    meet = next(w for w in container["command"] if "endpoint" in w)
    assert f"{service}-0.{service}:" in meet


def test_the_train_job_is_one_of_kubeflow_s() -> None:
    models = pytest.importorskip("kubeflow_trainer_api.models")
    (job,) = documents("trainjob.yaml")
    found = models.TrainerV1alpha1TrainJob.from_dict(job)
    assert found.to_dict() == job  # nothing was dropped as unknown
    assert found.spec.trainer.num_nodes == 2


def test_the_train_job_starts_the_module() -> None:
    trainer = documents("trainjob.yaml")[0]["spec"]["trainer"]
    assert {*asked(trainer["command"] + trainer["args"])} <= {*EXPERIMENTS}


def test_the_operator_s_values_name_a_mig_strategy() -> None:
    (values,) = documents("gpu-operator.yaml")
    assert values["mig"]["strategy"] in ("none", "single", "mixed")
    assert values["migManager"]["enabled"] == (values["mig"]["strategy"] != "none")

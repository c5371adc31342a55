"""The examples for clusters are what Ray and Kubernetes read, and their commands are commands of Tercet."""

import re
import shlex
from pathlib import Path

import pytest
import typer.main
import yaml

from tercet.cli import app

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


def pinned(package):
    return re.search(rf"^{package}==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)[1]


def parsed(line):
    """Return the options of a command of ours, as the command line reads them."""
    program, verb, *args = shlex.split(line)
    assert program == "tercet"
    command = typer.main.get_command(app).commands[verb]
    return command.make_context(verb, args).params


def commands_in(file):
    """Return the commands of Tercet that a file's comments tell to run."""
    text = re.sub(r"\n#\s*", "\n", (DEPLOY / file).read_text())
    return re.findall(r"'(tercet [^'\n]+)'", text)


def test_the_kuberay_job_runs_a_command_of_ours_on_the_version_that_is_tested():
    job = yaml.safe_load((DEPLOY / "kuberay-embed.yaml").read_text())
    assert (job["apiVersion"], job["kind"]) == ("ray.io/v1", "RayJob")
    options = parsed(job["spec"]["entrypoint"])
    assert (options["engine"], options["address"]) == ("ray", "auto")
    cluster = job["spec"]["rayClusterSpec"]
    assert cluster["rayVersion"] == pinned("ray")
    groups = [cluster["headGroupSpec"], *cluster["workerGroupSpecs"]]
    out = str(options["out"])
    for group in groups:
        pod = group["template"]["spec"]
        claims = {volume["name"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume}
        (container,) = pod["containers"]
        shared = [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] in claims]
        assert any(out.startswith(f"{place}/") for place in shared)  # every pod sees the folder of shards
    assert groups[0]["rayStartParams"]["num-cpus"] == "0"
    (workers,) = cluster["workerGroupSpecs"]
    cpus = int(workers["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"])
    fit = workers["replicas"] * cpus // options["cpus_per_worker"]
    assert options["workers"] <= fit


def test_the_cluster_of_plain_machines_passes_rays_own_check():
    util = pytest.importorskip("ray.autoscaler._private.util")
    pytest.importorskip("jsonschema")
    config = yaml.safe_load((DEPLOY / "ray-up.yaml").read_text())
    util.validate_config(util.prepare_config(config))
    with pytest.raises(Exception, match=r"Additional properties|nosuch"):
        util.validate_config(util.prepare_config({**config, "nosuch": 1}))


def test_the_commands_and_versions_in_the_examples_are_ours():
    (command,) = commands_in("ray-up.yaml")
    assert parsed(command)["engine"] == "ray"
    for file in ("ray-up.yaml", "Dockerfile.ray"):
        assert re.findall(r"ray\[default\]==([\d.]+)", (DEPLOY / file).read_text()) == [pinned("ray")]

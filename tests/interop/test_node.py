"""The tools that these tests stand on."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.interop import node
from tests.interop.conftest import PROJECT


def test_there_is_a_node_in_a_wheel_where_the_machine_has_none(tmp_path: Path) -> None:
    runtime = node.find_runtime(path=str(tmp_path))
    said = subprocess.run([runtime.node, "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.startswith("v")
    said = subprocess.run([*runtime.npm, "--version"], capture_output=True, text=True, check=True)
    assert said.stdout.strip().replace(".", "").isdigit()


def test_a_node_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    for name in ("node", "npm"):
        (tmp_path / name).write_text("#!/bin/sh\necho v18.20.4\n")
        (tmp_path / name).chmod(0o755)
    assert node.find_runtime(path=str(tmp_path)).node != str(tmp_path / "node")


def test_what_cannot_be_installed_is_named_in_one_line(tmp_path: Path) -> None:
    refuses = node.Runtime("node", (shutil.which("false") or "false",))
    cache = tmp_path / "cache"
    with pytest.raises(node.Missing, match=r"^npm cannot install .*@strands-agents/sdk 1\.\d+"):
        node.install("strands", PROJECT, cache=cache, runtime=refuses)
    assert [each.suffix for each in cache.iterdir()] == [".lock"]


def test_what_is_installed_is_not_installed_again(tmp_path: Path) -> None:
    works = node.Runtime("node", (shutil.which("true") or "true",))
    home = node.install("strands", PROJECT, cache=tmp_path, runtime=works)
    assert sorted(each.name for each in home.iterdir()) == sorted(node.MANIFESTS)
    nothing = node.Runtime("node", ("/nowhere/npm",))
    assert node.install("strands", PROJECT, cache=tmp_path, runtime=nothing) == home


def test_the_lock_file_says_nothing_about_where_packages_come_from() -> None:
    lock = (PROJECT / "package-lock.json").read_text()
    assert '"integrity"' in lock
    assert "http" not in "".join(line for line in lock.splitlines() if "resolved" in line)

"""What is published: the package, its types, and the example on its page."""

import json
import re
import shlex
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

from tests.interop import node
from tests.interop.conftest import PROJECT as STRANDS
from tests.interop.genkit.peer import PROJECT as GENKIT
from tests.interop.node import install
from tests.js.serving import CLIENT, HERE, Served
from tests.js.staging import check_examples

ROOT = CLIENT.parent.parent
CORE = ["client", "errors", "index", "json", "operations", "records", "transport"]
PAGES = [CLIENT / "README.md", ROOT / "docs" / "guides" / "javascript.md"]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder in which the package is installed."""
    npm = node.find_runtime().npm
    command = [*npm, "pack", "--loglevel=error", "--pack-destination", str(tmp_path)]
    subprocess.run(command, cwd=CLIENT, check=True, capture_output=True, timeout=300)
    (packed,) = tmp_path.glob("limpet-*.tgz")
    with tarfile.open(packed) as archive:
        archive.extractall(tmp_path, filter="data")
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "package").rename(tmp_path / "node_modules" / "limpet")
    return tmp_path


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_examples_print_what_they_show(page: Path, project: Path, served: Served) -> None:
    assert check_examples(page, project, served.url, node.find_runtime()) == 1


@pytest.mark.slow
def test_the_folder_is_installed_outside_the_clone(tmp_path: Path, served: Served) -> None:
    """By the commands of both pages: an adapter finds the packages of the project."""
    home = tmp_path / "project"
    shutil.copytree(install("langgraph", HERE / "langgraph"), home, symlinks=True)
    commands, same = [
        re.findall(r"^npm ([^#\n]+)", page.read_text(), flags=re.MULTILINE) for page in PAGES
    ]
    assert commands == same
    for command in commands:
        given = command.replace("../limpet/clients/js", shlex.quote(str(CLIENT)))
        npm = [*node.find_runtime().npm, *shlex.split(given), "--no-audit", "--no-fund"]
        subprocess.run(npm, cwd=home, check=True, capture_output=True, timeout=200)
    shutil.copy(HERE / "langgraph" / "driver.mjs", home)
    program = [node.find_runtime().node, "driver.mjs", served.url, "run", "installed"]
    done = subprocess.run(program, cwd=home, capture_output=True, text=True, timeout=300)
    assert json.loads(done.stdout.splitlines()[-1]) == ["first", "left", "right", "last"]


@pytest.mark.slow
def test_the_package_holds_what_it_needs(project: Path) -> None:
    package = project / "node_modules" / "limpet"
    held = {path.relative_to(package).as_posix() for path in package.rglob("*") if path.is_file()}
    sources = {f"src/{path.name}" for path in (CLIENT / "src").iterdir()}
    assert held == {"LICENSE", "README.md", "package.json", *sources}
    assert (package / "LICENSE").read_text() == (ROOT / "LICENSE").read_text()
    assert "dependencies" not in json.loads((package / "package.json").read_text())


def errors_of_types(project: Path, name: str, **options: Any) -> list[str]:
    """Compile a file that uses the package, and return what the compiler says."""
    compiler = install("types", HERE / "types")
    given = {
        "strict": True,
        "noEmit": True,
        "target": "es2022",
        "lib": ["es2023", "dom", "dom.asynciterable"],
        "module": "nodenext",
        "types": [],
        **options,
    }
    (project / "use.mts").write_text((HERE / "types" / name).read_text())
    config = {"compilerOptions": given, "files": ["use.mts"]}
    (project / "tsconfig.json").write_text(json.dumps(config))
    tsc = compiler / "node_modules/typescript/bin/tsc"
    command = [node.find_runtime().node, str(tsc), "-p", str(project)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    return done.stdout.splitlines()


@pytest.mark.slow
def test_the_types(project: Path) -> None:
    assert errors_of_types(project, "core.ts") == []


@pytest.mark.slow
def test_the_types_are_those_of_the_frameworks(project: Path) -> None:
    strands = install("strands", STRANDS) / "node_modules/@strands-agents/sdk/dist/src/index.d.ts"
    genkit = install("genkit", GENKIT) / "node_modules/genkit/lib/beta.d.ts"
    options = {
        "skipLibCheck": True,  # the types of the frameworks have errors of their own
        "types": ["node"],
        "typeRoots": [str(install("types", HERE / "types") / "node_modules/@types")],
        "paths": {"@strands-agents/sdk": [str(strands)], "genkit/beta": [str(genkit)]},
    }
    assert errors_of_types(project, "frameworks.ts", **options) == []


def test_only_what_browsers_have_is_used() -> None:
    """No module or global of Node; of packages only those whose users have them anyway."""
    sources = {path.name: path.read_text() for path in (CLIENT / "src").glob("*.js")}
    node_only = r"\bnode:|\bprocess\.|\bBuffer\b|\brequire\(|\bsetImmediate\b|__dirname"
    used = {name: re.findall(node_only, text) for name, text in sources.items()}
    assert {name: found for name, found in used.items() if found} == {}
    peers = json.loads((CLIENT / "package.json").read_text())["peerDependencies"]
    for name, text in sources.items():
        imported = {each for each in re.findall(r'from "([^"]+)"', text) if each[0] != "."}
        assert imported <= set(peers), name
    assert not any('from "' in sources[f"{name}.js"].replace('from "./', "") for name in CORE)

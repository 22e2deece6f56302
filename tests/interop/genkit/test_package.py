"""What these tests stand on."""

import json

from tests.interop.genkit.peer import PROJECT


def test_the_lock_file_names_one_genkit_and_nowhere_to_get_it_from() -> None:
    lock = (PROJECT / "package-lock.json").read_text()
    assert "http" not in "".join(line for line in lock.splitlines() if "resolved" in line)
    packages = json.loads(lock)["packages"]
    found = {packages[f"node_modules/{name}"]["version"] for name in ("genkit", "@genkit-ai/ai")}
    assert found == {"1.42.0"}

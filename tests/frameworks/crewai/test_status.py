"""The status of a flow: CrewAI says only that it waits for a person, and that he answered."""

from crewai.flow.async_feedback.types import PendingFeedbackContext

import limpet
from limpet.compat.crewai import LimpetFlowPersistence
from tests.frameworks.kit import standing


def test_status(memory: limpet.Store) -> None:
    persistence = LimpetFlowPersistence(memory)
    asked = PendingFeedbackContext(
        flow_id="f", flow_class="a.Flow", method_name="ask", method_output="draft", message="Good?"
    )
    persistence.save_state("f", "begin", {"id": "f"})
    assert standing(memory)[:2] == ("", False)
    persistence.save_pending_feedback("f", asked, {"id": "f"})
    assert standing(memory)[:2] == ("waiting", True)
    persistence.clear_pending_feedback("f")
    assert standing(memory)[:2] == ("answered", False)

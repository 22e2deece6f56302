"""Labels in lists: those for people, not those by which a program finds what it stored."""

import limpet
from limpet.views.document import labels_text
from limpet.views.format import shown_labels


def test_the_entries_of_pydantic_ai_are_left_out() -> None:
    labels = {"019ab3f0-8f53-7c11-a1f2-0242ac120002": "entry", "run": "7"}
    with limpet.open("memory:") as store:
        scope = store.scope("chat", kind="conversation")
        info = scope.save({}, labels=labels)
    assert shown_labels(info) == {"run": "7"}
    assert labels_text(info) == "run=7"
    assert info.labels == labels


def test_labels_of_other_programs_are_shown_whatever_they_say() -> None:
    with limpet.open("memory:") as store:
        info = store.scope("chat").save({}, labels={"kind": "entry", "empty": ""})
    assert labels_text(info) == "empty=, kind=entry"

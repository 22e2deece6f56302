"""Random conversations, in Pydantic AI's own store and in ours: every answer is the same."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test
from pydantic_ai import Conversation, UserError
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationEntry,
    ConversationRecord,
    ConversationStore,
    InMemoryConversationStore,
)

import limpet
from limpet.compat.pydantic_ai import LimpetConversationStore
from tests.effort import slowly, times
from tests.frameworks.kit import Places
from tests.frameworks.pydantic_ai.chats import asked

EXPECTED = (ConversationConflict, LookupError)
IDS = st.sampled_from(["chat", "chat/1", "other"])
SCOPES = st.sampled_from([None, "ann", "bob"])
COUNTS = st.integers(0, 6)


class Both(ConversationStore):
    """Asks two stores, and fails if their answers differ."""

    def __init__(self, measure: ConversationStore, ours: ConversationStore) -> None:
        self._stores = measure, ours
        self.entry_ids: set[str] = set()

    async def _same(self, ask: Callable[[ConversationStore], Awaitable[Any]]) -> Any:
        answers: list[Any] = []
        for store in self._stores:
            try:
                answers.append(await ask(store))
            except EXPECTED as error:
                answers.append(error)
        first, second = answers
        if isinstance(first, BaseException):
            assert isinstance(second, EXPECTED), (first, second)
            assert isinstance(first, LookupError) == isinstance(second, LookupError)
            raise first
        assert first == second
        return first

    async def read_record(self, conversation_id: str) -> Any:
        return await self._same(lambda store: store.read_record(conversation_id))

    async def read_records(self, **options: Any) -> Any:
        return await self._same(lambda store: store.read_records(**options))

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        self.entry_ids |= {each.id for each in new_entries}
        await self._same(
            lambda store: store.write_record(
                record, new_entries=new_entries, expected_revision=expected_revision
            )
        )

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        await self._same(
            lambda store: store.delete_record(conversation_id, expected_revision=expected_revision)
        )

    async def read_entry(self, entry_id: str) -> Any:
        return await self._same(lambda store: store.read_entry(entry_id))

    async def read_history(self, head_id: str | None, *, limit: int | None = None) -> Any:
        return await self._same(lambda store: store.read_history(head_id, limit=limit))


class Conversations(RuleBasedStateMachine):
    url = "memory:"

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.store = limpet.open(self.url)
        self.clear()
        self.both = Both(InMemoryConversationStore(), LimpetConversationStore(self.store))
        self.copies: list[Conversation] = []
        self.number = 0

    def clear(self) -> None:
        for session_id in list(self.store.sessions()):
            self.store.delete_session(session_id)

    def words(self, count: int) -> list[Any]:
        self.number += count
        return [asked(f"word {self.number - each}") for each in range(count)]

    def do(self, work: Awaitable[Any]) -> Any:
        async def guarded() -> Any:
            try:
                return await work
            except (*EXPECTED, UserError):
                return None

        found = self.runner.run(guarded())
        if isinstance(found, Conversation):
            self.copies.append(found)
        return found

    @initialize()
    def begin(self) -> None:
        self.create("chat", 3, None)

    @rule(id=IDS, count=COUNTS, scope=SCOPES)
    def create(self, id: str, count: int, scope: str | None) -> None:
        chat = Conversation(conversation_id=id, messages=self.words(count))
        self.do(self.both.save(chat, scope=scope))
        self.copies.append(chat)

    @rule(id=IDS, limit=st.none() | COUNTS, scope=SCOPES)
    def load(self, id: str, limit: int | None, scope: str | None) -> None:
        self.do(self.both.load(id, limit=limit, scope=scope))

    @rule(data=st.data(), keep=COUNTS, count=COUNTS, is_rewritten=st.booleans())
    def save(self, data: st.DataObject, keep: int, count: int, is_rewritten: bool) -> None:
        """Save a copy that may be stale, extended or rewritten."""
        chat = data.draw(st.sampled_from(self.copies[-4:]))
        if is_rewritten:
            del chat.messages[keep:]
        chat.messages += self.words(count)
        chat.usage.requests += 1
        self.do(self.both.save(chat))

    @rule(id=IDS, at=COUNTS)
    def branch(self, id: str, at: int) -> None:
        record = self.runner.run(self.both.read_record(id))
        if record is not None:
            self.do(self.both.branch(id, at=at, expected_revision=record.revision))

    @rule(id=IDS, data=st.data())
    def branch_from(self, id: str, data: st.DataObject) -> None:
        record = self.runner.run(self.both.read_record(id))
        if record is not None and self.both.entry_ids:
            entry = data.draw(st.sampled_from(sorted(self.both.entry_ids)))
            branch = self.both.branch(id, from_entry=entry, expected_revision=record.revision)
            self.do(branch)

    @rule(id=IDS, to=IDS, at=st.none() | COUNTS, scope=SCOPES)
    def fork(self, id: str, to: str, at: int | None, scope: str | None) -> None:
        self.do(self.both.fork(id, at=at, new_conversation_id=to, scope=scope))

    @rule(id=IDS, scope=SCOPES)
    def delete(self, id: str, scope: str | None) -> None:
        self.do(self.both.delete(id, scope=scope))

    @rule(scope=SCOPES, limit=st.none() | COUNTS)
    def list(self, scope: str | None, limit: int | None) -> None:
        self.do(self.both.list_conversations(scope=scope, limit=limit))

    @rule(data=st.data(), limit=st.none() | COUNTS)
    def read_entry(self, data: st.DataObject, limit: int | None) -> None:
        if self.both.entry_ids:
            entry = data.draw(st.sampled_from(sorted(self.both.entry_ids)))
            self.do(self.both.read_entry(entry))
            self.do(self.both.read_history(entry, limit=limit))

    def teardown(self) -> None:
        try:
            for id in ("chat", "chat/1", "other"):
                self.do(self.both.load(id))
            for entry in self.both.entry_ids:
                self.do(self.both.read_entry(entry))
        finally:
            self.clear()
            self.store.close()
            self.runner.close()


@pytest.mark.parametrize("engine", slowly(("memory", "sqlite"), but=("memory",)))
def test_every_answer_is_that_of_its_own_store(engine: str, places: Places) -> None:
    class Machine(Conversations):
        url = places.url(engine)

    most = {"memory": 150, "sqlite": 60}.get(engine, 8)
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=times(25, full=most),
            stateful_step_count=times(12, full=40),
            deadline=None,
            suppress_health_check=list(HealthCheck),
            database=None,
        ),
    )

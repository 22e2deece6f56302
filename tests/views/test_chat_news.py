"""What is new in a chat since it was looked at last."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from limpet.views.chat import Call, ChatTurn, News, Result, Text, chat_news

WORDS = st.lists(st.sampled_from("abcde"), max_size=12)


def turns(words: Any) -> tuple[ChatTurn, ...]:
    return tuple(ChatTurn("user", None, (Text(word),), at) for at, word in enumerate(words))


def words(news: News) -> list[str]:
    return [part.text for turn in news.turns for part in turn.parts if isinstance(part, Text)]


@given(WORDS, WORDS)
def test_what_was_added_is_new(before: list[str], added: list[str]) -> None:
    news = chat_news(turns(before), turns(before + added))
    assert (words(news), news.is_replaced) == (added, False)


@given(WORDS, WORDS)
def test_of_what_was_replaced_only_what_was_not_there_before_is_new(
    before: list[str], after: list[str]
) -> None:
    news = chat_news(turns(before), turns(after))
    if news.is_replaced:
        assert after[: len(before)] != before
        for word in set(before + after):
            assert words(news).count(word) == max(0, after.count(word) - before.count(word))


def test_a_window_that_slides_shows_what_came_in() -> None:
    news = chat_news(turns("abcd"), turns("cdef"))
    assert (words(news), news.is_replaced) == (["e", "f"], True)


def test_a_result_that_came_later_is_new_within_its_call() -> None:
    asked = ChatTurn("assistant", None, (Text("so"), Call("f", {}, "1"), Call("g", {}, "2")), 0)
    done = Call("g", {}, "2", Result((Text("5"),)))
    answered = ChatTurn("assistant", None, (Text("so"), Call("f", {}, "1"), done), 0)
    end = ChatTurn("assistant", None, (Text("five"),), 2)
    news = chat_news((asked,), (answered, end))
    assert news == News((ChatTurn("tool", None, (done,), 0), end))

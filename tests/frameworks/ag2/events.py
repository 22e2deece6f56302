"""Classes of events that are a program's own."""

from dataclasses import dataclass

from ag2.events import BaseEvent


@dataclass
class Order:
    item: str


class Ordered(BaseEvent):
    order: Order


class Shop:
    class Closed(BaseEvent):
        why: str

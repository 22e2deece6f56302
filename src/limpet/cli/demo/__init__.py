"""The verb `demo`."""

from limpet.cli.demo.command import demo

__all__ = ["demo"]

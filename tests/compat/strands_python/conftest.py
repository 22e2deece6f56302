from tests.interop.conftest import sdk

__all__ = ["sdk"]

from tests.servers.fixtures import moto, seaweedfs

__all__ = ["moto", "seaweedfs"]

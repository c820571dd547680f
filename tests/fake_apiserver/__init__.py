"""An API server for tests: real HTTP on loopback, state in memory, faithful to recordings of a real one, faulty on demand."""

from tests.fake_apiserver.faults import Fault
from tests.fake_apiserver.server import FakeApiServer, Request
from tests.fake_apiserver.state import ApiState, Resource

__all__ = ["ApiState", "FakeApiServer", "Fault", "Request", "Resource"]

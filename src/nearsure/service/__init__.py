"""The service: a gallery behind REST, and a page where a person sees when to trust a match."""

from nearsure.service.app import create_app
from nearsure.service.server import run_service
from nearsure.service.settings import ServiceSettings

__all__ = ["ServiceSettings", "create_app", "run_service"]

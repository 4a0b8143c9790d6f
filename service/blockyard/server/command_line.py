"""The ``blockyard`` command."""

from blockyard.server.serve import serve
from blockyard.server.settings import Settings
import sys


def main():
    a = dict(zip(sys.argv[2::2], sys.argv[3::2]))
    sys.exit(serve(Settings(port=int(a.get("--port", 8484)))))

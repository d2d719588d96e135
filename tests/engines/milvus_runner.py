"""Runs a standalone Milvus server; started by the Python of the environment that holds one.

It obeys lines on its standard input ("start", "kill"), answers each with "done", and takes the
server down with it when its input ends, so that no server outlives the tests.
"""

import json
import socket
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

# A server spends most of a test's time waiting for its own rounds.
SETTINGS = {
    "proxy.timeTickInterval": 10,
    "queryCoord.checkInterval": 20,
    "queryCoord.distPullInterval": 20,
    "queryCoord.checkHandoffInterval": 100,
    "common.session.ttl": 2,  # how long a server that was killed counts as alive
    "log.level": "error",
    "authorization_enabled": True,
}


def main() -> None:
    """Obey until the input ends."""
    folder, programs, settings = Path(sys.argv[1]), Path(sys.argv[2]), json.loads(sys.argv[3])
    server = make_server(folder, programs, settings)
    print(server.config.configs["proxy_port"], flush=True)  # noqa: T201
    try:
        for order in sys.stdin:
            if order.strip() == "start":
                server.start()
            else:
                server.server_proc.kill()
                server.server_proc.wait()
                server.stop()
            print("done", flush=True)  # noqa: T201
    finally:
        if server.server_proc:
            server.server_proc.kill()


def make_server(folder: Path, programs: Path, settings: dict[str, Any]) -> Any:  # noqa: ANN401
    """A server that keeps its data in a folder, on ports of its own."""
    milvus = import_module("milvus")
    # Unpacked once, for all servers of this environment.
    programs.mkdir(parents=True, exist_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "bin").symlink_to(programs, target_is_directory=True)
    config = milvus.MilvusServerConfig()
    names = [name for name in config.configurable_items if name.endswith("_port")]
    *numbers, peer, service = free_ports(len(names) + 2)
    ports = dict(zip(names, numbers, strict=True))
    # The package would leave the ports of its metadata store as they are for every server.
    client_url, peer_url = (f"http://localhost:{port}" for port in (ports["etcd_port"], peer))
    store = folder / "store.yaml"
    store.write_text(
        f"name: default\nlisten-client-urls: {client_url}\nadvertise-client-urls: {client_url}\n"
        f"listen-peer-urls: {peer_url}\ninitial-advertise-peer-urls: {peer_url}\n"
        f"initial-cluster: default={peer_url}\n"
    )
    config.template_text = config.template_text.replace(
        "etcd:\n", f"etcd:\n  config:\n    path: {store}\n", 1
    )
    # Without this, ports of a server that was killed count as taken for a minute.
    config.try_bind_port = lambda port: socket.create_server(("127.0.0.1", port))
    server = milvus.MilvusServer(config, data_dir=str(folder), **ports)
    for name, value in (SETTINGS | settings).items():
        config.set(name, value)
    server.webservice_port = service
    return server


def free_ports(n: int) -> list[int]:
    """Ports that nobody listens on."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(n)]
    ports = [own.getsockname()[1] for own in sockets]
    for own in sockets:
        own.close()
    return ports


if __name__ == "__main__":
    main()

"""Loaded by every Python process of a pod: Service names lead to loopback ports, Ray's own listeners stay on loopback.

Must not import ray: most processes that load it are not Ray's. What it changes in Ray is changed when Ray's modules load.
"""

import importlib.abc
import importlib.util
import json
import os
import socket
import sys

LOOPBACK = "127.0.0.1"
OWN = {"localhost", LOOPBACK, "::1"}


def names():
    # Read at each look-up: Services come and go while the pod runs. The writer replaces the file in one step.
    try:
        with open(os.environ["RAYFLEET_NAMES"]) as file:
            return json.load(file)
    except (KeyError, OSError, ValueError):
        return {}


def spelling(host):
    """`svc`, `svc.ns`, `svc.ns.svc` and `svc.ns.svc.<domain>` are one name, written `svc.ns`."""
    parts = host.rstrip(".").split(".")
    if len(parts) == 1:
        return parts[0] + "." + os.environ.get("RAYFLEET_NAMESPACE", "default")
    if len(parts) > 2 and parts[2] == "svc":
        return ".".join(parts[:2])
    return host


def real_port(host, port):
    """The loopback port behind a name and a port of the cluster, or None if they are not the cluster's."""
    if not isinstance(host, str):
        return None
    try:
        port = int(port)
    except (TypeError, ValueError):
        return None
    if host in OWN:
        return json.loads(os.environ.get("RAYFLEET_PORTS", "{}")).get(str(port))
    return names().get("%s:%d" % (spelling(host), port))


def is_name(host):
    if not isinstance(host, str) or host in OWN:
        return False
    start = spelling(host) + ":"
    return any(key.startswith(start) for key in names())


def on_socket():
    resolve = socket.getaddrinfo
    by_name = socket.gethostbyname

    def getaddrinfo(host, port, *args, **kwargs):
        real = real_port(host, port)
        if real is not None:
            return resolve(LOOPBACK, real, *args, **kwargs)
        if port in (None, 0, "0") and is_name(host):
            return resolve(LOOPBACK, port, *args, **kwargs)
        return resolve(host, port, *args, **kwargs)

    socket.getaddrinfo = getaddrinfo
    socket.gethostbyname = lambda host: LOOPBACK if is_name(host) else by_name(host)


def on_services(module):
    canonical = module.canonicalize_bootstrap_address

    # The C++ client that gets this address cannot be taught names, and 127.0.0.1 must not become the machine's address.
    def mapped(addr, temp_dir=None):
        answer = canonical(addr, temp_dir)
        if answer is None:
            return None
        host, _, port = answer.rpartition(":")
        real = real_port(host.strip("[]"), port)
        return answer if real is None else "%s:%d" % (LOOPBACK, real)

    module.canonicalize_bootstrap_address = mapped
    module.resolve_ip_for_localhost = lambda host: LOOPBACK if host == "localhost" else host


def local(address):
    host, colon, port = address.rpartition(":")
    return LOOPBACK + colon + port if host in ("[::]", "0.0.0.0") else address


def on_tls_utils(module):
    add = module.add_port_to_grpc_server
    # Serve's replicas ask for [::]:0.
    module.add_port_to_grpc_server = lambda server, address: add(server, local(address))


def on_serve_impl(module):
    add = module.add_grpc_address
    module.add_grpc_address = lambda server, address: add(server, local(address))


def on_serve_proxy(module):
    override = module.apply_per_node_port_overrides

    # The dashboard goes on saying 0.0.0.0:8000; each proxy listens on its own pod's port.
    def own_ports(http_options, grpc_options, is_head):
        override(http_options, grpc_options, is_head)
        http_options.host = LOOPBACK
        http_options.port = int(os.environ.get("RAYFLEET_SERVE_HTTP", http_options.port))
        grpc_options.port = int(os.environ.get("RAYFLEET_SERVE_GRPC", grpc_options.port))

    module.apply_per_node_port_overrides = own_ports


CHANGES = {
    "ray._private.services": on_services,
    "ray._common.tls_utils": on_tls_utils,
    "ray.serve._private.default_impl": on_serve_impl,
    "ray.serve._private.proxy": on_serve_proxy,
}


class Changing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        # Taken out before the look-up, which comes back here.
        change = CHANGES.pop(name, None)
        if change is None:
            return None
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        execute = spec.loader.exec_module

        def exec_module(module):
            execute(module)
            change(module)

        spec.loader.exec_module = exec_module
        return spec


on_socket()
sys.meta_path.insert(0, Changing())

"""Named by RAY_START_HOOK: puts one `ray start` on loopback, on the ports that its pod was given.

Everything touched here is private to Ray and was read in 2.60.0, which the sandbox checks before it starts anything.
"""

import json
import os

import ray._private.node as node
import ray._private.ray_constants as constants
import ray._private.services as services

LOOPBACK = "127.0.0.1"


def hook(params, head):
    fields = json.loads(os.environ["RAYFLEET_NODE"])
    start_node = node.Node

    # `ray start` sets the GCS port after this hook has run, so the last word has to be at the node's construction.
    def start(params, **kwargs):
        params.update(**fields, node_ip_address=LOOPBACK, dashboard_host=LOOPBACK)
        return start_node(params, **kwargs)

    node.Node = start
    params.node_ip_address = LOOPBACK
    # In this process only: lets a worker join although the environment says "one machine", which keeps the rest on loopback.
    constants.ENABLE_RAY_CLUSTER = True
    services.get_node_ip_address = lambda address=None: LOOPBACK

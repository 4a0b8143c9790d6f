"""What ``blockyard cluster try`` says: where all of it is, what to try, and what has become of it."""

import signal
from pathlib import Path
from typing import Any

from blockyard.server.trial.trial import CLUSTER, Ended, Trial


def describe(trial: Trial, folder: Path) -> dict[str, Any]:
    """The trial for programs."""
    return {
        "cluster": CLUSTER,
        "dir": str(folder.resolve()),
        "nodes": [
            {
                "node": node.name,
                "url": node.url,
                "dashboard": f"{node.url}/dashboard",
                "pid": node.process_id,
            }
            for node in trial.nodes
        ],
        "nats": [
            {"url": place.url, "monitor": place.monitor, "pid": trial.nats.process_id(index)}
            for index, place in enumerate(trial.nats.places)
        ],
    }


def what_to_try(trial: Trial, folder: Path) -> str:
    """The same for people, and where to begin."""
    told = describe(trial, folder)
    lines = [
        *(f"{node['node']}  {node['dashboard']}  pid {node['pid']}" for node in told["nodes"]),
        f"NATS    {trial.nats.urls}",
        f"        pids {', '.join(str(server['pid']) for server in told['nats'])}; all files are in {folder}",
        "",
        "Make a pool, at any node:",
        f"  curl -L -X PUT {trial.nodes[0].url}/v1/pools/demo -H 'Content-Type: application/json' \\",
        """    -d '{"num_blocks": 1000, "block_size": 16}'""",
        "See who owns it, and who is to take it over:",
        f"  blockyard cluster show --watch --url {','.join(node.url for node in trial.nodes)}",
        "Kill its owner, by its pid above, and see it move:",
        f"  kill -9 {trial.nodes[0].process_id}",
        "",
        "Ctrl-C stops all of it.",
    ]
    return "\n".join(lines)


def why_it_ended(ended: Ended, trial: Trial) -> str:
    """What is told of a process that is gone, and what that means."""
    status = ended.exit_status
    how = f"was ended by {signal.Signals(-status).name}" if status < 0 else f"ended with status {status}"
    if ended.is_node:
        left = [node.name for node in trial.nodes if node.exit_status is None]
        what = f"its pools are for {' and '.join(left)} to take over" if left else "it was the last node"
    else:
        what = "while more than half of the NATS servers run, the nodes go on"
    return f"{ended.name} {how}: {what}"

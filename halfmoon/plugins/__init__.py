"""The plugins that ship with Halfmoon. They use the same hooks as everybody else's, and nothing but `halfmoon.plugin`.

allocate/  which member of a group reads which queue
filter/    which messages a reader wants
store/     what changes or moves messages
"""

from __future__ import annotations

BUILT_IN: dict[str, str] = {
    "averagely": "halfmoon.plugins.allocate.averagely",
    "averagely_by_circle": "halfmoon.plugins.allocate.averagely_by_circle",
    "by_config": "halfmoon.plugins.allocate.by_config",
    "consistent_hash": "halfmoon.plugins.allocate.consistent_hash",
    "delay": "halfmoon.plugins.store.delay.plugin",
    "machine_room": "halfmoon.plugins.allocate.machine_room",
    "machine_room_nearby": "halfmoon.plugins.allocate.machine_room_nearby",
    "range": "halfmoon.plugins.allocate.range",
    "retry": "halfmoon.plugins.store.retry.plugin",
    "schedule": "halfmoon.plugins.store.schedule.plugin",
    "sql92": "halfmoon.plugins.filter.sql92",
    "sticky": "halfmoon.plugins.allocate.sticky",
    "tag": "halfmoon.plugins.filter.tag",
    "transaction": "halfmoon.plugins.store.transaction.plugin",
    "uniform": "halfmoon.plugins.allocate.uniform",
    "view": "halfmoon.plugins.store.view.plugin",
}
"""Plugin name (as in broker.yaml) → module, imported only where the plugin is on."""
